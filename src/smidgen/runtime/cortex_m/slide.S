/* Filters slid over strips: see smg_slide in slide.h. */
#include "assembly.inc"
#include "scaling.inc"
#include "taps.inc"

/* Whole windows, and what becomes of their sums. The frame:
 *     0 x, w, four biases      48 the window                 92 y_on, y_row
 *    24 y, y_c                 52 its end                   100 smg_slides, up to `other`
 *    32 twice multiplier, h    56 down, last, across        152 the near end
 *    40 zero                   68 rows to come, the row     156 multiplier, shift, narrow
 *    44 y_end                  76 stride, other             168 share, channels done, bytes of an output */
    .macro smg_move by
    ldr r2, [sp, #\by]
    add r0, r2
    .endm

    .macro smg_window strips, taps
    .rept \strips - 2
    \taps
    smg_move 56
    .endr
    \taps
    smg_move 60
    \taps
    ldr pc, [sp, #52]
    .endm

    .macro smg_window_halves strips, even, odd
    .rept \strips - 2
    \even
    smg_move 64
    \odd
    smg_move 56
    .endr
    \even
    smg_move 64
    \odd
    smg_move 60
    \even
    smg_move 64
    \odd
    ldr pc, [sp, #52]
    .endm

    .macro smg_outputs way
    add r1, sp, #24
    ldmia r1, {r1-r6}
    \way r8, r3, r4, r5
    strb r8, [r1]
    \way r9, r3, r4, r5
    strb r9, [r1, r2]
    \way r10, r3, r4, r5
    strb r10, [r1, r2, lsl #1]
    add r8, r2, r2, lsl #1
    \way r11, r3, r4, r5
    strb r11, [r1, r8]
    add r1, r1, r2, lsl #2
    str r1, [sp, #24]
    cmp r1, r6
    bne 0b
    .endm

    .global smg_slide
    smg_function smg_slide
    push {r4-r11, lr}
    sub sp, #184
    add r12, sp, #100
    ldmia r0!, {r1-r11, lr}
    stmia r12!, {r1-r11, lr}
    ldmia r0!, {r1-r8}
    adr r9, 30f
    ldr r4, [r9, r4, lsl #2]
    add r4, r9
    orr r4, #1
    str r1, [r12]
    str r2, [sp, #28]
    str r3, [sp, #40]
    adr r9, 1f
    cmn r3, #255
    it eq
    adreq r9, 7f
    str r9, [sp, #152]
    str r4, [sp, #48]
    str r5, [sp, #56]
    str r6, [sp, #64]
    strd r7, r8, [sp, #92]
    ldmia r0, {r1-r6}
    strd r1, r2, [sp, #156]
    strd r3, r5, [sp, #164]
    str r4, [sp, #60]
    movs r1, #0
    strd r1, r6, [sp, #172]
5: /* a channel */
    add r0, sp, #100
    ldmia r0, {r1-r9}
    ldr r0, [r1], #4
    str r1, [sp, #100]
    strd r0, r0, [sp, #8]
    strd r0, r0, [sp, #16]
    ldr r1, [sp, #156]
    ldrd r12, lr, [sp, #160]
    ldr r10, [r1], #4
    cmp lr, #0
    ite eq
    ldreq r11, [r12], #4
    ldrsbne r11, [r12], #1
    strd r1, r12, [sp, #156]
    lsl r10, #1
    add r12, r11, #17
    cmp r12, #14
    itttt ls
    movls r11, #1
    lslls r11, r12
    ldrls r0, [sp, #152]
    bls 6f
    mvn r11, r11
    adr r0, 2f
6:
    ldr r12, [sp, #176]
    strd r10, r11, [sp, #32]
    cmp r12, #4
    it eq
    adreq r0, 8f
    orr r0, #1
    str r0, [sp, #52]
    strd r3, r4, [sp]
    str r3, [sp, #72]
    add r3, r5
    add r4, r6
    strd r3, r4, [sp, #108]
    str r7, [sp, #24]
    add r8, r7
    str r8, [sp, #44]
    add r7, r12
    str r7, [sp, #124]
    str r9, [sp, #68]
    add r0, sp, #136
    ldmia r0, {r0-r3}
    strd r0, r1, [sp, #76]
    strd r2, r3, [sp, #84]
0: /* four outputs */
    ldmia sp, {r0, r1, r8-r11}
    add r2, r0, #16
    str r2, [sp]
    ldr pc, [sp, #48]
1:
    smg_outputs smg_near
    b 3f
7:
    smg_outputs smg_floor
    b 3f
2:
    smg_outputs smg_far
    b 3f
    .balign 4
8: /* the sums themselves */
    ldrd r1, r2, [sp, #24]
    str r8, [r1]
    str r9, [r1, r2]
    str r10, [r1, r2, lsl #1]
    add r8, r2, r2, lsl #1
    str r11, [r1, r8]
    add r1, r1, r2, lsl #2
    ldr r3, [sp, #44]
    str r1, [sp, #24]
    cmp r1, r3
    bne 0b
3: /* the next row */
    ldr r2, [sp, #68]
    subs r2, #1
    beq 4f
    str r2, [sp, #68]
    add r0, sp, #72
    ldmia r0, {r0, r4-r9}
    add r0, r4
    ldr r11, [sp, #4]
    str r0, [sp, #72]
    add r11, r5
    strd r6, r7, [sp, #76]
    strd r4, r5, [sp, #84]
    strd r0, r11, [sp]
    ldr r3, [sp, #44]
    add r1, r8
    add r3, r9
    str r1, [sp, #24]
    str r3, [sp, #44]
    b 0b
4:
    ldrd r0, r1, [sp, #168]
    ldr r2, [sp, #104]
    ldr r3, [sp, #60]
    adds r1, #1
    str r1, [sp, #172]
    cmp r1, #2
    it eq
    subeq r3, r0
    str r3, [sp, #60]
    cmp r1, r2
    bne 5b
    add sp, #184
    pop {r4-r11, pc}
    .balign 4
30:
    .word 31f - 30b, 32f - 30b, 33f - 30b, 34f - 30b, 35f - 30b, 36f - 30b
31:
    smg_window 2, smg_taps3
32:
    smg_window_halves 2, smg_taps2, smg_taps1
33:
    smg_window 3, smg_taps5
34:
    smg_window_halves 3, smg_taps3, smg_taps2
35:
    smg_window 4, smg_taps7
36:
    smg_window_halves 4, smg_taps4, smg_taps3
    smg_end smg_slide
