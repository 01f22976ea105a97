/* Sums of int8 tensors, four elements at a time: see smg_sums in add.c. */
#include "assembly.inc"

/* r11, r1 and r2 walk, r4-r10 are the last seven fields, y_end is in the frame. The scaled element with its 20 bits is never so
 * large that rounding could leave the 32. Divisions by powers of two are products with their negative inverses, which
 * SMMLS takes off. */
    .macro smg_one by
    sxtab lr, r5, r12, ror #\by
    lsl lr, #20
    smmlar lr, lr, r6, lr
    add lr, lr, lr, asr #31
    sxtab r0, r4, r3, ror #\by
    lsl r0, #19
    smmlsr lr, lr, r7, r0
    smmlar lr, lr, r8, lr
    add lr, lr, lr, asr #31
    smmls lr, lr, r9, r10
    ssat lr, #8, lr, asr #1
    strb lr, [r2], #1
    .endm

    .global smg_add_words
    smg_function smg_add_words
    push {r4-r11, lr}
    ldmia r0, {r0-r10}
    mov r11, r0
    push {r3}
0:
    ldr r12, [r1], #4
    ldr r3, [r11], #4
    smg_one 0
    smg_one 8
    smg_one 16
    smg_one 24
    ldr r0, [sp]
    cmp r2, r0
    bne 0b
    add sp, #4
    pop {r4-r11, pc}
    smg_end smg_add_words
