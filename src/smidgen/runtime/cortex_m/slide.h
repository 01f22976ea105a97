/* Filters slid over strips of packed halfwords: one channel, four neighbouring outputs at a time.
 *
 * A word holds one column of two rows, one below the other; so do the words of a filter. Where windows step over every
 * other column, a strip holds the even columns first, then the odd ones, and a row of the filter likewise. */
#ifndef SMIDGEN_SLIDE_H
#define SMIDGEN_SLIDE_H

#include <stdint.h>

#include "assembly.h"

/* From one row of outputs to the next: bytes on in the strips and in the filter. */
typedef struct {
    int32_t x, w;
} smg_stride;

/* All rows and columns of some channels, one channel after another. */
typedef struct {
    const int32_t *bias;
    int32_t channels;
    const uint32_t *x, *w; /* of the first channel, and bytes from channel to channel */
    int32_t x_on, w_on;
    int8_t *y;
    int32_t y_width, rows;    /* bytes of a row from its first output to behind the last */
    smg_stride stride, other; /* after one row, after the next, and so on in turn */
    int32_t y_c, zero;        /* zero: twice the zero point and 1 */
    int32_t kind;             /* the filter's width - 3, and 1 more where columns are stepped over */
    int32_t down, across;     /* bytes from strip to strip of a window, and to its odd half */
    int32_t y_on, y_row;      /* bytes from a row's end to the next one's start, from row to row */
    const int32_t *multiplier;
    const void *shift;
    int32_t narrow;      /* shifts are bytes, not words */
    int32_t last, share; /* bytes to the last strip of a window, and how many less from the third channel on */
} smg_slides;

/* Slide, multiply, scale. */
void smg_slide(const smg_slides *slides);

/* One row of a filter over one strip: r0 and r1 walk over columns and filter, r8-r11 are the sums. */
__asm__(SMG_SCALE_MACROS
        ".macro smg_add sum, x, w\n"
        "smlad \\sum, \\x, \\w, \\sum\n"
        ".endm\n"
        ".macro smg_taps1\n"
        "ldr r2, [r1], #4\n"
        "ldmia r0!, {r4-r7}\n"
        "smg_add r8, r4, r2\n smg_add r9, r5, r2\n smg_add r10, r6, r2\n smg_add r11, r7, r2\n"
        ".endm\n"
        ".macro smg_taps2\n"
        "ldmia r1!, {r2, r3}\n"
        "ldmia r0!, {r4-r7, r12}\n"
        "smg_add r8, r4, r2\n smg_add r8, r5, r3\n smg_add r9, r5, r2\n smg_add r9, r6, r3\n"
        "smg_add r10, r6, r2\n smg_add r10, r7, r3\n smg_add r11, r7, r2\n smg_add r11, r12, r3\n"
        ".endm\n"
        ".macro smg_taps3\n"
        "ldmia r1!, {r2-r4}\n"
        "ldmia r0!, {r5-r7}\n"
        "smg_add r8, r5, r2\n smg_add r8, r6, r3\n smg_add r8, r7, r4\n"
        "smg_add r9, r6, r2\n smg_add r9, r7, r3\n smg_add r10, r7, r2\n"
        "ldmia r0!, {r5-r7}\n"
        "smg_add r9, r5, r4\n smg_add r10, r5, r3\n smg_add r10, r6, r4\n"
        "smg_add r11, r5, r2\n smg_add r11, r6, r3\n smg_add r11, r7, r4\n"
        ".endm\n"
        ".macro smg_taps4\n"
        "ldmia r1!, {r2-r5}\n"
        "ldmia r0!, {r6, r7, r12, lr}\n"
        "smg_add r8, r6, r2\n smg_add r8, r7, r3\n smg_add r8, r12, r4\n smg_add r8, lr, r5\n"
        "smg_add r9, r7, r2\n smg_add r9, r12, r3\n smg_add r9, lr, r4\n"
        "smg_add r10, r12, r2\n smg_add r10, lr, r3\n smg_add r11, lr, r2\n"
        "ldmia r0!, {r6, r7, r12}\n"
        "smg_add r9, r6, r5\n smg_add r10, r6, r4\n smg_add r10, r7, r5\n"
        "smg_add r11, r6, r3\n smg_add r11, r7, r4\n smg_add r11, r12, r5\n"
        ".endm\n"
        ".macro smg_taps5\n"
        "ldmia r1!, {r2-r6}\n"
        "ldmia r0!, {r7, r12, lr}\n"
        "smg_add r8, r7, r2\n smg_add r8, r12, r3\n smg_add r8, lr, r4\n"
        "smg_add r9, r12, r2\n smg_add r9, lr, r3\n smg_add r10, lr, r2\n"
        "ldmia r0!, {r7, r12, lr}\n"
        "smg_add r8, r7, r5\n smg_add r8, r12, r6\n"
        "smg_add r9, r7, r4\n smg_add r9, r12, r5\n smg_add r9, lr, r6\n"
        "smg_add r10, r7, r3\n smg_add r10, r12, r4\n smg_add r10, lr, r5\n"
        "smg_add r11, r7, r2\n smg_add r11, r12, r3\n smg_add r11, lr, r4\n"
        "ldmia r0!, {r7, r12}\n"
        "smg_add r10, r7, r6\n smg_add r11, r7, r5\n smg_add r11, r12, r6\n"
        ".endm\n"
        ".macro smg_taps7\n" /* the columns that the first four taps end with are those the last three begin with */
        "smg_taps4\n"
        "ldmia r1!, {r2-r4}\n"
        "smg_add r8, r6, r2\n smg_add r8, r7, r3\n smg_add r8, r12, r4\n"
        "smg_add r9, r7, r2\n smg_add r9, r12, r3\n smg_add r10, r12, r2\n"
        "ldmia r0!, {r6, r7, r12}\n"
        "smg_add r9, r6, r4\n smg_add r10, r6, r3\n smg_add r10, r7, r4\n"
        "smg_add r11, r6, r2\n smg_add r11, r7, r3\n smg_add r11, r12, r4\n"
        ".endm\n");

