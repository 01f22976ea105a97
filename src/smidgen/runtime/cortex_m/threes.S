/* Filters of 3x3 on a row of outputs: see smg_run_threes in threes.h. */
#include "assembly.inc"
#include "scaling.inc"

/* The frame:
 *     0 upper filter, four biases    44 twice multiplier, h, zero    64 y_end
 *    28 third row's filter           56 y_c, three times y_c         68 the job, loops: near, far; the channel
 * r0 and r12 walk over the strips, lr over the outputs, r8-r11 are the sums. */
    .macro smg_add sum, x, w
    smlad \sum, \x, \w, \sum
    .endm

    .macro smg_upper_ones
    ldmia sp, {r2-r4, r8-r11}
    ldmia r0!, {r1, r5-r7}
    smg_add r8, r1, r2
    smg_add r8, r5, r3
    smg_add r8, r6, r4
    smg_add r9, r5, r2
    smg_add r9, r6, r3
    smg_add r9, r7, r4
    smg_add r10, r6, r2
    smg_add r10, r7, r3
    smg_add r11, r7, r2
    ldmia r0, {r5, r6}
    smg_add r10, r5, r4
    smg_add r11, r5, r3
    smg_add r11, r6, r4
    .endm

/* Windows begin at odd columns and even ones in turn. */
    .macro smg_third_ones
    ldrd r1, r2, [sp, #28]
    ldrd r3, r4, [sp, #36]
    ldmia r12!, {r5, r6}
    smg_add r8, r5, r1
    ldrd r5, r7, [r12]
    smg_add r8, r6, r2
    smg_add r9, r6, r3
    smg_add r9, r5, r4
    smg_add r10, r6, r1
    smg_add r10, r5, r2
    smg_add r11, r5, r3
    smg_add r11, r7, r4
    .endm

    .macro smg_upper_twos
    ldmia sp, {r2-r4, r8-r11}
    ldmia r0!, {r1, r5-r7}
    smg_add r8, r1, r2
    smg_add r8, r5, r3
    smg_add r8, r6, r4
    smg_add r9, r6, r2
    smg_add r9, r7, r3
    ldmia r0!, {r1, r5-r7}
    smg_add r9, r1, r4
    smg_add r10, r1, r2
    smg_add r10, r5, r3
    smg_add r10, r6, r4
    smg_add r11, r6, r2
    smg_add r11, r7, r3
    ldr r5, [r0]
    smg_add r11, r5, r4
    .endm

    .macro smg_third_twos
    ldrd r2, r3, [sp, #28]
    ldmia r12!, {r1, r5-r7}
    ldr r4, [r12]
    smg_add r8, r1, r2
    smg_add r8, r5, r3
    smg_add r9, r5, r2
    smg_add r9, r6, r3
    smg_add r10, r6, r2
    smg_add r10, r7, r3
    smg_add r11, r7, r2
    smg_add r11, r4, r3
    .endm

    .macro smg_outputs way
    add r1, sp, #44
    ldmia r1, {r1-r6}
    \way r8, r1, r2, r3
    strb r8, [lr]
    \way r9, r1, r2, r3
    strb r9, [lr, r4]
    \way r10, r1, r2, r3
    strb r10, [lr, r4, lsl #1]
    \way r11, r1, r2, r3
    strb r11, [lr, r5]
    add lr, lr, r4, lsl #2
    cmp lr, r6
    .endm

    .global smg_run_threes
    smg_function smg_run_threes
    push {r4-r11, lr}
    sub sp, #84
    ldrd r1, r2, [r0, #40]
    ldr r3, [r0, #48]
    add r4, r1, r1, lsl #1
    strd r2, r1, [sp, #52]
    str r4, [sp, #60]
    str r0, [sp, #68]
    adr r1, 10f
    add r3, r1, r3, lsl #2
    ldr r4, [r3, #16]
    cmn r2, #255
    it eq
    addeq r3, #8
    ldr r3, [r3]
    add r3, r1
    add r4, r1
    orr r3, #1
    orr r4, #1
    strd r3, r4, [sp, #72]
    movs r1, #0
    str r1, [sp, #80]
0: /* a channel, r11 of the four */
    ldr lr, [sp, #68]
    ldmia lr, {r0-r6, r8-r10}
    ldr r11, [sp, #80]
    mla r0, r1, r11, r0
    mla r12, r3, r11, r2
    ldr r1, [r6, r11, lsl #2]
    ldrsb r2, [r8, r11]
    ldr r3, [r5, r11, lsl #2]
    add lr, r9, r11
    add r10, r11
    str r10, [sp, #64]
    rsb r5, r11, r11, lsl #3
    add r4, r4, r5, lsl #2
    add r11, #1
    str r11, [sp, #80]
    lsls r1, #1
    adds r7, r2, #17
    cmp r7, #14
    ittee ls
    movls r2, #1
    lslls r7, r2, r7
    mvnhi r7, r2
    ldrhi r2, [sp, #76]
    it ls
    ldrls r2, [sp, #72]
    strd r1, r7, [sp, #44]
    ldmia r4, {r4-r10}
    stmia sp, {r4-r6}
    strd r3, r3, [sp, #12]
    strd r3, r3, [sp, #20]
    add r1, sp, #28
    stmia r1, {r7-r10}
    mov pc, r2
    .balign 4
10:
    .word 1f - 10b, 2f - 10b, 3f - 10b, 4f - 10b, 6f - 10b, 7f - 10b
1:
    smg_upper_ones
    smg_third_ones
    smg_outputs smg_near
    bne 1b
    b 5f
2:
    smg_upper_twos
    smg_third_twos
    smg_outputs smg_near
    bne 2b
    b 5f
3:
    smg_upper_ones
    smg_third_ones
    smg_outputs smg_floor
    bne 3b
    b 5f
4:
    smg_upper_twos
    smg_third_twos
    smg_outputs smg_floor
    bne 4b
    b 5f
6:
    smg_upper_ones
    smg_third_ones
    smg_outputs smg_far
    bne 6b
    b 5f
7:
    smg_upper_twos
    smg_third_twos
    smg_outputs smg_far
    bne 7b
5:
    ldr r1, [sp, #80]
    cmp r1, #4
    bne 0b
    add sp, #84
    pop {r4-r11, pc}
    smg_end smg_run_threes

/* Filters packed: see smg_pack_threes in threes.h. Two taps of four channels go to words, or one to their halves. */
    .macro smg_both_taps a, b, at
    pkhbt r8, \a, \b, lsl #16
    pkhtb r9, \b, \a, asr #16
    sxtb16 r10, r8
    sxtb16 r8, r8, ror #8
    sxtb16 r11, r9
    sxtb16 r9, r9, ror #8
    smg_four_words r10, r8, r11, r9, \at
    .endm

    .macro smg_lower_tap a, at
    sxtb16 r8, \a
    sxtb16 r9, \a, ror #8
    lsr r10, r8, #16
    lsr r11, r9, #16
    uxth r8, r8
    uxth r9, r9
    smg_four_words r8, r9, r10, r11, \at
    .endm

    .macro smg_upper_tap a, at
    sxtb16 r8, \a
    sxtb16 r9, \a, ror #8
    pkhtb r10, r8, r12, asr #16
    pkhtb r11, r9, r12, asr #16
    lsl r8, #16
    lsl r9, #16
    smg_four_words r8, r9, r10, r11, \at
    .endm

    .macro smg_four_words a, b, c, d, at
    str \a, [r2, #\at]
    str \b, [r2, #\at + 28]
    str \c, [r2, #\at + 56]
    str \d, [r2, #\at + 84]
    .endm

    .global smg_pack_threes
    smg_function smg_pack_threes
    push {r4-r11}
    mov r12, #0
    add r4, r1, r1, lsl #1
    add r4, r0
    .irp at, 0, 4, 8
    ldr r5, [r0]
    ldr r6, [r4]
    add r0, r1
    add r4, r1
    smg_both_taps r5, r6, \at
    .endr
    ldr r5, [r4]
    ldr r6, [r4, r1]
    ldr r7, [r4, r1, lsl #1]
    cmp r3, #1
    blo 1f
    smg_upper_tap r5, 12
    smg_both_taps r6, r7, 16
    beq 2f
    add r2, #8
1:
    smg_both_taps r5, r6, 12
    smg_lower_tap r7, 16
2:
    pop {r4-r11}
    bx lr
    smg_end smg_pack_threes
