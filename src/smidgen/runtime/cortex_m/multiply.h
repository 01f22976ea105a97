/* Matrices of packed halfwords multiplied: two channels' weights with tiles of four pixels. */
#ifndef SMIDGEN_MULTIPLY_H
#define SMIDGEN_MULTIPLY_H

#include <stdint.h>

#include "assembly.h"

/* Two channels against consecutive tiles. A tile is [step][4 pixels] words of two elements and, as the weights are,
 * for two steps at a time: elements 0 and 2 of four, then elements 1 and 3. */
typedef struct {
    const uint32_t *w, *w_end; /* [step][2 channels] */
    const uint32_t *x, *x_end;
    int32_t *sums;       /* [tile][2 channels][4 pixels]: where sums start; without, at the biases */
    int32_t steps, keep; /* steps: fours of elements; keep: leave the sums where they started */
    int8_t *y;
    int32_t y_c;
    int32_t multiplier, shift, zero; /* of the first channel; twice the zero point and 1 */
    int32_t next_multiplier, next_shift;
    int32_t bias, next_bias;
} smg_tiles;

/* Widen `words` words of each of four pixels, which are `apart` bytes from each other, to a tile, adding `minus`, the
 * zero point's negative in both halves; then the next four pixels. */
void smg_widen_pixels(const int8_t *x, int32_t apart, int32_t words, uint32_t minus, uint32_t *to, int32_t tiles);

/* Widen `words` words of two rows of weights, which are `apart` bytes from each other. */
void smg_widen_pair(const int8_t *w, int32_t apart, int32_t words, uint32_t *to);

/* Multiply, and scale or keep. */
void smg_multiply_tiles(const smg_tiles *tiles);

__asm__(SMG_FUNCTION("smg_widen_pixels")
        "push {r4-r11, lr}\n"
        "ldr r12, [sp, #36]\n"
        "add lr, r1, r1, lsl #1\n"
        "push {r0, r2}\n" /* the tile's first pixel, and the count of words */
        "0: ldr r9, [r0, r1]\n"
        "ldr r10, [r0, r1, lsl #1]\n"
        "ldr r11, [r0, lr]\n"
        "ldr r8, [r0], #4\n"
        "sxtab16 r4, r3, r8\n"
        "sxtab16 r5, r3, r9\n"
        "sxtab16 r6, r3, r10\n"
        "sxtab16 r7, r3, r11\n"
        "stmia r12!, {r4-r7}\n"
        "sxtab16 r8, r3, r8, ror #8\n"
        "sxtab16 r9, r3, r9, ror #8\n"
        "sxtab16 r10, r3, r10, ror #8\n"
        "sxtab16 r11, r3, r11, ror #8\n"
        "stmia r12!, {r8-r11}\n"
        "subs r2, #1\n"
        "bne 0b\n"
        "ldr r4, [sp, #48]\n"
        "subs r4, #1\n"
        "str r4, [sp, #48]\n"
        "ldrd r0, r2, [sp]\n"
        "add r0, r0, r1, lsl #2\n"
        "str r0, [sp]\n"
        "bne 0b\n"
        "add sp, #8\n"
        "pop {r4-r11, pc}\n" SMG_END("smg_widen_pixels"));

__asm__(SMG_FUNCTION("smg_widen_pair")
        "push {r4-r7}\n"
        "0: ldr r7, [r0, r1]\n"
        "ldr r6, [r0], #4\n"
        "sxtb16 r5, r7\n"
        "sxtb16 r4, r6\n"
        "sxtb16 r7, r7, ror #8\n"
        "sxtb16 r6, r6, ror #8\n"
        "stmia r3!, {r4-r7}\n"
        "subs r2, #1\n"
        "bne 0b\n"
        "pop {r4-r7}\n"
        "bx lr\n" SMG_END("smg_widen_pair"));

/* The frame: 0 w, 4 eight biases, 36 w_end, 40 x_end, 44 sums, 48 where to enter the loop of four steps, 52 the end, 56 y,
 * y_c, twice the multiplier, h, zero, 76 the next multiplier and h.
 * r0 and r1 walk over pixels and weights, r6-r9 and r10-lr are the sums. */
