/* Matrices of packed halfwords multiplied: two channels' weights with tiles of four pixels. */
#ifndef SMIDGEN_MULTIPLY_H
#define SMIDGEN_MULTIPLY_H

#include <stdint.h>

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

#endif
