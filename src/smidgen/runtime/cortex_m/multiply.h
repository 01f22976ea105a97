/* Matrices of packed halfwords multiplied: two channels' weights with tiles of four pixels. */
#ifndef SMIDGEN_MULTIPLY_H
#define SMIDGEN_MULTIPLY_H

#include <stdint.h>

#include "assembly.h"

/* Pairs of channels against consecutive tiles. A tile is [step][4 pixels] words of two elements and, as the weights
 * are, for two steps at a time: elements 0 and 2 of four, then elements 1 and 3. */
typedef struct {
    uint32_t *w, *w_end; /* [step][2 channels]: one pair after another is widened to it */
    const uint32_t *x, *x_end;
    int32_t *sums;       /* [pair][tile][2 channels][4 pixels]: where sums start; without, at the biases */
    int32_t steps, keep; /* steps: fours of elements; keep: leave the sums where they started */
    int8_t *y;
    int32_t y_c, zero;  /* zero: twice the zero point and 1 */
    const int8_t *from; /* weights, */
    int32_t apart;      /* bytes from channel to channel, */
    int32_t words;      /* words of each; none where they are widened already */
    const int32_t *bias, *multiplier;
    const void *shift;
    int32_t narrow; /* shifts are bytes, not words */
    int32_t pairs;
    int32_t tail; /* bytes behind the words */
} smg_tiles;

/* Widen `words` words of each of four pixels, which are `apart` bytes from each other, to a tile, adding `minus`, the
 * zero point's negative in both halves; then the next four pixels. */
void smg_widen_pixels(const int8_t *x, int32_t apart, int32_t words, uint32_t minus, uint32_t *to, int32_t tiles);

/* Widen `words` words of two rows of weights, which are `apart` bytes from each other. */
void smg_widen_pair(const int8_t *w, int32_t apart, int32_t words, uint32_t *to);

/* Windows of four pixels that are `step` bytes from each other: of `rows` rows, `run` bytes each, four or more. */
typedef struct {
    const int8_t *const *row; /* none where a row lies outside the map */
    int32_t rows, step, run;
    int8_t *to;
    int32_t apart;
    uint32_t zeros; /* for rows outside */
} smg_windows;

/* Copy them, `offset` bytes into the rows. */
void smg_copy_windows(const smg_windows *windows, int32_t offset);

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

/* Words of two channels in r6 and r7 go to r3; r0 and r1 are where they are from. */
__asm__(".macro smg_widen_pairs\n"
        "sxtb16 r4, r6\n"
        "sxtb16 r5, r7\n"
        "sxtb16 r6, r6, ror #8\n"
        "sxtb16 r7, r7, ror #8\n"
        "stmia r3!, {r4-r7}\n"
        ".endm\n"
        ".macro smg_widen_two\n"
        "ldr r7, [r0, r1]\n"
        "ldr r6, [r0], #4\n"
        "smg_widen_pairs\n"
        ".endm\n" SMG_FUNCTION("smg_widen_pair")
        "push {r4-r7}\n"
        "0: smg_widen_two\n"
        "subs r2, #1\n"
        "bne 0b\n"
        "pop {r4-r7}\n"
        "bx lr\n" SMG_END("smg_widen_pair"));

/* Of each run first the last four bytes, so as to be done with whole words. */
__asm__(SMG_FUNCTION("smg_copy_windows")
        "push {r4-r11, lr}\n"
        "ldmia r0, {r2-r8}\n"
        "subs r5, #4\n"
        "0: ldr r0, [r2], #4\n"
        "mov r9, r6\n"
        "mov r10, #4\n"
        "cbz r0, 3f\n"
        "add r0, r1\n"
        "1: mov r11, #0\n"
        "ldr r12, [r0, r5]\n"
        "str r12, [r9, r5]\n"
        "2: ldr r12, [r0, r11]\n"
        "str r12, [r9, r11]\n"
        "add r11, #4\n"
        "cmp r11, r5\n"
        "blt 2b\n"
        "add r0, r4\n"
        "add r9, r7\n"
        "subs r10, #1\n"
        "bne 1b\n"
        "b 5f\n"
        "3: mov r11, #0\n"
        "str r8, [r9, r5]\n"
        "4: str r8, [r9, r11]\n"
        "add r11, #4\n"
        "cmp r11, r5\n"
        "blt 4b\n"
        "add r9, r7\n"
        "subs r10, #1\n"
        "bne 3b\n"
        "5: add r6, r5\n"
        "adds r6, #4\n"
        "subs r3, #1\n"
        "bne 0b\n"
        "pop {r4-r11, pc}\n" SMG_END("smg_copy_windows"));