/* Whole windows, and what becomes of their sums. The frame:
 *     0 x, w, four biases      48 the window                 92 y_on, y_row
 *    24 y, y_c                 52 its end                   100 smg_slides, up to `other`
 *    32 twice multiplier, h    56 down, last, across        152 the near end
 *    40 zero                   68 rows to come, the row     156 multiplier, shift, narrow
 *    44 y_end                  76 stride, other             168 share, channels done */
__asm__(".macro smg_move by\n"
        "ldr r2, [sp, #\\by]\n"
        "add r0, r2\n"
        ".endm\n"
        ".macro smg_window strips, taps\n"
        ".rept \\strips - 2\n"
        "\\taps\n"
        "smg_move 56\n"
        ".endr\n"
        "\\taps\n"
        "smg_move 60\n"
        "\\taps\n"
        "ldr pc, [sp, #52]\n"
        ".endm\n"
        ".macro smg_window_halves strips, even, odd\n"
        ".rept \\strips - 2\n"
        "\\even\n"
        "smg_move 64\n"
        "\\odd\n"
        "smg_move 56\n"
        ".endr\n"
        "\\even\n"
        "smg_move 64\n"
        "\\odd\n"
        "smg_move 60\n"
        "\\even\n"
        "smg_move 64\n"
        "\\odd\n"
        "ldr pc, [sp, #52]\n"
        ".endm\n"
        ".macro smg_outputs way\n"
        "add r1, sp, #24\n"
        "ldmia r1, {r1-r5}\n"
        "\\way r8, r3, r4, r5\n"
        "strb r8, [r1]\n"
        "\\way r9, r3, r4, r5\n"
        "strb r9, [r1, r2]\n"
        "\\way r10, r3, r4, r5\n"
        "strb r10, [r1, r2, lsl #1]\n"
        "add r8, r2, r2, lsl #1\n"
        "\\way r11, r3, r4, r5\n"
        "strb r11, [r1, r8]\n"
        "add r1, r1, r2, lsl #2\n"
        "ldr r3, [sp, #44]\n"
        "str r1, [sp, #24]\n"
        "cmp r1, r3\n"
        "bne 0b\n"
        ".endm\n");

