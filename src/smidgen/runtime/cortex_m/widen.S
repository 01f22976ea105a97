/* Pixels widened to halfwords, and windows copied: see multiply.h. */
#include "assembly.inc"

    .macro smg_widen_word
    ldr r7, [r0, r1]
    ldr r5, [r0], #4
    sxtab16 r4, r3, r5
    sxtab16 r5, r3, r5, ror #8
    sxtab16 r6, r3, r7
    sxtab16 r7, r3, r7, ror #8
    stmia r12!, {r4-r7}
    .endm

/* From the stack: where to, how far it is from tile to tile, fours of pixels; r8 and r9 are where a tile begins. */
    .global smg_widen_pixels
    smg_function smg_widen_pixels
    push {r4-r11, lr}
    ldrd r12, lr, [sp, #36]
    ldr r10, [sp, #44]
    lsl r10, #1
    mov r8, r0
    mov r9, r12
0:
    lsrs r11, r2, #1
    mov r0, r8
    bcc 1f
    smg_widen_word
1:
    beq 3f
2:
    smg_widen_word
    smg_widen_word
    subs r11, #1
    bne 2b
3:
    add r8, r8, r1, lsl #1
    add r9, lr
    mov r12, r9
    subs r10, #1
    bne 0b
    pop {r4-r11, pc}
    smg_end smg_widen_pixels

/* Of each run first the last four bytes, so as to be done with whole words. */
    .global smg_copy_windows
    smg_function smg_copy_windows
    push {r4-r11, lr}
    ldmia r0, {r2-r8, lr}
    subs r5, #4
0:
    ldr r0, [r2], #4
    mov r9, r6
    mov r10, lr
    cmp r0, #0
    beq 3f
    add r0, r1
    sub r11, r5, #5
    cmp r11, #3
    it ls
    cmpls lr, #4
    beq 6f
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
6: /* three words */
    .rept 4
    ldr r10, [r0]
    ldr r11, [r0, #4]
    ldr r12, [r0, r5]
    add r0, r4
    str r10, [r9]
    str r11, [r9, #4]
    str r12, [r9, r5]
    add r9, r7
    .endr
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
