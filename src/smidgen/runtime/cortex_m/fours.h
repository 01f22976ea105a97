/* Blocks of four channels of one output: products of taps that lie anywhere, or of rows of weights with one window. */
#ifndef SMIDGEN_FOURS_H
#define SMIDGEN_FOURS_H

#include <stdint.h>

/* Of channels on their own, taps come in runs, as far from each other as each other's; a run's first tap is `x_row` and
 * `w_row` bytes behind that of the run before. Of rows of weights, `w_on` is from row to row, `count` the words of each. */
typedef struct {
    const int8_t *x, *w; /* the first tap, or the window, of the first block */
    int32_t x_on, w_on;  /* bytes from tap to tap */
    uint32_t minus;      /* the input's zero point, negative, in both halves */
    int32_t count, runs; /* taps of a run */
    int32_t x_row, w_row;
    int32_t blocks, zero; /* zero: twice the output's zero point and 1 */
    const int32_t *bias, *multiplier;
    const int8_t *shift;
    int8_t *y;
    int32_t pixels, x_step, y_step; /* of several outputs: bytes from one to the next */
} smg_block_job;

/* Multiply, add and scale, channel by channel; gives how many blocks are left where one has scales that are for C. */
int32_t smg_cross(smg_block_job *job);

/* The same for some outputs whose taps are alike, with multipliers of a half and more and shifts of 3 to 17 to the
 * right. */
void smg_cross_pixels(smg_block_job *job);

/* The same of rows of weights. */
int32_t smg_rows(smg_block_job *job);

/* The sums alone of four rows of weights, `words` words each, with x. */
void smg_dot_rows(const int8_t *x, const int8_t *w, int32_t words, uint32_t minus, int32_t *sums);

#endif
