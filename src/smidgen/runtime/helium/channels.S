/* Windows of sixteen channels at a time, tap by tap: see channels.h.
 *
 * r0 the job, r1 rows, r2 how many are left, r3 weights, r4 taps of a row, r5 pairs, r6 singles, r7 how far the window
 * is from the first, r8 windows left, r9 scales, r10 and r11 where outputs go and how far on; q4 to q7 are the sums, each
 * of every fourth channel. */
#include "assembly.inc"

    .equ PAIRS, 12
    .equ X_ON, 20
    .equ PIXELS, 24
    .equ SCALES, 28
    .equ Y, 32
    .equ ZERO, 40
    .equ LANES, 44

/* Products of even channels in q2 and of odd ones in q3 are added to the sums. */
    .macro smg_widen
    vmovlb.s16 q0, q2
    vmovlt.s16 q1, q2
    vadd.i32 q4, q4, q0
    vadd.i32 q6, q6, q1
    vmovlb.s16 q0, q3
    vmovlt.s16 q1, q3
    vadd.i32 q5, q5, q0
    vadd.i32 q7, q7, q1
    .endm

    .macro smg_single
    vldrw.u32 q0, [r4], #16
    vldrw.u32 q1, [r3], #16
    vmullb.s8 q2, q0, q1
    vmullt.s8 q3, q0, q1
    smg_widen
    .endm

    .macro smg_pair
    vldrw.u32 q0, [r4], #16
    vldrw.u32 q1, [r3], #16
    vmullb.s8 q2, q0, q1
    vmullt.s8 q3, q0, q1
    vldrw.u32 q0, [r4]
    vldrw.u32 q1, [r3], #16
    vmullb.s8 q0, q0, q1
    vadd.i16 q2, q2, q0
    vldrw.u32 q0, [r4], #16
    vmullt.s8 q0, q0, q1
    vadd.i16 q3, q3, q0
    smg_widen
    .endm

/* All rows of a window: of so many taps, or of any number. */
    .macro smg_rows pairs, singles
    ldm r0, {r1, r2, r3}
1:
    ldr r4, [r1], #4
    add r4, r4, r7
    .if \pairs
    .rept \pairs
    smg_pair
    .endr
    .rept \singles
    smg_single
    .endr
    .else
    wls lr, r5, 3f
2:
    smg_pair
    le lr, 2b
3:
    wls lr, r6, 5f
4:
    smg_single
    le lr, 4b
5:
    .endif
    subs r2, r2, #1
    bne 1b
    .endm

    .macro smg_scale sums, at
    vldrw.u32 q0, [r9, #(64 + \at)]
    vqrdmulh.s32 \sums, \sums, q0
    vldrw.u32 q1, [r9, #(128 + \at)]
    vshr.s32 q2, \sums, #31
    vqadd.s32 \sums, \sums, q2
    vrshl.s32 \sums, \sums, q1
    .endm

    .macro smg_begin_scaled
    vldrw.u32 q4, [r9]
    vldrw.u32 q5, [r9, #16]
    vldrw.u32 q6, [r9, #32]
    vldrw.u32 q7, [r9, #48]
    .endm

/* Narrowed twice, the sums are in order. */
    .macro smg_end_scaled
    smg_scale q4, 0
    smg_scale q5, 16
    smg_scale q6, 32
    smg_scale q7, 48
    ldrd r1, r2, [r0, #ZERO]
    vqmovnb.s32 q0, q4
    vqmovnt.s32 q0, q6
    vqmovnb.s32 q1, q5
    vqmovnt.s32 q1, q7
    vqadd.s16 q0, q0, r1
    vqadd.s16 q1, q1, r1
    vqmovnb.s16 q2, q0
    vqmovnt.s16 q2, q1
    vldrw.u32 q0, [r9, #192]
    vldrw.u32 q1, [r9, #208]
    vmax.s8 q2, q2, q0
    vmin.s8 q2, q2, q1
    vctp.8 r2
    vpst
    vstrbt.8 q2, [r10]
    .endm

    .macro smg_begin_sums
    vmov.i32 q4, #0
    vmov.i32 q5, #0
    vmov.i32 q6, #0
    vmov.i32 q7, #0
    .endm

    .macro smg_end_sums
    vst40.32 {q4, q5, q6, q7}, [r10]
    vst41.32 {q4, q5, q6, q7}, [r10]
    vst42.32 {q4, q5, q6, q7}, [r10]
    vst43.32 {q4, q5, q6, q7}, [r10]
    .endm

    .macro smg_windows kind, pairs, singles
9:
    smg_begin_\kind
    smg_rows \pairs, \singles
    smg_end_\kind
    ldr r1, [r0, #X_ON]
    add r10, r10, r11
    add r7, r7, r1
    subs r8, r8, #1
    bne 9b
    vpop {d8-d15}
    pop {r4-r11, pc}
    .endm

/* Rows of 3, 5 and 7 taps without loops. */
    .macro smg_channels_function name, kind
    smg_function \name
    push {r4-r11, lr}
    vpush {d8-d15}
    ldrd r5, r6, [r0, #PAIRS]
    ldrd r8, r9, [r0, #PIXELS]
    ldrd r10, r11, [r0, #Y]
    movs r7, #0
    cmp r6, #1
    bne 24f
    cmp r5, #2
    blt 26f
    beq 27f
    cmp r5, #3
    beq 28f
24:
    smg_windows \kind, 0, 0
26:
    cmp r5, #1
    bne 24b
    smg_windows \kind, 1, 1
27:
    smg_windows \kind, 2, 1
28:
    smg_windows \kind, 3, 1
    smg_end \name
    .endm

    .global smg_scale_channels
    smg_channels_function smg_scale_channels, scaled

    .global smg_sum_channels
    smg_channels_function smg_sum_channels, sums
