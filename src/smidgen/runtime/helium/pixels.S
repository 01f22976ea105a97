/* Four channels' filters against pixels, sixteen products at a time: see pixels.h. */
#include "assembly.inc"

/* Where the fields lie. */
    .equ K, 16
    .equ COUNT, 20
    .equ X, 24
    .equ X_ON, 28
    .equ Y, 32
    .equ Y_ON, 36
    .equ ZERO, 40
    .equ LO, 44
    .equ HI, 48
    .equ BIAS, 52
    .equ MULTIPLIER, 68
    .equ SHIFT, 84

/* r0, r4, r2, r6: sums of the channels; r3, r5, r8, r9: their filters. On the stack: where the filters begin, and how
 * far it is from behind a window to the next. A loop in predicated bytes takes what is left of a window, too. */
    .global smg_multiply_pixels
    smg_function smg_multiply_pixels
    push {r4-r11, lr}
    vpush {d8-d15}
    sub sp, sp, #20
    mov r12, r0
    ldm r12, {r3, r5, r8, r9}
    stm sp, {r3, r5, r8, r9}
    ldr r11, [r12, #K]
    ldr r0, [r12, #X_ON]
    add r1, r11, #15
    bic r1, r1, #15
    sub r0, r0, r1
    str r0, [sp, #16]
    ldr r0, [r12, #ZERO]
    vdup.32 q5, r0
    ldr r0, [r12, #LO]
    vdup.32 q6, r0
    ldr r0, [r12, #HI]
    vdup.32 q7, r0
    add r0, r12, #BIAS
    vldrw.u32 q2, [r0]
    vldrw.u32 q3, [r0, #(MULTIPLIER - BIAS)]
    vldrw.u32 q4, [r0, #(SHIFT - BIAS)]
    ldr r1, [r12, #X]
    ldr r10, [r12, #COUNT]
    ldr r7, [r12, #Y]
    ldr r12, [r12, #Y_ON]
1:
    ldm sp, {r3, r5, r8, r9}
    vmov r0, r2, q2[2], q2[0]
    vmov r4, r6, q2[3], q2[1]
    dlstp.8 lr, r11
2:
    vldrb.u8 q0, [r1], #16
    vldrb.u8 q1, [r3], #16
    vmlava.s8 r0, q0, q1
    vldrb.u8 q1, [r5], #16
    vmlava.s8 r4, q0, q1
    vldrb.u8 q1, [r8], #16
    vmlava.s8 r2, q0, q1
    vldrb.u8 q1, [r9], #16
    vmlava.s8 r6, q0, q1
    letp lr, 2b
    vmov q0[2], q0[0], r0, r2
    vmov q0[3], q0[1], r4, r6
    ldr r3, [sp, #16]
    vqrdmulh.s32 q0, q0, q3
    vshr.s32 q1, q0, #31
    add r1, r1, r3
    vqadd.s32 q0, q0, q1
    vrshl.s32 q0, q0, q4
    vadd.i32 q0, q0, q5
    vmax.s32 q0, q0, q6
    vmin.s32 q0, q0, q7
    vstrb.32 q0, [r7]
    add r7, r7, r12
    subs r10, r10, #1
    bne 1b
    add sp, sp, #20
    vpop {d8-d15}
    pop {r4-r11, pc}
    smg_end smg_multiply_pixels
