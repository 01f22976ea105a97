/* Tiles of four pixels against four filters at once: smg_multiply_tiles in tiles.h, for RISC-V. */
#if defined(__riscv)
#include "riscv.inc"

/* One filter's byte with four pixels in t0-t3. */
    .macro smg_filter at, w, p, q, r, s
    lb t4, \at(\w)
    mul t5, t0, t4
    add \p, \p, t5
    mul t5, t1, t4
    add \q, \q, t5
    mul t5, t2, t4
    add \r, \r, t5
    mul t5, t3, t4
    add \s, \s, t5
    .endm

/* One element of four pixels, to which a0 points, and of four filters. */
    .macro smg_element at
    lw t0, 16 * \at(a0)
    lw t1, 16 * \at + 4(a0)
    lw t2, 16 * \at + 8(a0)
    lw t3, 16 * \at + 12(a0)
    smg_filter \at, a1, s0, s1, s2, s3
    smg_filter \at, a2, s4, s5, s6, s7
    smg_filter \at, a3, s8, s9, s10, s11
    smg_filter \at, t6, a4, a5, a6, a7
    .endm

/* Four sums at t0 in or out by `move`; t0 goes on to the next filter's, t1 bytes behind. */
    .macro smg_sums move, p, q, r, s
    \move \p, 0(t0)
    \move \q, 4(t0)
    \move \r, 8(t0)
    \move \s, 12(t0)
    add t0, t0, t1
    .endm

    .macro smg_all_sums move
    lw t0, 0(sp)
    lw t1, 4(sp)
    smg_sums \move, s0, s1, s2, s3
    smg_sums \move, s4, s5, s6, s7
    smg_sums \move, s8, s9, s10, s11
    smg_sums \move, a4, a5, a6, a7
    .endm

/* Four sums begin with a filter's bias. */
    .macro smg_start at, p, q, r, s
    lw \p, \at(t0)
    mv \q, \p
    mv \r, \p
    mv \s, \p
    .endm

    .global smg_tiles_riscv
    smg_function smg_tiles_riscv
    addi sp, sp, -80
    sw ra, 20(sp)
    smg_kept sw, 24
    slli a1, a1, 2
    sw a0, 0(sp)
    sw a1, 4(sp)
    sw a3, 8(sp)
    sw a5, 12(sp)
    sw a6, 16(sp)
    mv a0, a2
    sw a7, 72(sp)
    sw a4, 76(sp)
1: /* a tile */
    lw t0, 72(sp)
    bnez t0, 3f
    smg_all_sums lw
    j 4f
3:
    smg_start 0, s0, s1, s2, s3
    smg_start 4, s4, s5, s6, s7
    smg_start 8, s8, s9, s10, s11
    smg_start 12, a4, a5, a6, a7
4:
    lw a1, 8(sp)
    lw t0, 76(sp)
    lw t1, 12(sp)
    add a2, a1, t0
    add a3, a2, t0
    add t6, a3, t0
    add ra, a1, t1
2:
    smg_element 0
    smg_element 1
    smg_element 2
    smg_element 3
    addi a0, a0, 64
    addi a1, a1, 4
    addi a2, a2, 4
    addi a3, a3, 4
    addi t6, t6, 4
    bne a1, ra, 2b
    smg_all_sums sw
    lw t0, 0(sp)
    lw t1, 16(sp)
    addi t0, t0, 16
    addi t1, t1, -1
    sw t0, 0(sp)
    sw t1, 16(sp)
    bnez t1, 1b
    lw ra, 20(sp)
    smg_kept lw, 24
    addi sp, sp, 80
    ret
    smg_end smg_tiles_riscv
#endif
