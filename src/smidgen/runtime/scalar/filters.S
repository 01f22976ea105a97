/* One filter against tiles of four pixels: see filters.h. */
#if defined(__thumb__)
#include "thumb.inc"

/* One element of a filter, in register w, with those of four pixels; r0 walks over them. */
    .macro smg_four_pixels w
    ldmia r0!, {r4-r7}
#if defined(__ARM_ARCH_6M__)
    muls r4, \w, r4
    muls r5, \w, r5
    muls r6, \w, r6
    muls r7, \w, r7
    add r8, r4
    add r9, r5
    add r10, r6
    add r11, r7
#else
    mla r8, r4, \w, r8
    mla r9, r5, \w, r9
    mla r10, r6, \w, r10
    mla r11, r7, \w, r11
#endif
    .endm

    .macro smg_two_elements
    ldmia r1!, {r2, r3}
    smg_four_pixels r2
    smg_four_pixels r3
    .endm

/* Eight elements a turn; the first turn begins in the middle where four are left over. In r12 is where the filter ends,
 * in lr where a tile begins; on the stack is what is to be done. */
    .global smg_filter_tiles
    smg_function smg_filter_tiles
    smg_save_all
    push {r0}
    ldr r1, [r0, #16]
    ldr r2, [r0, #20]
    mov r12, r2
    subs r2, r1
    adr r3, 1f
    adds r3, #1
    lsls r2, #27 /* sixteen bytes are four elements, whose code takes 76 */
    bpl 9f
    adds r3, #76
9:
    mov lr, r3
    mov r4, r0
    ldr r0, [r4, #12]
0: /* a tile */
    ldmia r4!, {r2, r5, r6}
    mov r7, r5
    adds r6, r5
    subs r4, #8
    str r6, [r4]
    ldr r1, [r4, #12]
    ldmia r7!, {r2, r3, r5, r6}
    mov r8, r2
    mov r9, r3
    mov r10, r5
    mov r11, r6
    bx lr
    .balign 4
1:
    smg_two_elements
    smg_two_elements
    smg_two_elements
    smg_two_elements
    cmp r1, r12
    bne 1b
    ldr r4, [sp]
    ldr r1, [r4]
    mov r2, r8
    mov r3, r9
    mov r5, r10
    mov r6, r11
    stmia r1!, {r2, r3, r5, r6}
    str r1, [r4]
    ldr r1, [r4, #24]
    subs r1, #1
    str r1, [r4, #24]
    bne 0b
    add sp, #4
    smg_restore_all
    smg_end smg_filter_tiles
#endif
