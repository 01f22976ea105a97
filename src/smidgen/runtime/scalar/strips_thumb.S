/* Bytes that become words: see strips.h. */
#if defined(__thumb__)
#include "thumb.inc"

/* r0 walks over the strips; r1 is one's first byte, r2 from there to the next, r3 the step; r12 is the channel and lr
 * the end. */
    .global smg_pick_thumb
    smg_function smg_pick_thumb
    smg_save_all
    mov lr, r1
    mov r12, r2
    mov r8, r0
0:
    mov r0, r8
    ldmia r0!, {r1, r4, r5}
    mov r8, r0
    add r1, r12
    mov r0, r4
    movs r2, #0
    subs r5, #4
    mov r9, r5
    bmi 2f
1: /* four at a time */
    ldrsb r4, [r1, r2]
    adds r2, r3
    ldrsb r5, [r1, r2]
    adds r2, r3
    ldrsb r6, [r1, r2]
    adds r2, r3
    ldrsb r7, [r1, r2]
    adds r2, r3
    stmia r0!, {r4-r7}
    mov r5, r9
    subs r5, #4
    mov r9, r5
    bpl 1b
2:
    adds r5, #4
    beq 4f
3:
    ldrsb r4, [r1, r2]
    adds r2, r3
    stmia r0!, {r4}
    subs r5, #1
    bne 3b
4:
    cmp r8, lr
    bne 0b
    smg_restore_all
    smg_end smg_pick_thumb

    .global smg_widen_thumb
    smg_function smg_widen_thumb
    push {r4-r7, lr}
    adds r2, r1
1:
    ldmia r1!, {r7}
    sxtb r4, r7
    lsls r5, r7, #16
    asrs r5, #24
    lsls r6, r7, #8
    asrs r6, #24
    asrs r7, #24
    stmia r0!, {r4-r7}
    cmp r1, r2
    bne 1b
    pop {r4-r7, pc}
    smg_end smg_widen_thumb
#endif
