/* Tiles of packed halfwords multiplied: see smg_multiply_tiles in multiply.h. */
#include "assembly.inc"
#include "scaling.inc"
#include "widen.inc"

/* The widened weights of a pair are read as a stream. Behind the first steps, as many as are left over, it stands where
 * to go on: to the start of the loop of eight steps, again and again, at last to what becomes of the sums; for that there
 * follows what the frame has from 24 on. The frame:
 *    0 w, biases of both channels, twice each    60 x                             100 keep
 *   20 where a tile begins                       64 from, apart, words, tail      104 where to enter the loop, steps
 *   24 y, y_c, x_end, zero                       80 bias, multiplier, shift           until it starts again
 *   40 twice multiplier and h of both            92 pairs to come                 112 where pairs are told,
 *   56 sums                                      96 what becomes of sums              bytes of a pair's outputs,
 *                                                                                     whether there are other than words
 * r0 and r1 walk over pixels and weights; r9 and r10 are the first channel's sums of two pixels, r11 and r12 the other's. */
    .macro smg_step
    ldmia r1!, {r2-r5}
    ldmia r0!, {r6-r8, lr}
    smlad r9, r2, r6, r9
    smlad r10, r2, r8, r10
    smlad r11, r4, r6, r11
    smlad r12, r4, r8, r12
    smlad r9, r3, r7, r9
    smlad r10, r3, lr, r10
    smlad r11, r5, r7, r11
    smlad r12, r5, lr, r12
    .endm

    .macro smg_finish way
    ldmia r1, {r2-r8, lr}
    \way r9, r6, r7, r5
    \way r11, r8, lr, r5
    bfi r9, r11, #8, #8
    strh r9, [r2]
    \way r10, r6, r7, r5
    \way r12, r8, lr, r5
    bfi r10, r12, #8, #8
    strh r10, [r2, r3]
    add r2, r2, r3, lsl #1
    str r2, [r1]
    cmp r0, r4
    bne 0b
    .endm

    .global smg_multiply_tiles
    smg_function smg_multiply_tiles
    push {r4-r11, lr}
    sub sp, #124
    add r1, r0, #60
    str r1, [sp, #112]
    ldmia r0!, {r1-r8} /* w, x, x_end, sums, keep, y, y_c, zero */
    str r1, [sp]
    strd r6, r7, [sp, #24]
    strd r3, r8, [sp, #32]
    strd r4, r2, [sp, #56]
    mov r10, r4
    adr r9, 11f
    cmn r8, #255
    it eq
    adreq r9, 12f
    cmp r5, #0
    it gt
    adrgt r9, 14f
    movs r1, #2
    cmp r5, #2
    itt eq
    adreq r9, 15f
    moveq r1, #8
    str r1, [sp, #116]
    orr r9, #1
    strd r9, r5, [sp, #96]
    ldmia r0, {r1-r8} /* from, apart, words, tail, bias, multiplier, shift, pairs */
    add r9, sp, #64
    stmia r9, {r1-r8}
    orrs r1, r2
    orrs r1, r4
    lsls r1, #30
    str r1, [sp, #120]
    cmp r4, #0
    it ne
    addne r3, #1
    subs r3, #1
    and r3, #7
    adr r1, 20f
    ldr r2, [r1, r3, lsl #2]
    adds r2, r1
    orr r2, #1
    adds r3, #1
    strd r2, r3, [sp, #104]
    cmp r10, #0
    itt ne
    adrne r2, 4f
    orrne r2, #1
    str r2, [sp, #20]
5: /* a pair, if its multipliers are of a half and more */
    ldrd r8, r10, [sp, #80]
    ldr r12, [sp, #88]
    ldmia r8!, {r0, r1}
    ldmia r10!, {r4, r5}
    ldrsb r6, [r12], #1
    ldrsb r7, [r12], #1
    strd r8, r10, [sp, #80]
    str r12, [sp, #88]
    strd r0, r0, [sp, #4]
    strd r1, r1, [sp, #12]
    and r8, r4, r5
    and r9, r6, r7
    ldrd r12, r2, [sp, #96]
    lsls r4, #1
    lsls r5, #1
    ands r8, r9, r8, lsl #1
    bpl 30f
    cmp r2, #0
    blt 40f
31:
    add r8, r6, #17
    add r9, r7, #17
    cmp r8, #14
    it ls
    cmpls r9, #14
    ittt ls
    movls r6, #1
    lslls r7, r6, r9
    lslls r6, r8
    bls 18f
    mvns r6, r6
    mvns r7, r7
    cbnz r2, 18f
    adr r12, 13f
    orr r12, #1
18:
    strd r4, r6, [sp, #40]
    strd r5, r7, [sp, #48]
    add r0, sp, #64
    ldmia r0, {r0-r2}
    ldr r3, [sp]
    ldr r8, [sp, #108]
    add r9, r0, r1, lsl #1
    str r9, [sp, #64]
    ldr r4, [sp, #120]
    cbz r4, 6f
    b 7f
6: /* whole words, aligned: steps until the loop starts, then eight and eight */
    subs r2, r2, r8
    add r1, r0
    lsrs r8, #1
    bcc 34f
    ldr r7, [r1], #4
    ldr r6, [r0], #4
    smg_widen_pairs
34:
    beq 36f
35:
    smg_widen_four
    subs r8, #1
    bne 35b
36:
    cbnz r2, 38f
    b 17f
38:
    adr r8, 21f
    orr r8, #1
37:
    str r8, [r3], #4
    .rept 4
    smg_widen_four
    .endr
    subs r2, #8
    bne 37b
    b 17f
7: /* the words of r8 steps, if there are so many */
    cmp r8, r2
    it hi
    movhi r8, r2
    subs r2, r2, r8
    lsrs r8, #1
    bcc 8f
    smg_widen_two
8:
    beq 10f
9:
    smg_widen_two
    smg_widen_two
    subs r8, #1
    bne 9b
10:
    cbz r2, 33f
    adr r4, 21f
    orr r4, #1
    str r4, [r3], #4
    movs r8, #8
    b 7b
33:
    ldr r2, [sp, #76]
    cbz r2, 17f
    movs r6, #0
    movs r7, #0
16:
    subs r2, #1
    add r9, r0, r2
    ldrb r4, [r0, r2]
    ldrb r5, [r9, r1]
    orr r6, r4, r6, lsl #8
    orr r7, r5, r7, lsl #8
    bne 16b
    smg_widen_pairs
17:
    str r12, [r3], #4
    add r0, sp, #24
    ldmia r0, {r4-r11}
    stmia r3, {r4-r11}
    ldr r2, [sp, #116]
    ldr r0, [sp, #60]
    add r4, r2
    str r4, [sp, #24]
0: /* a tile */
    ldmia sp, {r1, r9-r12, pc}
    .balign 4
4: /* with sums to go on from */
    ldr r5, [sp, #56]
    ldmia r5!, {r9-r12}
    str r5, [sp, #56]
    ldr pc, [sp, #104]
    .balign 4
20:
    .word 28f - 20b, 27f - 20b, 26f - 20b, 25f - 20b, 24f - 20b, 23f - 20b, 22f - 20b, 21f - 20b
21:
    smg_step
22:
    smg_step
23:
    smg_step
24:
    smg_step
25:
    smg_step
26:
    smg_step
27:
    smg_step
28:
    smg_step
    ldr pc, [r1], #4
    .balign 4
11:
    smg_finish smg_near
    b 19f
    .balign 4
12:
    smg_finish smg_floor
    b 19f
    .balign 4
13:
    smg_finish smg_far
    b 19f
    .balign 4
41:
    smg_finish smg_raised
    b 19f
    .balign 4
14:
    ldr r4, [sp, #32]
    ldr r5, [sp, #56]
    stmdb r5, {r9-r12}
    cmp r0, r4
    bne 0b
    b 19f
    .balign 4
15:
    ldmia r1, {r2-r4}
    strd r9, r11, [r2]
    add r2, r3
    strd r10, r12, [r2]
    add r2, r3
    str r2, [r1]
    cmp r0, r4
    bne 0b
19:
    ldr r1, [sp, #92]
    subs r1, #1
    str r1, [sp, #92]
    bne 5b
    b 32f
40: /* of a pair that is raised: shifts of 4 to 10, and biases that leave room */
    add r8, r6, #10
    add r9, r7, #10
    cmp r8, #6
    it ls
    cmpls r9, #6
    bhi 43f
    ssat r10, #22, r0
    ssat r11, #22, r1
    cmp r10, r0
    it eq
    cmpeq r11, r1
    bne 43f
    movs r2, #1
    lsl r6, r2, r8
    lsl r7, r2, r9
    sub r6, #0x3fc00
    sub r7, #0x3fc00
    lsrs r4, #1
    lsrs r5, #1
    strd r4, r6, [sp, #40]
    strd r5, r7, [sp, #48]
    add r8, #2
    add r9, #2
    lsl r0, r8
    lsl r1, r9
    strd r0, r0, [sp, #4]
    strd r1, r1, [sp, #12]
    lsl r10, r2, r8
    lsl r11, r2, r9
    sub r10, #1
    sub r11, #1
    lsl r10, #16
    lsl r11, #16
    adr r12, 41b
    orr r12, #1
    add r0, sp, #64
    ldmia r0, {r0-r2}
    ldr r3, [sp]
    add r4, r0, r1, lsl #1
    str r4, [sp, #64]
42: /* what a lower half's sign leaves in the upper one is taken out */
    ldr r7, [r0, r1]
    ldr r6, [r0], #4
    sxtb16 r4, r6
    sxtb16 r5, r6, ror #8
    sxtb16 r6, r7
    sxtb16 r7, r7, ror #8
    lsl r4, r8
    lsl r5, r8
    lsl r6, r9
    lsl r7, r9
    bic r4, r10
    bic r5, r10
    bic r6, r11
    bic r7, r11
    stmia r3!, {r4-r7}
    subs r2, #1
    bne 42b
    b 17b
43:
    movs r2, #0
    b 31b
30: /* kept sums are scaled elsewhere */
    cmp r2, #0
    bgt 31b
32:
    ldr r1, [sp, #92]
    ldr r0, [sp, #112]
    str r1, [r0]
    add sp, #124
    pop {r4-r11, pc}
    smg_end smg_multiply_tiles
