/* Sums become a gradient four at a time: see fours.h. */
#if defined(__ARM_ARCH_6M__)
#include "thumb.inc"

/* One sum at r0, scaled by the multiplier at `at` behind r6: r1 becomes smg_high_mul of both. */
    .macro smg_scale_sum at
    ldmia r0!, {r1}
    ldr r2, [r7]
    lsls r1, r2
    ldr r4, [r6, #\at]
    uxth r3, r4
    asrs r4, #16
    asrs r2, r1, #16
    uxth r1, r1
    movs r5, r1
    muls r5, r3
    lsrs r5, #16
    muls r3, r2
    adds r5, r3
    muls r1, r4
    uxth r3, r5
    adds r1, r3
    ldr r3, [r7, #16]
    adds r1, r3
    asrs r1, #15
    muls r2, r4
    asrs r5, #16
    adds r2, r5
    lsls r2, #1
    adds r1, r2
    .endm

/* r1, divided with the next random byte of r10, saturated, to byte `at` behind r8; its bits are added to r12. */
    .macro smg_divide at
    ldr r2, [r7, #4]
    asrs r1, r2
    mov r2, r10
    uxtb r3, r2
    lsrs r2, #8
    mov r10, r2
    ldr r2, [r7, #8]
    lsls r3, r2
    lsrs r3, #8
    adds r1, r3
    ldr r3, [r7, #12]
    adds r1, r3
    asrs r1, r2
    asrs r3, r1, #31
    movs r2, r1
    eors r2, r3
    mov r4, r12
    orrs r4, r2
    mov r12, r4
    cmp r2, #127
    blo 8f
    movs r1, #127
    eors r1, r3
    subs r1, r3
8:
    mov r2, r8
    strb r1, [r2, #\at]
    .endm

/* r0 walks over the sums, r6 over the multipliers, r8 over the gradient; r7 are the fours, r9 is the key of a word. */
    .global smg_round_fours
    smg_function smg_round_fours
    smg_save_all
    mov r7, r0
    mov r0, r1
    mov r6, r2
    mov r8, r3
    ldr r1, [r7, #40]
    mov r9, r1
    movs r1, #0
    mov r12, r1
1:
    mov r1, r9
    lsrs r2, r1, #16
    eors r1, r2
    ldr r2, [r7, #24]
    muls r1, r2
    lsrs r2, r1, #15
    eors r1, r2
    ldr r2, [r7, #28]
    muls r1, r2
    lsrs r2, r1, #16
    eors r1, r2
    mov r10, r1
    smg_scale_sum 0
    smg_divide 0
    smg_scale_sum 4
    smg_divide 1
    smg_scale_sum 8
    smg_divide 2
    smg_scale_sum 12
    smg_divide 3
    ldr r1, [r7, #20]
    add r9, r1
    movs r1, #4
    add r8, r1
    ldr r1, [r7, #32]
    adds r6, r1
    ldr r1, [r7, #36]
    cmp r0, r1
    beq 2f
    b 1b
2:
    mov r1, r12
    str r1, [r7, #44]
    smg_restore_all
    smg_end smg_round_fours
#endif
