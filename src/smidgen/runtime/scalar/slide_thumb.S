/* Depthwise windows slide over strips of words: see slide.h. */
#if defined(__thumb__)
#include "thumb.inc"

/* One tap: r1 walks over the taps, r0 over the strips. Its length is known below. */
    .macro smg_slide_tap
    ldmia r1!, {r2, r3}
    ldmia r0!, {r4-r7}
#if defined(__ARM_ARCH_6M__)
    muls r4, r2, r4
    muls r5, r2, r5
    muls r6, r2, r6
    muls r7, r2, r7
    add r8, r4
    add r9, r5
    add r10, r6
    add r11, r7
#else
    mla r8, r4, r2, r8
    mla r9, r5, r2, r9
    mla r10, r6, r2, r10
    mla r11, r7, r2, r11
#endif
    add r0, r3
    .endm

/* Eight taps a turn; the first turn begins where those that are left over do. In r12 is where the taps end, in lr
 * where a tile begins; on the stack are the tiles left, its input and what is to be done. */
    .global smg_slide_thumb
    smg_function smg_slide_thumb
    smg_save_all
    mov r4, r0
    ldr r1, [r4, #8]
    ldr r2, [r4, #12]
    mov r12, r2
    subs r2, r1 /* eight bytes a tap */
    lsrs r2, #3
    subs r2, #1
    movs r3, #7
    ands r2, r3
    subs r3, r2 /* taps left out in the first turn, of 22 bytes each */
    movs r2, #22
    muls r3, r2, r3
    adr r2, 2f
    adds r3, r2
    adds r3, #1
    mov lr, r3
    sub sp, #12
    str r4, [sp, #8]
0: /* a row */
    ldr r0, [r4, #4]
    str r0, [sp, #4]
    ldr r3, [r4, #24]
    adds r0, r3
    str r0, [r4, #4]
    ldr r5, [r4, #16]
    str r5, [sp]
1: /* a tile */
    ldr r0, [sp, #4]
    ldr r5, [r4, #28]
    mov r8, r5
    mov r9, r5
    mov r10, r5
    mov r11, r5
    ldr r1, [r4, #8]
    bx lr
    .balign 4
2:
    smg_slide_tap
    smg_slide_tap
    smg_slide_tap
    smg_slide_tap
    smg_slide_tap
    smg_slide_tap
    smg_slide_tap
    smg_slide_tap
    cmp r1, r12
    bne 2b
    ldr r4, [sp, #8]
    ldr r0, [r4]
    mov r1, r8
    mov r2, r9
    mov r3, r10
    mov r5, r11
    stmia r0!, {r1-r3, r5}
    str r0, [r4]
    ldr r0, [sp, #4]
    adds r0, #16
    str r0, [sp, #4]
    ldr r5, [sp]
    subs r5, #1
    str r5, [sp]
    bne 1b
    ldr r5, [r4, #20]
    subs r5, #1
    str r5, [r4, #20]
    bne 0b
    add sp, #12
    smg_restore_all
    smg_end smg_slide_thumb
#endif
