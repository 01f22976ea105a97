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

/* A run: an odd tap, an odd pair, four at a time. */
    .macro smg_run
    lsrs r5, #1
    bcc 71f
    ldr r6, [r0]
    ldr r7, [r1]
    add r0, r2
    add r1, r3
    smg_tap
71:
    beq 74f
    lsrs r5, #1
    bcc 72f
    smg_two_taps
72:
    beq 74f
73:
    smg_two_taps
    smg_two_taps
    subs r5, #1
    bne 73b
74:
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
1:
    smg_run
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

/* The frame:
 *    0 x, w, x_on, w_on, minus, count    72 zero, y        108 x_row, w_row
 *   24 four biases                       80 y_end, y_step  116 the job
 *   40 twice the multipliers, four h     88 x_step
 *   92 runs, runs to come, where the run began in x and w */
    .global smg_cross_pixels
    smg_function smg_cross_pixels
    push {r4-r11, lr}
    sub sp, #124
    mov r12, r0
    str r12, [sp, #116]
    add r0, #8
    ldmia r0, {r2-r8}
    strd r2, r3, [sp, #8]
    strd r4, r5, [sp, #16]
    str r6, [sp, #92]
    strd r7, r8, [sp, #108]
    ldr r0, [r12, #40]
    ldrd r1, r2, [r12, #64]
    str r0, [sp, #72]
    str r2, [sp, #84]
    str r1, [sp, #88]
0: /* a block */
    ldrd r0, r1, [r12]
    strd r0, r1, [sp]
    adds r0, #4
    adds r1, #4
    strd r0, r1, [r12]
    ldrd r0, r1, [r12, #44]
    ldr r6, [r12, #52]
    ldmia r0!, {r8-r11}
    ldmia r1!, {r2-r5}
    ldr r7, [r6], #4
    strd r0, r1, [r12, #44]
    str r6, [r12, #52]
    add r0, sp, #24
    stmia r0!, {r8-r11}
    mov r6, #0x11111111
    mov lr, #1
    uadd8 r7, r7, r6
    lsl r2, #1
    lsl r3, #1
    lsl r4, #1
    lsl r5, #1
    uxtb r8, r7
    uxtb r9, r7, ror #8
    uxtb r10, r7, ror #16
    uxtb r11, r7, ror #24
    lsl r8, lr, r8
    lsl r9, lr, r9
    lsl r10, lr, r10
    lsl r11, lr, r11
    stmia r0, {r2-r5, r8-r11}
    ldrd r0, r1, [r12, #56]
    ldr r2, [sp, #84]
    mla r1, r1, r2, r0
    strd r0, r1, [sp, #76]
    adds r0, #4
    str r0, [r12, #56]
1: /* an output */
    ldmia sp, {r0-r5, r8-r11}
    ldrd r6, r7, [sp, #88]
    add r6, r0
    str r6, [sp]
    str r7, [sp, #96]
    strd r0, r1, [sp, #100]
2:
    smg_run
    ldr r6, [sp, #96]
    subs r6, #1
    beq 3f
    str r6, [sp, #96]
    ldrd r0, r1, [sp, #100]
    ldrd r6, r7, [sp, #108]
    ldr r5, [sp, #20]
    add r0, r6
    add r1, r7
    strd r0, r1, [sp, #100]
    b 2b
3:
    add r0, sp, #40
    ldmia r0, {r0-r7}
    ldrd r12, lr, [sp, #72]
    smg_near r8, r0, r4, r12
    smg_near r9, r1, r5, r12
    smg_near r10, r2, r6, r12
    smg_near r11, r3, r7, r12
    ldrd r0, r1, [sp, #80]
    strb r8, [lr]
    strb r9, [lr, #1]
    strb r10, [lr, #2]
    strb r11, [lr, #3]
    add lr, r1
    str lr, [sp, #76]
    cmp lr, r0
    bne 1b
    ldr r12, [sp, #116]
    ldr r6, [r12, #36]
    subs r6, #1
    str r6, [r12, #36]
    bne 0b
    add sp, #124
    pop {r4-r11, pc}
    smg_end smg_cross_pixels
