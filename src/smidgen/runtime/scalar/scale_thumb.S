/* Sums become int8: see scaling.h. */
#if defined(__thumb__)
#include "thumb.inc"

#if defined(__ARM_ARCH_6M__)
/* Where 32 bits by 32 give 32: a sum is s * 2^16 + t with t of 16 bits and a sign, the multiplier m * 2^16 + n. Of
 * their product
 *   s m 2^32 + (s n + t m) 2^16 + t n
 * the rounded upper half of its double is 2 s m + ((s n + t m + (t n >> 16) + 2^14) >> 15), and no term leaves 32 bits:
 * sums are less than 2^29. Where the zero point is the least of all, what is negative becomes that and needs no care. */
    .macro smg_scale_loop loop, beyond, signed
\loop:
    ldmia r1!, {r2}
    uxth r3, r7 /* n */
    sxth r4, r2 /* t */
    subs r2, r4
    asrs r2, #16 /* s */
    asrs r5, r7, #16 /* m */
    muls r3, r4, r3
    asrs r3, #16
    muls r4, r5, r4
    adds r4, r3
    muls r5, r2, r5
    uxth r3, r7
    muls r2, r3, r2
    adds r4, r2
    add r4, lr
    asrs r4, #15
    lsls r5, #1
    adds r4, r5
    .if \signed
    asrs r5, r4, #31
    adds r4, r5
    .endif
    add r4, r9
    asrs r4, r6
    cmp r4, r10
    bhi \beyond
1\loop:
    add r4, r11
    strb r4, [r0]
    add r0, r8
    cmp r1, r12
    bne \loop\()b
    .endm

    .macro smg_limit_sum /* what is beyond a limit becomes it */
    asrs r4, #31
    mvns r4, r4
    mov r5, r10
    ands r4, r5
    .endm

    .global smg_scale_thumb
    smg_function smg_scale_thumb
    smg_save_all
    ldr r7, [sp, #36] /* what all sums share */
    mov r8, r1
    lsls r3, #2
    adds r3, r2
    mov r12, r3
    mov r1, r2
    ldr r6, [r7, #8]
    ldr r2, [r7, #4]
    mov r9, r2
    ldr r2, [r7, #12]
    mov r10, r2
    ldr r2, [r7, #16]
    mov r11, r2
    movs r3, #1
    lsls r3, #14
    mov lr, r3
    ldr r5, [r7, #20]
    subs r5, r2 /* 0 where the zero point is the least of all */
    ldr r7, [r7]
    cmp r5, #0
    beq 5f
    smg_scale_loop 1, 3f, 1
    smg_restore_all
5:
    smg_scale_loop 2, 4f, 0
    smg_restore_all
3:
    smg_limit_sum
    b 11b
4:
    smg_limit_sum
    b 12b
    smg_end smg_scale_thumb
#else
/* Twice a multiplier is 2^32 more than the number in r6, so the sum itself is added to the upper half of the product;
 * what the lower half is rounded to is its first bit. */
    .global smg_scale_thumb
    smg_function smg_scale_thumb
    push {r4-r11, lr}
    ldr r7, [sp, #36] /* what all sums share */
    add r3, r2, r3, lsl #2
    ldrd r6, r8, [r7]
    ldrd r9, r10, [r7, #8]
    ldr r11, [r7, #16]
    lsls r6, #1
1:
    ldr r4, [r2], #4
    smull r5, r7, r4, r6
    adds r5, r5
    adcs r4, r7
    add r4, r4, r4, asr #31
    add r4, r8
    asr r4, r9
    cmp r4, r10
    bhi 3f
2:
    add r4, r11
    strb r4, [r0]
    add r0, r1
    cmp r2, r3
    bne 1b
    pop {r4-r11, pc}
3: /* beyond a limit */
    bic r4, r10, r4, asr #31
    b 2b
    smg_end smg_scale_thumb
#endif
#endif
