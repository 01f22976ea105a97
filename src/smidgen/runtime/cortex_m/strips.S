/* Columns packed to strips: see smg_pack_columns in strips.h. */
#include "assembly.inc"

/* The frame: 0 columns, lists to come, channel, 12 steps, 20 the end. Two columns at a time, an odd one before. */
    .macro smg_pack_one
    ldr r9, [r0]
    ldr r10, [r1]
    add r0, r2
    add r1, r3
    pkhbt r11, r9, r10, lsl #16
    pkhtb r12, r10, r9, asr #16
    sxtab16 r9, r4, r11
    sxtab16 r10, r4, r11, ror #8
    sxtab16 r11, r4, r12
    sxtab16 r12, r4, r12, ror #8
    str r10, [r5, r6]
    str r11, [r5, r6, lsl #1]
    str r12, [r5, r7]
    str r9, [r5], #4
    .endm

    .macro smg_pack_two
    ldr r9, [r0]
    ldr r10, [r1]
    ldrd r2, r3, [sp, #12]
    ldr r11, [r0, r2]
    ldr r12, [r1, r3]
    add r0, r0, r2, lsl #1
    add r1, r1, r3, lsl #1
    pkhbt lr, r9, r10, lsl #16
    pkhtb r9, r10, r9, asr #16
    pkhbt r10, r11, r12, lsl #16
    pkhtb r11, r12, r11, asr #16
    sxtab16 r2, r4, lr
    sxtab16 r3, r4, r10
    strd r2, r3, [r5], #8
    sxtab16 lr, r4, lr, ror #8
    sxtab16 r10, r4, r10, ror #8
    strd lr, r10, [r6], #8
    sxtab16 r2, r4, r9
    sxtab16 r3, r4, r11
    strd r2, r3, [r7], #8
    sxtab16 r9, r4, r9, ror #8
    sxtab16 r11, r4, r11, ror #8
    strd r9, r11, [r8], #8
    .endm

/* The same where columns of both rows lie equally far apart: r2 is how far, and lr may be used. */
    .macro smg_pack_even
    ldr r9, [r0]
    ldr r10, [r1]
    ldr r11, [r0, r2]
    ldr r12, [r1, r2]
    add r0, r0, r2, lsl #1
    add r1, r1, r2, lsl #1
    pkhbt r3, r9, r10, lsl #16
    pkhtb r9, r10, r9, asr #16
    pkhbt r10, r11, r12, lsl #16
    pkhtb r11, r12, r11, asr #16
    sxtab16 r12, r4, r3
    sxtab16 lr, r4, r10
    strd r12, lr, [r5], #8
    sxtab16 r3, r4, r3, ror #8
    sxtab16 r10, r4, r10, ror #8
    strd r3, r10, [r6], #8
    sxtab16 r12, r4, r9
    sxtab16 lr, r4, r11
    strd r12, lr, [r7], #8
    sxtab16 r9, r4, r9, ror #8
    sxtab16 r11, r4, r11, ror #8
    strd r9, r11, [r8], #8
    .endm

    .global smg_pack_columns
    smg_function smg_pack_columns
    push {r4-r11, lr}
    sub sp, #24
    stmia sp, {r0-r2}
0:
    ldr lr, [sp]
    ldmia lr!, {r0-r6, r8, r9}
    ldr r7, [sp, #8]
    str lr, [sp]
    cmp r2, #0
    it ne
    addne r0, r7
    cmp r3, #0
    it ne
    addne r1, r7
    add lr, r5, r8, lsl #2
    add r7, r6, r6, lsl #1
    cmp r9, #1
    beq 2f
    bhi 4f
    lsls r8, #31
    beq 11f
    smg_pack_one
11:
    cmp r5, lr
    beq 5f
    strd r2, r3, [sp, #12]
    str lr, [sp, #20]
    add r8, r5, r7
    add r7, r5, r6, lsl #1
    add r6, r5
    cmp r2, r3
    bne 1f
    sub r3, lr, r5
    lsls r3, #28
    beq 6f
    smg_pack_even
    ldr lr, [sp, #20]
    cmp r5, lr
    beq 5f
6:
    smg_pack_even
    smg_pack_even
    ldr r3, [sp, #20]
    cmp r5, r3
    bne 6b
    b 5f
1:
    smg_pack_two
    ldr r2, [sp, #20]
    cmp r5, r2
    bne 1b
    b 5f
2:
    add r6, r5
    lsls r8, #31
    beq 12f
    ldr r9, [r0]
    add r0, r2
    sxtab16 r10, r4, r9, ror #8
    sxtab16 r9, r4, r9
    str r10, [r6], #4
    str r9, [r5], #4
12:
    cmp r5, lr
    beq 5f
3:
    ldr r9, [r0]
    ldr r10, [r0, r2]
    add r0, r0, r2, lsl #1
    sxtab16 r11, r4, r9
    sxtab16 r12, r4, r10
    sxtab16 r9, r4, r9, ror #8
    sxtab16 r10, r4, r10, ror #8
    strd r11, r12, [r5], #8
    strd r9, r10, [r6], #8
    cmp r5, lr
    bne 3b
    b 5f
4:
    ldr r9, [r0]
    add r0, r2
    sxtb16 r10, r9, ror #8
    sxtb16 r9, r9
    uxth r11, r10
    uxth r12, r9
    eor r10, r11
    eor r9, r12
    str r11, [r5, r6]
    str r9, [r5, r6, lsl #1]
    str r10, [r5, r7]
    str r12, [r5], #4
    cmp r5, lr
    bne 4b
5:
    ldr r0, [sp, #4]
    subs r0, #1
    str r0, [sp, #4]
    bne 0b
    add sp, #24
    pop {r4-r11, pc}
    smg_end smg_pack_columns