__asm__(SMG_SCALE_MACROS
        ".macro smg_products pixels, p, q, r, s\n"
        "ldmia r0!, {r4, r5}\n"
        "smlad \\p, r4, r2, \\p\n"
        "smlad \\q, r5, r2, \\q\n"
        "smlad \\r, r4, r3, \\r\n"
        "smlad \\s, r5, r3, \\s\n"
        ".endm\n"
        ".macro smg_step\n"
        ".rept 2\n"
        "ldmia r1!, {r2, r3}\n"
        "smg_products 01, r6, r7, r10, r11\n"
        "smg_products 23, r8, r9, r12, lr\n"
        ".endr\n"
        ".endm\n"
        ".macro smg_finish way\n"
        "add r1, sp, #56\n"
        "ldmia r1, {r1-r5}\n"
        "\\way r6, r3, r4, r5\n"
        "strb r6, [r1]\n"
        "\\way r7, r3, r4, r5\n"
        "strb r7, [r1, r2]\n"
        "\\way r8, r3, r4, r5\n"
        "strb r8, [r1, r2, lsl #1]\n"
        "add r6, r2, r2, lsl #1\n"
        "\\way r9, r3, r4, r5\n"
        "strb r9, [r1, r6]\n"
        "ldrd r3, r4, [sp, #76]\n"
        "adds r1, #1\n"
        "\\way r10, r3, r4, r5\n"
        "strb r10, [r1]\n"
        "\\way r11, r3, r4, r5\n"
        "strb r11, [r1, r2]\n"
        "\\way r12, r3, r4, r5\n"
        "strb r12, [r1, r2, lsl #1]\n"
        "\\way lr, r3, r4, r5\n"
        "strb lr, [r1, r6]\n"
        "add r1, r1, r2, lsl #2\n"
        "subs r1, #1\n"
        "ldr r2, [sp, #40]\n"
        "str r1, [sp, #56]\n"
        "cmp r0, r2\n"
        "bne 0b\n"
        "add sp, #84\n"
        "pop {r4-r11, pc}\n"
        ".endm\n");

__asm__(SMG_FUNCTION("smg_multiply_tiles")
        "push {r4-r11, lr}\n"
        "sub sp, #84\n"
        "ldmia r0!, {r1-r11}\n" /* w, w_end, x, x_end, sums, steps, keep, y, y_c, multiplier, shift */
        "str r1, [sp]\n"
        "str r2, [sp, #36]\n"
        "strd r4, r5, [sp, #40]\n"
        "strd r8, r9, [sp, #56]\n"
        "mov r1, r3\n"
        "ands r6, #3\n"
        "adr r2, 14f\n"
        "it eq\n adreq r2, 11f\n"
        "cmp r6, #2\n"
        "it eq\n adreq r2, 13f\n"
        "it hi\n adrhi r2, 12f\n"
        "orr r2, #1\n"
        "ldmia r0, {r3, r4, r6, r8, r9}\n" /* zero, the next multiplier and shift, biases */
        "strd r8, r8, [sp, #4]\n"
        "strd r8, r8, [sp, #12]\n"
        "strd r9, r9, [sp, #20]\n"
        "strd r9, r9, [sp, #28]\n"
        "lsl r10, #1\n"
        "lsl r4, #1\n"
        "add r8, r11, #17\n"
        "add r9, r6, #17\n"
        "cmp r8, #14\n"
        "it ls\n cmpls r9, #14\n"
        "ittee ls\n"
        "movls r11, #1\n"
        "lslls r6, r11, r9\n"
        "mvnhi r11, r11\n"
        "mvnhi r6, r6\n"
        "ite ls\n adrls r12, 1f\n adrhi r12, 2f\n"
        "it ls\n lslls r11, r8\n"
        "strd r10, r11, [sp, #64]\n"
        "str r3, [sp, #72]\n"
        "strd r4, r6, [sp, #76]\n"
        "cmp r7, #0\n"
        "it ne\n adrne r12, 3f\n"
        "orr r12, #1\n"
        "strd r2, r12, [sp, #48]\n"
        "mov r0, r1\n"
        "cbnz r5, 4f\n"
        "0: ldmia sp, {r1, r6-r12, lr}\n"
        "ldr pc, [sp, #48]\n"
        "4: ldmia r5, {r6-r12, lr}\n"
        "ldr r1, [sp]\n"
        "ldr pc, [sp, #48]\n"
        "11: smg_step\n"
        "12: smg_step\n"
        "13: smg_step\n"
        "14: smg_step\n"
        "ldr r5, [sp, #36]\n"
        "cmp r1, r5\n"
        "bne 11b\n"
        "ldr pc, [sp, #52]\n"
        "1: smg_finish smg_near\n"
        "2: smg_finish smg_far\n"
        "3: ldr r5, [sp, #44]\n"
        "stmia r5!, {r6-r12, lr}\n"
        "ldr r2, [sp, #40]\n"
        "str r5, [sp, #44]\n"
        "cmp r0, r2\n"
        "bne 4b\n"
        "add sp, #84\n"
        "pop {r4-r11, pc}\n" SMG_END("smg_multiply_tiles"));

#endif
