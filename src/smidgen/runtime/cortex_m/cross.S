/* Taps of four channels multiplied and added: see smg_cross in fours.h. */
#include "assembly.inc"
#include "fours.inc"

/* r0 and r1 walk over the taps of input and weights, by r2 and r3; r4 is the zero point, r8-r11 are the sums. Words are
 * widened to channels 0 and 2, and 1 and 3. */
    .macro smg_tap
    sxtab16 r12, r4, r6, ror #8
    sxtab16 r6, r4, r6
    sxtb16 lr, r7, ror #8
    sxtb16 r7, r7
    smlabb r8, r6, r7, r8
    smlatt r10, r6, r7, r10
    smlabb r9, r12, lr, r9
    smlatt r11, r12, lr, r11
    .endm

    .macro smg_two_taps
    ldr r6, [r0]
    ldr r7, [r1]
    smg_tap
    ldr r6, [r0, r2]
    ldr r7, [r1, r3]
    add r0, r0, r2, lsl #1
    add r1, r1, r3, lsl #1
    smg_tap
    .endm

/* The frame: 0 the job, 4 runs to come, 8 where the run began in x and w. */
    .global smg_cross
    smg_function smg_cross
    push {r4-r11, lr}
    sub sp, #20
    str r0, [sp]
    mov r12, r0
0: /* a block */
    ldr r6, [r12, #44]
    ldr r7, [r12, #24]
    ldmia r6!, {r8-r11}
    ldmia r12, {r0-r5}
    str r6, [r12, #44]
    str r7, [sp, #4]
    adds r6, r0, #4
    adds r7, r1, #4
    strd r6, r7, [r12]
    strd r0, r1, [sp, #8]
1: /* a run: an odd tap, an odd pair, four at a time */
    lsrs r5, #1
    bcc 2f
    ldr r6, [r0]
    ldr r7, [r1]
    add r0, r2
    add r1, r3
    smg_tap
2:
    beq 5f
    lsrs r5, #1
    bcc 3f
    smg_two_taps
3:
    beq 5f
4:
    smg_two_taps
    smg_two_taps
    subs r5, #1
    bne 4b
5:
    ldrd r12, r6, [sp]
    subs r6, #1
    beq 6f
    str r6, [sp, #4]
    ldrd r0, r1, [sp, #8]
    ldrd r6, r7, [r12, #28]
    ldr r5, [r12, #20]
    add r0, r6
    add r1, r7
    strd r0, r1, [sp, #8]
    b 1b
6:
    smg_finish_block 0b, 8f
8:
    ldr r0, [r12, #36]
    add sp, #20
    pop {r4-r11, pc}
    smg_end smg_cross
