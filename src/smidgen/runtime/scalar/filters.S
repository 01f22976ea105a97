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

    .global smg_filter_tiles
    smg_function smg_filter_tiles
    smg_save_all
    push {r0, r2}
    mov r0, r1
    lsls r3, #2
    adds r3, r2
    mov r12, r3
0: /* a tile */
    ldr r4, [sp]
    ldr r1, [sp, #4]
    ldmia r4!, {r2, r3, r5, r6}
    mov r8, r2
    mov r9, r3
    mov r10, r5
    mov r11, r6
1:
    smg_two_elements
    smg_two_elements
    cmp r1, r12
    bne 1b
    ldr r4, [sp]
    mov r2, r8
    mov r3, r9
    mov r5, r10
    mov r6, r11
    stmia r4!, {r2, r3, r5, r6}
    str r4, [sp]
    ldr r4, [sp, #44]
    subs r4, #1
    str r4, [sp, #44]
    bne 0b
    add sp, #8
    smg_restore_all
    smg_end smg_filter_tiles
#endif
