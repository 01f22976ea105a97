/* Rows of weights multiplied with one window: see smg_rows and smg_dot_rows in fours.h. */
#include "assembly.inc"
#include "fours.inc"

/* Four elements of four rows: r0 walks over the window, r1 over the first row and r3 over the fourth, r2 is from row to
 * row, lr the zero point; r8-r11 are the sums. */
    .macro smg_row sum
    sxtb16 r7, r6, ror #8
    sxtb16 r6, r6
    smlad \sum, r5, r7, \sum
    smlad \sum, r4, r6, \sum
    .endm

    .macro smg_four_rows
    ldr r4, [r0], #4
    ldr r6, [r1, r2]
    sxtab16 r5, lr, r4, ror #8
    sxtab16 r4, lr, r4
    smg_row r9
    ldr r6, [r1, r2, lsl #1]
    smg_row r10
    ldr r6, [r3], #4
    smg_row r11
    ldr r6, [r1], #4
    smg_row r8
    .endm

/* All words of four rows, r12 of them. */
    .macro smg_all_words
    add r3, r2, r2, lsl #1
    add r3, r1
    lsrs r12, #1
    bcc 71f
    smg_four_rows
71:
    beq 73f
72:
    smg_four_rows
    smg_four_rows
    subs r12, #1
    bne 72b
73:
    .endm

    .global smg_rows
    smg_function smg_rows
    push {r4-r11, lr}
    sub sp, #4
    str r0, [sp]
    mov r12, r0
0: /* a block */
    ldr r6, [r12, #44]
    ldrd r0, r1, [r12]
    ldrd r2, lr, [r12, #12]
    ldmia r6!, {r8-r11}
    add r3, r1, r2, lsl #2
    str r3, [r12, #4]
    str r6, [r12, #44]
    ldr r12, [r12, #20]
    smg_all_words
    ldr r12, [sp]
    smg_finish_block 0b, 8f
8:
    ldr r0, [r12, #36]
    add sp, #4
    pop {r4-r11, pc}
    smg_end smg_rows

    .global smg_dot_rows
    smg_function smg_dot_rows
    push {r4-r11, lr}
    mov r12, r2
    lsl r2, #2
    mov lr, r3
    movs r8, #0
    movs r9, #0
    movs r10, #0
    movs r11, #0
    smg_all_words
    ldr r0, [sp, #36]
    stmia r0, {r8-r11}
    pop {r4-r11, pc}
    smg_end smg_dot_rows
