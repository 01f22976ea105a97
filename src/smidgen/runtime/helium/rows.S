/* Four rows of weights multiplied with one window, sixteen products at a time: see smg_dot_rows in fours.h. */
#include "assembly.inc"

/* r1, r5, r7 and r9 are the rows, r11 the window, r12 its elements, which the rows lie apart; r0, r2, r4, r6 the sums. */
    .macro smg_begin_rows
    ldr r1, [sp]
    add r5, r1, r12
    add r7, r5, r12
    add r9, r7, r12
    movs r0, #0
    movs r2, #0
    movs r4, #0
    movs r6, #0
    dlstp.8 lr, r12
    .endm

/* The rows' own sums, times the zero point's negative, come on top of the products. */
    .global smg_dot_rows
    smg_function smg_dot_rows
    push {r1, r4-r11, lr}
    mov r11, r0
    lsl r12, r2, #2
    sxth r3, r3
    smg_begin_rows
1:
    vldrb.u8 q1, [r1], #16
    vaddva.s8 r0, q1
    vldrb.u8 q1, [r5], #16
    vaddva.s8 r2, q1
    vldrb.u8 q1, [r7], #16
    vaddva.s8 r4, q1
    vldrb.u8 q1, [r9], #16
    vaddva.s8 r6, q1
    letp lr, 1b
    vmov q2[2], q2[0], r0, r4
    vmov q2[3], q2[1], r2, r6
    vmul.i32 q2, q2, r3
    smg_begin_rows
2:
    vldrb.u8 q0, [r11], #16
    vldrb.u8 q1, [r1], #16
    vmlava.s8 r0, q0, q1
    vldrb.u8 q1, [r5], #16
    vmlava.s8 r2, q0, q1
    vldrb.u8 q1, [r7], #16
    vmlava.s8 r4, q0, q1
    vldrb.u8 q1, [r9], #16
    vmlava.s8 r6, q0, q1
    letp lr, 2b
    vmov q0[2], q0[0], r0, r4
    vmov q0[3], q0[1], r2, r6
    vadd.i32 q0, q0, q2
    ldr r0, [sp, #40]
    vstrw.32 q0, [r0]
    pop {r1, r4-r11, pc}
    smg_end smg_dot_rows
