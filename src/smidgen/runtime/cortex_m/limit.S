/* int8 numbers limited, four at a time: see smg_limit in scales.h. */
#include "assembly.inc"

/* The bytes of r4, but no less than those of r2 and no more than those of r3. */
    .macro smg_limit_bytes
    ssub8 r5, r4, r2
    sel r4, r4, r2
    ssub8 r5, r3, r4
    sel r4, r4, r3
    .endm

    .global smg_limit
    smg_function smg_limit
    push {r4, r5}
    mov r4, #0x01010101
    uxtb r2, r2
    uxtb r3, r3
    mul r2, r2, r4
    mul r3, r3, r4
    lsrs r12, r1, #2
    beq 1f
0: /* four */
    ldr r4, [r0]
    smg_limit_bytes
    str r4, [r0], #4
    subs r12, #1
    bne 0b
1:
    ands r1, #3
    beq 3f
2: /* one of the rest */
    ldrb r4, [r0]
    smg_limit_bytes
    strb r4, [r0], #1
    subs r1, #1
    bne 2b
3:
    pop {r4, r5}
    bx lr
    smg_end smg_limit
