/* Products of four columns of weights with pixels, sixteen at a time: see dot_pixels.h. */
#include "assembly.inc"

/* r0, r4, r2, r6: sums of the columns; r3, r5, r8, r9: their weights. On the stack: where they begin, and how far it is
 * from behind a pixel to the next. A loop in predicated bytes takes what is left of a pixel, too. */
    .global smg_dot_pixels
    smg_function smg_dot_pixels
    push {r4-r11, lr}
    sub sp, sp, #20
    ldm r0, {r3, r11}
    ldrd r10, r1, [r0, #8]
    ldrd r7, r12, [r0, #16]
    add r5, r3, r11
    add r8, r5, r11
    add r9, r8, r11
    stm sp, {r3, r5, r8, r9}
    rsb r2, r11, #0
    and r2, r2, #15
    str r2, [sp, #16]
1:
    ldm sp, {r3, r5, r8, r9}
    movs r0, #0
    movs r2, #0
    movs r4, #0
    movs r6, #0
    dlstp.8 lr, r11
2:
    vldrb.u8 q0, [r1], #16
    vldrb.u8 q1, [r3], #16
    vmlava.s8 r0, q0, q1
    vldrb.u8 q1, [r5], #16
    vmlava.s8 r2, q0, q1
    vldrb.u8 q1, [r8], #16
    vmlava.s8 r4, q0, q1
    vldrb.u8 q1, [r9], #16
    vmlava.s8 r6, q0, q1
    letp lr, 2b
    stm r7, {r0, r2, r4, r6}
    ldr r0, [sp, #16]
    add r7, r7, r12
    subs r1, r1, r0
    subs r10, r10, #1
    bne 1b
    add sp, sp, #20
    pop {r4-r11, pc}
    smg_end smg_dot_pixels
