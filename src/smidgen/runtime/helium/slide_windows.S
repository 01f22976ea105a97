/* A window that slides over a strip of one channel, four pixels at a time: see slide_windows.h. */
#include "assembly.inc"

/* One pixel's sum, and the next pixel's window; q2, q3, q7 hold up to three vectors of the filter, r12 a fourth. */
    .macro smg_window sum, vectors
    vldrb.u8 q0, [r0]
    .if \vectors > 1
    vldrb.u8 q1, [r0, #16]
    .endif
    vmlav.s8 \sum, q0, q2
    .if \vectors > 1
    vmlava.s8 \sum, q1, q3
    .endif
    .if \vectors > 2
    vldrb.u8 q0, [r0, #32]
    vmlava.s8 \sum, q0, q7
    vldrb.u8 q0, [r0, #48]
    vldrb.u8 q1, [r12]
    vmlava.s8 \sum, q0, q1
    .endif
    add r0, r0, r1
    .endm

/* All tiles: sums in r2, r4, r6, r8 are scaled and stored. */
    .macro smg_windows vectors
0:
    smg_window r2, \vectors
    smg_window r4, \vectors
    smg_window r6, \vectors
    smg_window r8, \vectors
    vmov q0[2], q0[0], r2, r6
    vmov q0[3], q0[1], r4, r8
    vadd.i32 q0, q0, r11
    vqrdmulh.s32 q0, q0, r7
    vshr.s32 q1, q0, #31
    vqadd.s32 q0, q0, q1
    vrshl.s32 q0, r9
    vadd.i32 q0, q0, r10
    vmax.s32 q0, q0, q4
    vmin.s32 q0, q0, q5
    vstrb.32 q0, [r3, q6]
    add r3, r3, r5
    le lr, 0b
    .endm

    .global smg_slide_windows
    smg_function smg_slide_windows
    push {r4-r11, lr}
    vpush {d8-d15}
    mov r12, r0
    ldrd r4, r6, [r12, #24]
    vdup.32 q4, r4
    vdup.32 q5, r6
    ldr r5, [r12, #44]
    movs r4, #0
    vidup.u32 q6, r4, #1
    vmul.i32 q6, q6, r5
    lsls r5, r5, #2
    ldrd r11, r7, [r12, #8]
    ldrd r9, r10, [r12, #16]
    ldr r0, [r12]
    ldrd r1, r3, [r12, #36]
    ldr r4, [r12, #48]
    ldr r8, [r12, #32]
    ldr r12, [r12, #4]
    dls lr, r8
    vldrb.u8 q2, [r12]
    cmp r4, #2
    blt 1f
    beq 2f
    vldrb.u8 q3, [r12, #16]
    vldrb.u8 q7, [r12, #32]
    adds r12, r12, #48
    smg_windows 4
    b 3f
1:
    smg_windows 1
    b 3f
2:
    vldrb.u8 q3, [r12, #16]
    smg_windows 2
3:
    vpop {d8-d15}
    pop {r4-r11, pc}
    smg_end smg_slide_windows
