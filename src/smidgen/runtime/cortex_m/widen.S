/* Pixels and weights widened to halfwords, and windows copied: see multiply.h. */
#include "assembly.inc"
#include "widen.inc"

    .global smg_widen_pixels
    smg_function smg_widen_pixels
    push {r4-r11, lr}
    ldr r12, [sp, #36]
    add lr, r1, r1, lsl #1
    push {r0, r2} /* the tile's first pixel, and the count of words */
0:
    ldr r9, [r0, r1]
    ldr r10, [r0, r1, lsl #1]
    ldr r11, [r0, lr]
    ldr r8, [r0], #4
    sxtab16 r4, r3, r8
    sxtab16 r5, r3, r9
    sxtab16 r6, r3, r10
    sxtab16 r7, r3, r11
    stmia r12!, {r4-r7}
    sxtab16 r8, r3, r8, ror #8
    sxtab16 r9, r3, r9, ror #8
    sxtab16 r10, r3, r10, ror #8
    sxtab16 r11, r3, r11, ror #8
    stmia r12!, {r8-r11}
    subs r2, #1
    bne 0b
    ldr r4, [sp, #48]
    subs r4, #1
    str r4, [sp, #48]
    ldrd r0, r2, [sp]
    add r0, r0, r1, lsl #2
    str r0, [sp]
    bne 0b
    add sp, #8
    pop {r4-r11, pc}
    smg_end smg_widen_pixels

    .global smg_widen_pair
    smg_function smg_widen_pair
    push {r4-r7}
0:
    smg_widen_two
    subs r2, #1
    bne 0b
    pop {r4-r7}
    bx lr
    smg_end smg_widen_pair

/* Of each run first the last four bytes, so as to be done with whole words. */
    .global smg_copy_windows
    smg_function smg_copy_windows
    push {r4-r11, lr}
    ldmia r0, {r2-r8}
    subs r5, #4
0:
    ldr r0, [r2], #4
    mov r9, r6
    mov r10, #4
    cbz r0, 3f
    add r0, r1
1:
    mov r11, #0
    ldr r12, [r0, r5]
    str r12, [r9, r5]
2:
    ldr r12, [r0, r11]
    str r12, [r9, r11]
    add r11, #4
    cmp r11, r5
    blt 2b
    add r0, r4
    add r9, r7
    subs r10, #1
    bne 1b
    b 5f
3:
    mov r11, #0
    str r8, [r9, r5]
4:
    str r8, [r9, r11]
    add r11, #4
    cmp r11, r5
    blt 4b
    add r9, r7
    subs r10, #1
    bne 3b
5:
    add r6, r5
    adds r6, #4
    subs r3, #1
    bne 0b
    pop {r4-r11, pc}
    smg_end smg_copy_windows
