/* From reset on QEMU's board "virt" to app_main. */
    .section .start, "ax"
    .globl start
start:
    la sp, stack_top
    la t0, bss_start
    la t1, bss_end
1:  bgeu t0, t1, 2f
    sw zero, 0(t0)
    addi t0, t0, 4
    j 1b
2:  call app_main
3:  j 3b
