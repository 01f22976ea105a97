/* Products of four columns of weights with pixels, two at a time: see dot_pixels.h. */
#include "assembly.inc"
#include "two_pixels.inc"

    .equ W, 0
    .equ SIXTEENS, 4
    .equ K, 8
    .equ LEFT, 12
    .equ SUMS_ON, 16
    .equ FRAME, 24

    .global smg_dot_pixels
    smg_function smg_dot_pixels
    push {r4-r11, lr}
    sub sp, sp, #FRAME
    ldrd r5, r6, [r0]
    ldrd r4, r1, [r0, #8]
    ldrd r11, r2, [r0, #16]
    subs r7, r6, #1
    and r9, r7, #15
    lsrs r7, r7, #4
    adds r9, r9, #1
    strd r5, r7, [sp, #W]
    strd r6, r4, [sp, #K]
    str r2, [sp, #SUMS_ON]
1:
    cmp r4, #1
    ite gt
    addgt r3, r1, r6
    movle r3, r1
    smg_two_pixels
    stm r11, {r0, r2, r4, r6}
    ldrd r6, r4, [sp, #K]
    ldr r0, [sp, #SUMS_ON]
    subs r4, r4, #1
    beq 2f
    add r11, r11, r0
    stm r11, {r8, r10, r12, lr}
    add r11, r11, r0
    mov r1, r3
    ldrd r5, r7, [sp, #W]
    subs r4, r4, #1
    str r4, [sp, #LEFT]
    bne 1b
2:
    add sp, sp, #FRAME
    pop {r4-r11, pc}
    smg_end smg_dot_pixels