__asm__(SMG_FUNCTION("smg_slide")
        "push {r4-r11, lr}\n"
        "sub sp, #176\n"
        "add r12, sp, #100\n"
        "ldmia r0!, {r1-r11, lr}\n"
        "stmia r12!, {r1-r11, lr}\n"
        "ldmia r0!, {r1-r8}\n"
        "adr r9, 30f\n"
        "ldr r4, [r9, r4, lsl #2]\n"
        "add r4, r9\n"
        "orr r4, #1\n"
        "str r1, [r12]\n"
        "str r2, [sp, #28]\n"
        "str r3, [sp, #40]\n"
        "adr r9, 1f\n"
        "cmn r3, #255\n"
        "it eq\n adreq r9, 7f\n"
        "str r9, [sp, #152]\n"
        "str r4, [sp, #48]\n"
        "str r5, [sp, #56]\n"
        "str r6, [sp, #64]\n"
        "strd r7, r8, [sp, #92]\n"
        "ldmia r0, {r1-r5}\n"
        "strd r1, r2, [sp, #156]\n"
        "strd r3, r5, [sp, #164]\n"
        "str r4, [sp, #60]\n"
        "movs r1, #0\n"
        "str r1, [sp, #172]\n"
        "5: add r0, sp, #100\n" /* a channel */
        "ldmia r0, {r1-r9}\n"
        "ldr r0, [r1], #4\n"
        "str r1, [sp, #100]\n"
        "strd r0, r0, [sp, #8]\n"
        "strd r0, r0, [sp, #16]\n"
        "ldr r1, [sp, #156]\n"
        "ldrd r12, lr, [sp, #160]\n"
        "ldr r10, [r1], #4\n"
        "cmp lr, #0\n"
        "ite eq\n ldreq r11, [r12], #4\n ldrsbne r11, [r12], #1\n"
        "strd r1, r12, [sp, #156]\n"
        "lsl r10, #1\n"
        "add r12, r11, #17\n"
        "cmp r12, #14\n"
        "itttt ls\n"
        "movls r11, #1\n"
        "lslls r11, r12\n"
        "ldrls r0, [sp, #152]\n"
        "bls 6f\n"
        "mvn r11, r11\n"
        "adr r0, 2f\n"
        "6: strd r10, r11, [sp, #32]\n"
        "orr r0, #1\n"
        "str r0, [sp, #52]\n"
        "strd r3, r4, [sp]\n"
        "str r3, [sp, #72]\n"
        "add r3, r5\n"
        "add r4, r6\n"
        "strd r3, r4, [sp, #108]\n"
        "str r7, [sp, #24]\n"
        "add r8, r7\n"
        "str r8, [sp, #44]\n"
        "adds r7, #1\n"
        "str r7, [sp, #124]\n"
        "str r9, [sp, #68]\n"
        "add r0, sp, #136\n"
        "ldmia r0, {r0-r3}\n"
        "strd r0, r1, [sp, #76]\n"
        "strd r2, r3, [sp, #84]\n"
        "0: ldmia sp, {r0, r1, r8-r11}\n" /* four outputs */
        "add r2, r0, #16\n"
        "str r2, [sp]\n"
        "ldr pc, [sp, #48]\n"
        "1: smg_outputs smg_near\n"
        "b 3f\n"
        "7: smg_outputs smg_floor\n"
        "b 3f\n"
        "2: smg_outputs smg_far\n"
        "3: ldr r2, [sp, #68]\n" /* the next row */
        "subs r2, #1\n"
        "beq 4f\n"
        "str r2, [sp, #68]\n"
        "add r0, sp, #72\n"
        "ldmia r0, {r0, r4-r9}\n"
        "add r0, r4\n"
        "ldr r11, [sp, #4]\n"
        "str r0, [sp, #72]\n"
        "add r11, r5\n"
        "strd r6, r7, [sp, #76]\n"
        "strd r4, r5, [sp, #84]\n"
        "strd r0, r11, [sp]\n"
        "add r1, r8\n"
        "add r3, r9\n"
        "str r1, [sp, #24]\n"
        "str r3, [sp, #44]\n"
        "b 0b\n"
        "4: ldrd r0, r1, [sp, #168]\n"
        "ldr r2, [sp, #104]\n"
        "ldr r3, [sp, #60]\n"
        "adds r1, #1\n"
        "str r1, [sp, #172]\n"
        "cmp r1, #2\n"
        "it eq\n subeq r3, r0\n"
        "str r3, [sp, #60]\n"
        "cmp r1, r2\n"
        "bne 5b\n"
        "add sp, #176\n"
        "pop {r4-r11, pc}\n"
        ".balign 4\n"
        "30: .word 31f - 30b, 32f - 30b, 33f - 30b, 34f - 30b, 35f - 30b, 36f - 30b\n"
        "31: smg_window 2, smg_taps3\n"
        "32: smg_window_halves 2, smg_taps2, smg_taps1\n"
        "33: smg_window 3, smg_taps5\n"
        "34: smg_window_halves 3, smg_taps3, smg_taps2\n"
        "35: smg_window 4, smg_taps7\n"
        "36: smg_window_halves 4, smg_taps4, smg_taps3\n" SMG_END("smg_slide"));

#endif
