/* Two products by one multiplication: see pairs.h. In Thumb's first instruction set only the lower registers multiply; the
 * upper ones are added to, and keep what a loop is about. */
#if defined(__thumb__)
#include "thumb.inc"

#if defined(__ARM_ARCH_6M__)

/* r0 walks over the weights until lr, r1 over the gradients; r12 is the sum, r8 is SMG_HALF. */
    .macro smg_begin_dot
    push {r4-r7, lr}
    mov r4, r8
    push {r4}
    mov lr, r2
    movs r2, #1
    lsls r2, #15
    mov r8, r2
    movs r2, #0
    mov r12, r2
    .endm

    .macro smg_end_dot
    mov r0, r12
    pop {r4}
    mov r8, r4
    pop {r4-r7, pc}
    .endm

/* The upper half of a word, to the sum. */
    .macro smg_fold word
    add \word, r8
    asrs \word, #16
    add r12, \word
    .endm

    .global smg_dot_few
    smg_function smg_dot_few
    smg_begin_dot
1:
    ldmia r0!, {r2-r4}
    ldmia r1!, {r5-r7}
    muls r2, r5
    muls r3, r6
    muls r4, r7
    adds r2, r3
    adds r2, r4
    ldmia r0!, {r3}
    ldmia r1!, {r5}
    muls r3, r5
    adds r2, r3
    smg_fold r2
    cmp r0, lr
    bne 1b
    smg_end_dot
    smg_end smg_dot_few

    .global smg_dot_any
    smg_function smg_dot_any
    smg_begin_dot
1:
    ldmia r0!, {r2-r4}
    ldmia r1!, {r5-r7}
    muls r2, r5
    muls r3, r6
    muls r4, r7
    smg_fold r2
    smg_fold r3
    smg_fold r4
    ldmia r0!, {r3}
    ldmia r1!, {r5}
    muls r3, r5
    smg_fold r3
    cmp r0, lr
    bne 1b
    smg_end_dot
    smg_end smg_dot_any

/* One or two words of a row, its gradients at `at` bytes from r0 on, to r3. */
    .macro smg_row_part words, at
    ldr r4, [r0, #\at]
    .if \words > 1
    ldr r5, [r0, #\at + 8]
    ldmia r1!, {r6, r7}
    muls r5, r7
    adds r3, r5
    .else
    ldmia r1!, {r6}
    .endif
    muls r4, r6
    adds r3, r4
    .endm

/* So many words of a row, to r3: r0 are its gradients, r1 walks over the weights. */
    .macro smg_row_words words
    smg_row_part \words, 0
    .if \words > 2
    smg_row_part \words - 2, 16
    .endif
    .endm

/* All r2 rows: from one to the next go lr and r12. */
    .macro smg_all_rows words
7:
    smg_row_words \words
    add r0, lr
    add r1, r12
    subs r2, #1
    bne 7b
    asrs r0, r3, #16
    pop {r4-r7, pc}
    .endm

    .global smg_rows_few
    smg_function smg_rows_few
    push {r4-r7, lr}
    ldmia r3!, {r4-r6}
    lsls r4, #2
    lsls r5, #2
    mov lr, r4
    mov r12, r5
    movs r3, #1
    lsls r3, #15
    cmp r6, #2
    beq 2f
    bhi 3f
    smg_all_rows 1
2:
    smg_all_rows 2
3:
    cmp r6, #3
    bne 4f
    smg_all_rows 3
4:
    smg_all_rows 4
    smg_end smg_rows_few

/* Two sums, that in the lower half of a word and that in its upper half, to where r5 points. */
    .macro smg_add_halves word, low, high
    mov r1, \word
    sxth r2, r1
    subs r1, r2
    asrs r1, #16
    ldr r3, [r5, #\low]
    adds r3, r2
    str r3, [r5, #\low]
    ldr r3, [r5, #\high]
    adds r3, r1
    str r3, [r5, #\high]
    .endm

/* Two bytes of a word, raised and scaled, to a sum. */
    .macro smg_scale bytes, sum
    ands \bytes, r6
    muls \bytes, r2
    add \sum, \bytes
    .endm

/* r0 walks over the rows until lr, r12 is the channel; r8-r11 are the sums, r6 and r7 what parts and raises bytes. On
 * the stack lie where sums go, their end, the first row and, above what is saved, what sums begin with. */
    .global smg_add_words
    smg_function smg_add_words
    smg_save_all
    mov lr, r3
    movs r4, #0
    mov r12, r4
    push {r0-r2}
    ldr r6, 3f
    ldr r7, 4f
1:
    ldr r0, [sp, #8]
    ldr r1, [sp, #48]
    mov r8, r1
    mov r9, r1
    mov r10, r1
    mov r11, r1
2:
    ldmia r0!, {r1, r2}
    add r1, r12
    ldmia r1!, {r3, r4}
    eors r3, r7
    eors r4, r7
    movs r5, r3
    smg_scale r5, r8
    lsrs r3, #8
    smg_scale r3, r9
    movs r5, r4
    smg_scale r5, r10
    lsrs r4, #8
    smg_scale r4, r11
    cmp r0, lr
    bne 2b
    ldr r5, [sp]
    smg_add_halves r8, 0, 8
    smg_add_halves r9, 4, 12
    smg_add_halves r10, 16, 24
    smg_add_halves r11, 20, 28
    adds r5, #32
    str r5, [sp]
    movs r1, #8
    add r12, r1
    ldr r1, [sp, #4]
    cmp r5, r1
    bne 1b
    add sp, #12
    smg_restore_all
    .balign 4
3:
    .word 0x00FF00FF
4:
    .word 0x80808080
    smg_end smg_add_words
#else
/* r0 walks over the weights until r2, r1 over the gradients; r12 is the sum, lr is SMG_HALF. */
    .macro smg_dot each
    push {r4-r10, lr}
    mov lr, #0x8000
    mov r12, #0
1:
    ldmia r0!, {r3-r6}
    ldmia r1!, {r7-r10}
    mla r3, r3, r7, lr
    .if \each
    add r12, r12, r3, asr #16
    mov r3, lr
    .endif
    mla r3, r4, r8, r3
    .if \each
    add r12, r12, r3, asr #16
    mov r3, lr
    .endif
    mla r3, r5, r9, r3
    .if \each
    add r12, r12, r3, asr #16
    mov r3, lr
    .endif
    mla r3, r6, r10, r3
    add r12, r12, r3, asr #16
    cmp r0, r2
    bne 1b
    mov r0, r12
    pop {r4-r10, pc}
    .endm

    .global smg_dot_few
    smg_function smg_dot_few
    smg_dot 0
    smg_end smg_dot_few

    .global smg_dot_any
    smg_function smg_dot_any
    smg_dot 1
    smg_end smg_dot_any
#endif
#endif
