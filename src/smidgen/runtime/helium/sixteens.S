/* Sums that become int8 gradients, sixteen at a time: see sixteens.h. */
#include "assembly.inc"

/* Where the fields lie, and those of the frame. */
    .equ LIFT, 16
    .equ KEY, 24
    .equ MULTIPLIER_STEP, 28
    .equ TO_STEP, 32
    .equ MASK_STEP, 36
    .equ LANES, 44
    .equ PEAK, 52
    .equ WORDS, 0
    .equ BITS, 16
    .equ WIDE, 32
    .equ STEPS, 48
    .equ JOB, 56
    .equ FLAG, 60
    .equ FRAME, 64

/* Bits of every fourth element, those of negative ones inverted, of what the mask lets pass; `half` takes the mask's
 * elements out of q4. */
    .macro smg_bits sums, half
    vmovl\half\().s16 q7, q4
    vshr.s32 \sums, \sums, #8
    vand \sums, \sums, q7
    vshr.s32 q7, \sums, #31
    veor \sums, \sums, q7
    .endm

/* Of q0 to q3 each holds every fourth sum, so that a random word's four bytes go to one lane of each, and narrowing them
 * twice puts the bytes into order. Where that saturates, the elements' bits are taken before it. */
    .global smg_round_sixteens
    smg_function smg_round_sixteens
    push {r4-r12, lr}
    vpush {d8-d15}
    sub sp, sp, #FRAME
    str r0, [sp, #JOB]
    vmrs r1, fpscr
    bic r1, r1, #(1 << 27)
    vmsr fpscr, r1
    ldrd r5, r6, [r0, #LIFT]
    ldrd r7, r8, [r0, #KEY]
    ldrd r12, r1, [r0, #TO_STEP]
    ldr r2, [r0, #(MASK_STEP + 4)]
    strd r1, r2, [sp, #STEPS]
    movw r9, #0x79B9
    movt r9, #0x9E37
    movs r4, #0
    str r4, [sp, #FLAG]
    vidup.u32 q0, r4, #1
    vmul.i32 q0, q0, r9
    vstrw.32 q0, [sp, #WORDS]
    vmov.i32 q0, #0
    vstrw.32 q0, [sp, #BITS]
    vstrw.32 q0, [sp, #WIDE]
    movw r9, #0x352D
    movt r9, #0x7FEB
    movw r10, #0xA68B
    movt r10, #0x846C
    ldrd r11, lr, [r0, #LANES]
    ldm r0, {r1-r4}
    mov r0, r11
    dls lr, lr
1:
    vld40.32 {q0, q1, q2, q3}, [r1]
    vld41.32 {q0, q1, q2, q3}, [r1]
    vld42.32 {q0, q1, q2, q3}, [r1]
    vld43.32 {q0, q1, q2, q3}, [r1]!
    vld40.32 {q4, q5, q6, q7}, [r2]
    vld41.32 {q4, q5, q6, q7}, [r2]
    vld42.32 {q4, q5, q6, q7}, [r2]
    vld43.32 {q4, q5, q6, q7}, [r2]
    add r2, r2, r8
    vshl.s32 q0, r5
    vshl.s32 q1, r5
    vshl.s32 q2, r5
    vshl.s32 q3, r5
    vqrdmulh.s32 q0, q0, q4
    vqrdmulh.s32 q1, q1, q5
    vqrdmulh.s32 q2, q2, q6
    vqrdmulh.s32 q3, q3, q7
    vqrshl.s32 q0, r6
    vqrshl.s32 q1, r6
    vqrshl.s32 q2, r6
    vqrshl.s32 q3, r6
    vldrw.u32 q5, [sp, #WORDS]
    vadd.i32 q4, q5, r7
    vshr.u32 q5, q4, #16
    veor q4, q4, q5
    vmul.i32 q4, q4, r9
    vshr.u32 q5, q4, #15
    veor q4, q4, q5
    vmul.i32 q4, q4, r10
    vshr.u32 q5, q4, #16
    veor q4, q4, q5
    vmovlb.u8 q5, q4
    vmovlt.u8 q6, q4
    vmovlb.u16 q7, q5
    vadd.i32 q0, q0, q7
    vmovlt.u16 q7, q5
    vadd.i32 q2, q2, q7
    vmovlb.u16 q7, q6
    vadd.i32 q1, q1, q7
    vmovlt.u16 q7, q6
    vadd.i32 q3, q3, q7
    vqshrnb.s32 q4, q0, #8
    vqshrnt.s32 q4, q2, #8
    vqshrnb.s32 q5, q1, #8
    vqshrnt.s32 q5, q3, #8
    vqmovnb.s16 q6, q4
    vqmovnt.s16 q6, q5
    ldrh r11, [r4]
    vmov.i32 q7, #0
    vmsr p0, r11
    vpst
    vctpt.8 r0
    vmrs r11, fpscr
    tst r11, #(1 << 27)
    vpsel q6, q6, q7
    bne 3f
    vshr.s8 q5, q6, #7
    vldrw.u32 q4, [sp, #BITS]
    veor q5, q5, q6
    vorr q4, q4, q5
    vstrw.32 q4, [sp, #BITS]
2:
    vmov.i8 q7, #0x81
    vmax.s8 q6, q6, q7
    vctp.8 r0
    vpst
    vstrbt.8 q6, [r3]
    add r3, r3, r12
    ldr r11, [sp, #STEPS]
    add r4, r4, r11
    ldr r11, [sp, #(STEPS + 4)]
    add r7, r7, r11
    le lr, 1b
    ldr r1, [sp, #JOB]
    vldrw.u32 q0, [sp, #BITS]
    vldrw.u32 q1, [sp, #WIDE]
    add r1, r1, #PEAK
    vstrw.32 q0, [r1]
    vstrw.32 q1, [r1, #16]
    ldr r0, [sp, #FLAG]
    add sp, sp, #FRAME
    vpop {d8-d15}
    pop {r4-r12, pc}
3:
    str r11, [sp, #FLAG]
    bic r11, r11, #(1 << 27)
    vmsr fpscr, r11
    vmvn q5, q7
    vpsel q5, q5, q7
    vmovlb.s8 q4, q5
    smg_bits q0, b
    smg_bits q2, t
    vmovlt.s8 q4, q5
    smg_bits q1, b
    smg_bits q3, t
    vorr q0, q0, q1
    vorr q2, q2, q3
    vorr q0, q0, q2
    vldrw.u32 q1, [sp, #WIDE]
    vorr q0, q0, q1
    vstrw.32 q0, [sp, #WIDE]
    b 2b
    smg_end smg_round_sixteens
