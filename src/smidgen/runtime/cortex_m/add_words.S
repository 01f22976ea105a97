/* Sums of int8 tensors, four elements at a time: see smg_sums in add.c. */
#include "assembly.inc"
#include "scaling.inc"

/* r0-r2 walk, r4-r11 are the last eight fields, y_end is in the frame. The scaled element with its 20 bits is never so
 * large that rounding could leave the 32. */
    .macro smg_one by
    sxtab lr, r5, r12, ror #\by
    lsl lr, #20
    smmlar lr, lr, r6, lr
    add lr, lr, lr, asr #31
    add lr, r7
    asr lr, r8
    sxtab r0, r4, r3, ror #\by
    add lr, lr, r0, lsl #19
    smg_far lr, r9, r10, r11
    strb lr, [r2], #1
    .endm

    .global smg_add_words
    smg_function smg_add_words
    push {r4-r11, lr}
    ldmia r0, {r0-r11}
    push {r0, r3}
0:
    ldr r0, [sp]
    ldr r12, [r1], #4
    ldr r3, [r0], #4
    str r0, [sp]
    smg_one 0
    smg_one 8
    smg_one 16
    smg_one 24
    ldr r0, [sp, #4]
    cmp r2, r0
    bne 0b
    add sp, #8
    pop {r4-r11, pc}
    smg_end smg_add_words
