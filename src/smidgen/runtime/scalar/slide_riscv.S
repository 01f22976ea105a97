/* Depthwise windows whose rows of taps lie side by side slide over strips of words: see slide.h. For RISC-V, two tiles at
 * a time: what one tap reads the next two read, too, and compilers run out of registers. */
#if defined(__riscv)
#include "riscv.inc"

/* The weight at a2 with eight words in registers, to the sums in s0-s7. */
    .macro smg_tap_of at, p, q, r, s, t, u, v, w
    lw s11, 8 * \at(a2)
    mul s9, \p, s11
    add s0, s0, s9
    mul s9, \q, s11
    add s1, s1, s9
    mul s9, \r, s11
    add s2, s2, s9
    mul s9, \s, s11
    add s3, s3, s9
    mul s9, \t, s11
    add s4, s4, s9
    mul s9, \u, s11
    add s5, s5, s9
    mul s9, \v, s11
    add s6, s6, s9
    mul s9, \w, s11
    add s7, s7, s9
    .endm

/* In a1 is where a tap reads, in a2 the tap, in a3 their end, in a4 where a tile begins, in a5 the taps left of a row,
 * in a6 all of it, in a7 where sums go; on the stack what is to be done, the row's beginning and the pairs left of it. */
    .global smg_slide_riscv
    smg_function smg_slide_riscv
    addi sp, sp, -64
    smg_kept sw, 0
    sw a0, 48(sp)
    lw a7, 0(a0)
    lw a4, 4(a0)
    lw a3, 12(a0)
    lw a6, 32(a0)
1: /* a row of windows */
    lw a0, 48(sp)
    sw a4, 52(sp)
    lw t0, 16(a0)
    srli t0, t0, 1
    sw t0, 56(sp)
2: /* two tiles */
    lw a0, 48(sp)
    mv a1, a4
    lw a2, 8(a0)
    lw s0, 28(a0)
    mv s1, s0
    mv s2, s0
    mv s3, s0
    mv s4, s0
    mv s5, s0
    mv s6, s0
    mv s7, s0
3: /* a row of taps, of which there are three at least */
    addi a5, a6, -3
4:
    lw t0, 0(a1)
    lw t1, 4(a1)
    lw t2, 8(a1)
    lw t3, 12(a1)
    lw t4, 16(a1)
    lw t5, 20(a1)
    lw t6, 24(a1)
    lw s8, 28(a1)
    lw a0, 32(a1)
    lw s10, 36(a1)
    smg_tap_of 0, t0, t1, t2, t3, t4, t5, t6, s8
    smg_tap_of 1, t1, t2, t3, t4, t5, t6, s8, a0
    smg_tap_of 2, t2, t3, t4, t5, t6, s8, a0, s10
    addi a1, a1, 12
    addi a2, a2, 24
    addi a5, a5, -3
    bgez a5, 4b
    addi a5, a5, 3
    beqz a5, 6f
5: /* one or two taps are left: their words but the last are here already, three further on */
    lw t0, 28(a1)
    smg_tap_of 0, t3, t4, t5, t6, s8, a0, s10, t0
    addi a1, a1, 4
    addi a2, a2, 8
    addi a5, a5, -1
    beqz a5, 6f
    lw t1, 28(a1)
    smg_tap_of 0, t4, t5, t6, s8, a0, s10, t0, t1
    addi a1, a1, 4
    addi a2, a2, 8
6:
    lw t0, -4(a2)
    addi a1, a1, 12
    add a1, a1, t0
    bltu a2, a3, 3b
    sw s0, 0(a7)
    sw s1, 4(a7)
    sw s2, 8(a7)
    sw s3, 12(a7)
    sw s4, 16(a7)
    sw s5, 20(a7)
    sw s6, 24(a7)
    sw s7, 28(a7)
    addi a7, a7, 32
    addi a4, a4, 32
    lw t0, 56(sp)
    addi t0, t0, -1
    sw t0, 56(sp)
    bnez t0, 2b
    lw a0, 48(sp)
    lw a4, 52(sp)
    lw t0, 24(a0)
    lw t1, 20(a0)
    add a4, a4, t0
    addi t1, t1, -1
    sw t1, 20(a0)
    bnez t1, 1b
    smg_kept lw, 0
    addi sp, sp, 64
    ret
    smg_end smg_slide_riscv
#endif