/* The frame:
 *    0 w, eight biases           52 its end                      84 from, apart, words      108 narrow
 *   36 w_end, x_end, sums        56 y, y_c                       96 bias, multiplier        112 pairs to come
 *   48 where to enter the loop   64 twice multiplier, h, zero   104 shift                   116 x, y, tail, the near end
 *      of eight steps            76 the same of the next channel
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
        ".endm\n");

__asm__(SMG_FUNCTION("smg_multiply_tiles")
        "push {r4-r11, lr}\n"
        "sub sp, #132\n"
        "ldmia r0!, {r1-r10}\n" /* w, w_end, x, x_end, sums, steps, keep, y, y_c, zero */
        "str r1, [sp]\n"
        "str r2, [sp, #36]\n"
        "strd r4, r5, [sp, #40]\n"
        "str r7, [sp, #52]\n"
        "str r9, [sp, #60]\n"
        "str r10, [sp, #72]\n"
        "strd r3, r8, [sp, #116]\n"
        "adr r1, 1f\n"
        "cmn r10, #255\n"
        "it eq\n adreq r1, 17f\n"
        "str r1, [sp, #128]\n"
        "and r6, #7\n"
        "adr r2, 20f\n"
        "ldr r6, [r2, r6, lsl #2]\n"
        "add r2, r6\n"
        "orr r2, #1\n"
        "str r2, [sp, #48]\n"
        "add r12, sp, #84\n"
        "ldmia r0, {r1-r9}\n"
        "stmia r12!, {r1-r8}\n"
        "str r9, [sp, #124]\n"
        "5: add r0, sp, #84\n" /* a pair */
        "ldmia r0, {r0-r2, r8, r10, r12}\n"
        "ldr r3, [sp]\n"
        "cmp r2, #0\n"
        "beq 7f\n"
        "add r9, r0, r1, lsl #1\n"
        "str r9, [sp, #84]\n"
        "lsrs r2, #1\n"
        "bcc 6f\n"
        "smg_widen_two\n"
        "beq 16f\n"
        "6: smg_widen_two\n"
        "smg_widen_two\n"
        "subs r2, #1\n"
        "bne 6b\n"
        "16: ldr r2, [sp, #124]\n"
        "cbz r2, 7f\n"
        "movs r6, #0\n"
        "movs r7, #0\n"
        "15: subs r2, #1\n"
        "add r9, r0, r2\n"
        "ldrb r4, [r0, r2]\n"
        "ldrb r5, [r9, r1]\n"
        "orr r6, r4, r6, lsl #8\n"
        "orr r7, r5, r7, lsl #8\n"
        "bne 15b\n"
        "smg_widen_pairs\n"
        "7: ldmia r8!, {r0, r1}\n"
        "ldmia r10!, {r4, r5}\n"
        "ldr r3, [sp, #108]\n"
        "strd r8, r10, [sp, #96]\n"
        "cbz r3, 8f\n"
        "ldrsb r6, [r12], #1\n"
        "ldrsb r7, [r12], #1\n"
        "b 9f\n"
        "8: ldmia r12!, {r6, r7}\n"
        "9: str r12, [sp, #104]\n"
        "strd r0, r0, [sp, #4]\n"
        "strd r0, r0, [sp, #12]\n"
        "strd r1, r1, [sp, #20]\n"
        "strd r1, r1, [sp, #28]\n"
        "lsl r4, #1\n"
        "lsl r5, #1\n"
        "add r8, r6, #17\n"
        "add r9, r7, #17\n"
        "cmp r8, #14\n"
        "it ls\n cmpls r9, #14\n"
        "itttt ls\n"
        "movls r6, #1\n"
        "lslls r7, r6, r9\n"
        "lslls r6, r8\n"
        "ldrls r12, [sp, #128]\n"
        "ittt hi\n"
        "mvnhi r6, r6\n"
        "mvnhi r7, r7\n"
        "adrhi r12, 2f\n"
        "strd r4, r6, [sp, #64]\n"
        "strd r5, r7, [sp, #76]\n"
        "ldr r5, [sp, #44]\n"
        "ldr r7, [sp, #52]\n"
        "ldrd r0, r1, [sp, #116]\n"
        "cmp r7, #1\n" /* keep; below, the address of another way */
        "it eq\n adreq r12, 3f\n"
        "orr r12, #1\n"
        "str r12, [sp, #52]\n"
        "str r1, [sp, #56]\n"
        "adds r1, #2\n"
        "str r1, [sp, #120]\n"
        "cbnz r5, 4f\n"
        "0: ldmia sp, {r1, r6-r12, lr}\n"
        "ldr pc, [sp, #48]\n"
        "4: ldmia r5, {r6-r12, lr}\n"
        "ldr r1, [sp]\n"
        "ldr pc, [sp, #48]\n"
        "21: smg_step\n"
        "22: smg_step\n"
        "23: smg_step\n"
        "24: smg_step\n"
        "25: smg_step\n"
        "26: smg_step\n"
        "27: smg_step\n"
        "28: smg_step\n"
        "ldr r5, [sp, #36]\n"
        "cmp r1, r5\n"
        "bne 21b\n"
        "ldr pc, [sp, #52]\n"
        "1: smg_finish smg_near\n"
        "b 10f\n"
        "17: smg_finish smg_floor\n"
        "b 10f\n"
        "2: smg_finish smg_far\n"
        "b 10f\n"
        "3: ldr r5, [sp, #44]\n"
        "stmia r5!, {r6-r12, lr}\n"
        "ldr r2, [sp, #40]\n"
        "str r5, [sp, #44]\n"
        "cmp r0, r2\n"
        "bne 4b\n"
        "movs r1, #1\n"
        "str r1, [sp, #52]\n"
        "10: ldr r1, [sp, #112]\n"
        "subs r1, #1\n"
        "str r1, [sp, #112]\n"
        "bne 5b\n"
        "add sp, #132\n"
        "pop {r4-r11, pc}\n"
        ".balign 4\n"
        "20: .word 21b - 20b, 28b - 20b, 27b - 20b, 26b - 20b, 25b - 20b, 24b - 20b, 23b - 20b, 22b - 20b\n" SMG_END("smg_multiply_tiles"));

#endif
