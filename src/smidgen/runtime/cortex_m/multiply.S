/* Tiles of packed halfwords multiplied: see smg_multiply_tiles in multiply.h. */
#include "assembly.inc"
#include "scaling.inc"
#include "widen.inc"

/* The frame:
 *    0 w, eight biases           52 its end                      84 from, apart, words      108 narrow
 *   36 w_end, x_end, sums        56 y, y_c                       96 bias, multiplier        112 pairs to come
 *   48 where to enter the loop   64 twice multiplier, h, zero   104 shift                   116 x, y, tail, the near end
 *      of eight steps            76 the same of the next channel
 * r0 and r1 walk over pixels and weights, r6-r9 and r10-lr are the sums. */
    .macro smg_products pixels, p, q, r, s
    ldmia r0!, {r4, r5}
    smlad \p, r4, r2, \p
    smlad \q, r5, r2, \q
    smlad \r, r4, r3, \r
    smlad \s, r5, r3, \s
    .endm

    .macro smg_step
    .rept 2
    ldmia r1!, {r2, r3}
    smg_products 01, r6, r7, r10, r11
    smg_products 23, r8, r9, r12, lr
    .endr
    .endm

    .macro smg_finish way
    add r1, sp, #56
    ldmia r1, {r1-r5}
    \way r6, r3, r4, r5
    strb r6, [r1]
    \way r7, r3, r4, r5
    strb r7, [r1, r2]
    \way r8, r3, r4, r5
    strb r8, [r1, r2, lsl #1]
    add r6, r2, r2, lsl #1
    \way r9, r3, r4, r5
    strb r9, [r1, r6]
    ldrd r3, r4, [sp, #76]
    adds r1, #1
    \way r10, r3, r4, r5
    strb r10, [r1]
    \way r11, r3, r4, r5
    strb r11, [r1, r2]
    \way r12, r3, r4, r5
    strb r12, [r1, r2, lsl #1]
    \way lr, r3, r4, r5
    strb lr, [r1, r6]
    add r1, r1, r2, lsl #2
    subs r1, #1
    ldr r2, [sp, #40]
    str r1, [sp, #56]
    cmp r0, r2
    bne 0b
    .endm

    .global smg_multiply_tiles
    smg_function smg_multiply_tiles
    push {r4-r11, lr}
    sub sp, #132
    ldmia r0!, {r1-r10} /* w, w_end, x, x_end, sums, steps, keep, y, y_c, zero */
    str r1, [sp]
    str r2, [sp, #36]
    strd r4, r5, [sp, #40]
    str r7, [sp, #52]
    str r9, [sp, #60]
    str r10, [sp, #72]
    strd r3, r8, [sp, #116]
    adr r1, 1f
    cmn r10, #255
    it eq
    adreq r1, 17f
    str r1, [sp, #128]
    and r6, #7
    adr r2, 20f
    ldr r6, [r2, r6, lsl #2]
    add r2, r6
    orr r2, #1
    str r2, [sp, #48]
    add r12, sp, #84
    ldmia r0, {r1-r9}
    stmia r12!, {r1-r8}
    str r9, [sp, #124]
5: /* a pair */
    add r0, sp, #84
    ldmia r0, {r0-r2, r8, r10, r12}
    ldr r3, [sp]
    cmp r2, #0
    beq 7f
    add r9, r0, r1, lsl #1
    str r9, [sp, #84]
    lsrs r2, #1
    bcc 6f
    smg_widen_two
    beq 16f
6:
    smg_widen_two
    smg_widen_two
    subs r2, #1
    bne 6b
16:
    ldr r2, [sp, #124]
    cbz r2, 7f
    movs r6, #0
    movs r7, #0
15:
    subs r2, #1
    add r9, r0, r2
    ldrb r4, [r0, r2]
    ldrb r5, [r9, r1]
    orr r6, r4, r6, lsl #8
    orr r7, r5, r7, lsl #8
    bne 15b
    smg_widen_pairs
7:
    ldmia r8!, {r0, r1}
    ldmia r10!, {r4, r5}
    ldr r3, [sp, #108]
    strd r8, r10, [sp, #96]
    cbz r3, 8f
    ldrsb r6, [r12], #1
    ldrsb r7, [r12], #1
    b 9f
8:
    ldmia r12!, {r6, r7}
9:
    str r12, [sp, #104]
    strd r0, r0, [sp, #4]
    strd r0, r0, [sp, #12]
    strd r1, r1, [sp, #20]
    strd r1, r1, [sp, #28]
    lsl r4, #1
    lsl r5, #1
    add r8, r6, #17
    add r9, r7, #17
    cmp r8, #14
    it ls
    cmpls r9, #14
    itttt ls
    movls r6, #1
    lslls r7, r6, r9
    lslls r6, r8
    ldrls r12, [sp, #128]
    ittt hi
    mvnhi r6, r6
    mvnhi r7, r7
    adrhi r12, 2f
    strd r4, r6, [sp, #64]
    strd r5, r7, [sp, #76]
    ldr r5, [sp, #44]
    ldr r7, [sp, #52]
    ldrd r0, r1, [sp, #116]
    cmp r7, #1 /* keep; below, the address of another way */
    it eq
    adreq r12, 3f
    orr r12, #1
    str r12, [sp, #52]
    str r1, [sp, #56]
    adds r1, #2
    str r1, [sp, #120]
    cbnz r5, 4f
0:
    ldmia sp, {r1, r6-r12, lr}
    ldr pc, [sp, #48]
4:
    ldmia r5, {r6-r12, lr}
    ldr r1, [sp]
    ldr pc, [sp, #48]
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
    ldr r5, [sp, #36]
    cmp r1, r5
    bne 21b
    ldr pc, [sp, #52]
1:
    smg_finish smg_near
    b 10f
17:
    smg_finish smg_floor
    b 10f
2:
    smg_finish smg_far
    b 10f
3:
    ldr r5, [sp, #44]
    stmia r5!, {r6-r12, lr}
    ldr r2, [sp, #40]
    str r5, [sp, #44]
    cmp r0, r2
    bne 4b
    movs r1, #1
    str r1, [sp, #52]
10:
    ldr r1, [sp, #112]
    subs r1, #1
    str r1, [sp, #112]
    bne 5b
    add sp, #132
    pop {r4-r11, pc}
    .balign 4
20:
    .word 21b - 20b, 28b - 20b, 27b - 20b, 26b - 20b, 25b - 20b, 24b - 20b, 23b - 20b, 22b - 20b
    smg_end smg_multiply_tiles
