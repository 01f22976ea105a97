/* Four channels' filters against pixels, sixteen products at a time: see pixels.h. */
#include "assembly.inc"
#include "two_pixels.inc"

/* Where the fields lie, and what is in the frame. */
    .equ X_ON, 16
    .equ Y_ON, 20
    .equ X_ZERO, 24
    .equ Y_ZERO, 28
    .equ LO, 32
    .equ ROOM, 40
    .equ W, 44
    .equ FILTERS, 0
    .equ SUMS, 16
    .equ SCALE, 80
    .equ LOW, 144
    .equ FOUR_ON, 160
    .equ TO_ZERO, 164
    .equ BACK, 168
    .equ LEFT, 172
    .equ PACKED, 176 /* and sixteens after the first elements */
    .equ FIRST, 184
    .equ STEP, 188
    .equ OUTPUT, 192 /* and pixels left */
    .equ JOB, 200
    .equ FRAME, 208

/* The sums of four pixels become outputs: q0 to q3 are the channels, and narrowed twice they lie side by side. */
    .macro smg_outputs
    add r8, sp, #SUMS
    add r9, sp, #SCALE
    vld40.32 {q0, q1, q2, q3}, [r8]
    vld41.32 {q0, q1, q2, q3}, [r8]
    vld42.32 {q0, q1, q2, q3}, [r8]
    vld43.32 {q0, q1, q2, q3}, [r8]
    smg_scale q0
    smg_scale q1
    smg_scale q2
    smg_scale q3
    ldr r0, [sp, #TO_ZERO]
    vqmovnb.s32 q4, q0
    vqmovnt.s32 q4, q2
    vqmovnb.s32 q0, q1
    vqmovnt.s32 q0, q3
    vqadd.s16 q4, q4, r0
    vqadd.s16 q0, q0, r0
    vqmovnb.s16 q1, q4
    vqmovnt.s16 q1, q0
    ldr r0, [sp, #FOUR_ON]
    vldrw.u32 q0, [sp, #LOW]
    vmax.s8 q1, q1, q0
    vmin.s8 q1, q1, q6
    vctp.32 r10
    vpst
    vstrwt.32 q1, [r7, q7]
    add r7, r7, r0
    subs r10, r10, #4
    .endm

    .macro smg_scale sums
    ldm r9!, {r0, r3, r5, r8}
    vadd.i32 \sums, \sums, r0
    vqrdmulh.s32 \sums, \sums, r3
    vshr.s32 q4, \sums, #31
    vqadd.s32 \sums, \sums, q4
    vrshl.s32 \sums, r5
    .endm

/* A vector of each filter. */
    .macro smg_pack
    vaddva.s8 r0, q0
    vaddva.s8 r2, q1
    vaddva.s8 r4, q2
    vaddva.s8 r6, q3
    vstrw.32 q0, [r7], #64
    vstrw.32 q1, [r7, #-48]
    vstrw.32 q2, [r7, #-32]
    vstrw.32 q3, [r7, #-16]
    .endm

/* Sums of r4 pixels, r6 bytes apart, with two filters, q0 and q1, q2 and q3. */
    .macro smg_two_channels
    vpstt
    vldrbt.u8 q1, [r3, #16]
    vldrbt.u8 q3, [r5, #16]
    vldrb.u8 q0, [r3]
    vldrb.u8 q2, [r5]
    dls lr, r4
12:
    vldrb.u8 q4, [r1]
    vpst
    vldrbt.u8 q5, [r1, #16]
    vmlav.s8 r0, q4, q0
    vmlav.s8 r2, q4, q2
    vmlava.s8 r0, q5, q1
    vmlava.s8 r2, q5, q3
    add r1, r1, r6
    strd r0, r2, [r8], #16
    le lr, 12b
    .endm

/* Sums of a pixel whose window is one vector, with four filters. */
    .macro smg_one_pixel
    vpst
    vldrbt.u8 q4, [r1]
    vmlav.s8 r0, q4, q0
    vmlav.s8 r2, q4, q1
    vmlav.s8 r4, q4, q2
    vmlav.s8 r6, q4, q3
    add r1, r1, r3
    stm r8!, {r0, r2, r4, r6}
    .endm

/* r0, r2, r4, r6: sums of the channels; r3, r5, r8, r9: their filters; r1 a window, r7 an output, r10 pixels left, r11
 * elements of a window, r12 the job, or sums. Loops in predicated bytes take what is left of a window, too. */
    .global smg_multiply_pixels
    smg_function smg_multiply_pixels
    push {r4-r11, lr}
    vpush {d8-d15}
    sub sp, sp, #FRAME
    mov r12, r0
    str r0, [sp, #JOB]
    ldrd r0, r1, [r12, #LO]
    vdup.8 q0, r0
    vstrw.32 q0, [sp, #LOW]
    vdup.8 q6, r1
    ldr r0, [r12, #Y_ON]
    movs r2, #0
    vidup.u32 q7, r2, #1
    vmul.i32 q7, q7, r0
    lsls r0, r0, #2
    ldr r1, [r12, #Y_ZERO]
    strd r0, r1, [sp, #FOUR_ON]
30: /* four channels */
    ldr r3, [r12, #W]
    ldr r11, [r12]
    add r5, r3, r11
    add r8, r5, r11
    add r9, r8, r11
    stm sp, {r3, r5, r8, r9}
    movs r0, #0
    movs r2, #0
    movs r4, #0
    movs r6, #0
    cmp r11, #32
    bgt 20f
    dlstp.8 lr, r11
1:
    vldrb.u8 q0, [r3], #16
    vaddva.s8 r0, q0
    vldrb.u8 q0, [r5], #16
    vaddva.s8 r2, q0
    vldrb.u8 q0, [r8], #16
    vaddva.s8 r4, q0
    vldrb.u8 q0, [r9], #16
    vaddva.s8 r6, q0
    letp lr, 1b
21:
    vmov q4[2], q4[0], r0, r4
    vmov q4[3], q4[1], r2, r6
    ldr r1, [r12, #X_ZERO]
    vmul.i32 q4, q4, r1
    add r0, r12, #(W + 4)
    ldm r0, {r0, r1, r2, r7}
    vldrw.u32 q0, [r0]
    vsub.i32 q0, q0, q4
    vldrw.u32 q1, [r1]
    vldrb.s32 q2, [r2]
    add r0, sp, #SCALE
    vst40.32 {q0, q1, q2, q3}, [r0]
    vst41.32 {q0, q1, q2, q3}, [r0]
    vst42.32 {q0, q1, q2, q3}, [r0]
    vst43.32 {q0, q1, q2, q3}, [r0]
    ldrd r10, r1, [r12, #4]
    cmp r11, #32
    bgt 4f
    subs r6, r11, #16
    bgt 10f
2: /* a window is one vector, and the filters stay in registers for four pixels */
    ldm sp, {r3, r5, r8, r9}
    vctp.8 r11
    vpstttt
    vldrbt.u8 q0, [r3]
    vldrbt.u8 q1, [r5]
    vldrbt.u8 q2, [r8]
    vldrbt.u8 q3, [r9]
    ldr r3, [r12, #X_ON]
    add r8, sp, #SUMS
    cmp r10, #4
    blt 13f
    smg_one_pixel
    smg_one_pixel
    smg_one_pixel
    smg_one_pixel
3:
    smg_outputs
    bgt 2b
    b 8f
4: /* longer windows, of two pixels at a time */
    ldr r2, [r12, #X_ON]
    subs r3, r2, r11
    str r2, [sp, #STEP]
    str r3, [sp, #BACK]
    strd r7, r10, [sp, #OUTPUT]
    str r10, [sp, #LEFT]
5:
    add r11, sp, #SUMS
6:
    ldr r2, [sp, #STEP]
    cmp r10, #1
    ite gt
    addgt r3, r1, r2
    movle r3, r1
    ldrd r5, r7, [sp, #PACKED]
    ldr r9, [sp, #FIRST]
    smg_two_pixels
    stm r11!, {r0, r2, r4, r6}
    stm r11!, {r8, r10, r12, lr}
    ldr r0, [sp, #BACK]
    ldr r10, [sp, #LEFT]
    add r1, r3, r0
    subs r10, r10, #2
    str r10, [sp, #LEFT]
    ble 7f
    add r0, sp, #(SUMS + 64)
    cmp r11, r0
    bne 6b
7:
    ldrd r7, r10, [sp, #OUTPUT]
    smg_outputs
    strd r7, r10, [sp, #OUTPUT]
    bgt 5b
    b 8f
10: /* two vectors, and the filters of two channels at a time stay in registers */
    str r6, [sp, #BACK]
    ldr r6, [r12, #X_ON]
11:
    add r8, sp, #SUMS
    cmp r10, #4
    ite lt
    movlt r4, r10
    movge r4, #4
    ldr r9, [sp, #BACK]
    vctp.8 r9
    ldrd r3, r5, [sp, #FILTERS]
    smg_two_channels
    mls r1, r4, r6, r1
    add r8, sp, #(SUMS + 8)
    ldrd r3, r5, [sp, #(FILTERS + 8)]
    smg_two_channels
    smg_outputs
    bgt 11b
8: /* the next four channels, if there are any */
    ldr r12, [sp, #JOB]
    add r11, r12, #W
    ldr r10, [r12, #12]
    ldm r11, {r0, r1, r2, r3, r7}
    ldr r4, [r12]
    subs r10, r10, #1
    add r0, r0, r4, lsl #2
    add r1, r1, #16
    add r2, r2, #16
    add r3, r3, #4
    add r7, r7, #4
    stm r11, {r0, r1, r2, r3, r7}
    str r10, [r12, #12]
    bne 30b
    add sp, sp, #FRAME
    vpop {d8-d15}
    pop {r4-r11, pc}
13:
    dls lr, r10
14:
    smg_one_pixel
    le lr, 14b
    b 3b
20: /* filters of longer windows are packed as they are summed up */
    ldr r7, [r12, #ROOM]
    subs r10, r11, #1
    and r1, r10, #15
    lsrs r10, r10, #4
    strd r7, r10, [sp, #PACKED]
    adds r1, r1, #1
    str r1, [sp, #FIRST]
    vctp.8 r1
    vpstttt
    vldrbt.u8 q0, [r3]
    vldrbt.u8 q1, [r5]
    vldrbt.u8 q2, [r8]
    vldrbt.u8 q3, [r9]
    add r3, r3, r1
    add r5, r5, r1
    add r8, r8, r1
    add r9, r9, r1
    smg_pack
    dls lr, r10
22:
    vldrb.u8 q0, [r3], #16
    vldrb.u8 q1, [r5], #16
    vldrb.u8 q2, [r8], #16
    vldrb.u8 q3, [r9], #16
    smg_pack
    le lr, 22b
    b 21b
    smg_end smg_multiply_pixels
