/* Filters over maps of four by four: see smg_run_squares in squares.h. */
#include "assembly.inc"
#include "scaling.inc"

/* The frame:
 *     0 four biases                28 twice multiplier, inverse, zero    48 rows, the job
 *    16 y, y_c, three times y_c    40 y_end, what becomes of sums        56 the filter's row, bytes of an output
 * lr points to the words, r8-r11 are the sums. */
    .macro smg_add sum, x, w
    smlad \sum, \x, \w, \sum
    .endm

    .macro smg_three
    smg_add r8, r4, r1
    smg_add r8, r5, r2
    smg_add r9, r4, r0
    smg_add r9, r5, r1
    smg_add r9, r6, r2
    smg_add r10, r5, r0
    smg_add r10, r6, r1
    smg_add r10, r7, r2
    smg_add r11, r6, r0
    smg_add r11, r7, r1
    .endm

    .macro smg_five
    smg_add r8, r4, r2
    smg_add r8, r5, r3
    smg_add r8, r6, r12
    smg_add r9, r4, r1
    smg_add r9, r5, r2
    smg_add r9, r6, r3
    smg_add r9, r7, r12
    smg_add r10, r4, r0
    smg_add r10, r5, r1
    smg_add r10, r6, r2
    smg_add r10, r7, r3
    smg_add r11, r5, r0
    smg_add r11, r6, r1
    smg_add r11, r7, r2
    .endm

/* Scaling as in scaling.inc, but for the shift: a product with a negative inverse, which SMMLS takes off. */
    .macro smg_any sum, m, h, c
    smmlar \sum, \sum, \m, \sum
    add \sum, \sum, \sum, asr #31
    smmls \sum, \sum, \h, \c
    ssat \sum, #8, \sum, asr #1
    .endm

    .macro smg_any_floor sum, m, h, c
    smmlar \sum, \sum, \m, \sum
    smmls \sum, \sum, \h, \c
    ssat \sum, #8, \sum, asr #1
    .endm

    .macro smg_outputs way
    add r0, sp, #16
    ldmia r0, {r0-r6}
    \way r8, r3, r4, r5
    strb r8, [r0]
    \way r9, r3, r4, r5
    strb r9, [r0, r1]
    \way r10, r3, r4, r5
    strb r10, [r0, r1, lsl #1]
    \way r11, r3, r4, r5
    strb r11, [r0, r2]
    .endm

    .macro smg_next_row
    add r0, r0, r1, lsl #2
    str r0, [sp, #16]
    cmp r0, r6
    beq 9f
    ldr pc, [sp, #48]
    .endm

    .global smg_run_squares
    smg_function smg_run_squares
    push {r4-r11, lr}
    sub sp, #64
    ldrd r1, r2, [r0, #28] /* y_c, zero */
    ldrd r3, r4, [r0, #36] /* wide, bytes */
    str r1, [sp, #20]
    add r1, r1, r1, lsl #1
    str r1, [sp, #24]
    str r2, [sp, #36]
    adr r5, 5f
    cmn r2, #255
    it eq
    adreq r5, 6f
    cmp r4, #4
    it eq
    adreq r5, 7f
    orr r5, #1
    str r5, [sp, #44]
    adr r5, 3f
    cmp r3, #0
    it ne
    adrne r5, 4f
    orr r5, #1
    strd r5, r0, [sp, #48]
    str r4, [sp, #60]
0: /* a channel */
    ldr r7, [sp, #52]
    ldr r6, [sp, #60]
    ldmia r7, {r0-r5}
    mov lr, r0
    add r0, r1
    ldr r8, [r2], #4
    ldr r9, [r3], #4
    ldrsb r10, [r4], #1
    str r5, [sp, #16]
    ldr r11, [sp, #20]
    add r11, r5, r11, lsl #4
    str r11, [sp, #40]
    add r5, r6
    stmia r7, {r0-r5}
    strd r8, r8, [sp]
    strd r8, r8, [sp, #8]
    lsl r9, #1
    add r10, #33
    mvn r1, #0
    lsl r1, r10
    strd r9, r1, [sp, #28]
    ldr r0, [r7, #36]
    add r1, lr, #68 /* the filter's third pairs of 3x3; of 5x5 the fourth */
    cmp r0, #0
    it ne
    addne r1, #24
    str r1, [sp, #56]
    ldr pc, [sp, #48]
    .balign 4
3:
    ldr r12, [sp, #56]
    ldmia sp, {r8-r11}
    ldmia lr, {r4-r7}
    ldmia r12, {r0-r2}
    smg_three
    add r3, r12, #24
    sub r12, #12
    str r12, [sp, #56]
    ldmia r3, {r0-r2}
    add r7, lr, #16
    ldmia r7, {r4-r7}
    smg_three
    ldr pc, [sp, #44]
    .balign 4
4:
    ldr r12, [sp, #56]
    ldmia sp, {r8-r11}
    ldmia lr, {r4-r7}
    sub r0, r12, #20
    str r0, [sp, #56]
    ldmia r12, {r0-r3, r12}
    smg_five
    ldr r12, [sp, #56]
    add r7, lr, #16
    add r12, #60
    ldmia r7, {r4-r7}
    ldmia r12, {r0-r3, r12}
    smg_five
    ldr pc, [sp, #44]
    .balign 4
5:
    smg_outputs smg_any
    smg_next_row
    .balign 4
6:
    smg_outputs smg_any_floor
    smg_next_row
    .balign 4
7:
    ldrd r0, r1, [sp, #16]
    ldr r2, [sp, #24]
    ldr r6, [sp, #40]
    str r8, [r0]
    str r9, [r0, r1]
    str r10, [r0, r1, lsl #1]
    str r11, [r0, r2]
    smg_next_row
9:
    ldr r7, [sp, #52]
    ldr r1, [r7, #24]
    subs r1, #1
    str r1, [r7, #24]
    bne 0b
    add sp, #64
    pop {r4-r11, pc}
    smg_end smg_run_squares
