/* Matrices of packed halfwords multiplied: two channels' weights with tiles of two pixels. */
#ifndef SMIDGEN_MULTIPLY_H
#define SMIDGEN_MULTIPLY_H

#include <stdint.h>

/* Pairs of channels against consecutive tiles. A tile is [step][2 pixels] of two words, which hold elements 0 and 2 of
 * four, then elements 1 and 3. */
typedef struct {
    uint32_t *w; /* [step][2 channels] of two words: one pair after another is widened to it, with SMG_STREAM_WORDS more */
    const uint32_t *x, *x_end;
    int32_t *sums; /* [pair][tile][2 channels][2 pixels]: where sums start; without, at the biases */
    int32_t keep;  /* 1: leave the sums where they started; 2: put them, as words, where outputs go; -1: raise weights */
    int8_t *y;
    int32_t y_c, zero;  /* zero: twice the zero point and 1 */
    const int8_t *from; /* weights, */
    int32_t apart;      /* bytes from channel to channel, */
    int32_t words;      /* words of each, */
    int32_t tail;       /* bytes behind the words */
    const int32_t *bias, *multiplier;
    const int8_t *shift;
    int32_t pairs; /* to do; those left where the first of them has scales that are for C */
} smg_tiles;

/* Words that stand between the weights of so many elements, and behind them. */
#define SMG_STREAM_WORDS(length) (9 + (length) / 32)

/* Widen `words` words of each of two pixels, which are `apart` bytes from each other, to a tile, adding `minus`, the
 * zero point's negative in both halves; then the next two pixels `on` bytes further, four pixels `fours` times. */
void smg_widen_pixels(const int8_t *x, int32_t apart, int32_t words, uint32_t minus, uint32_t *to, int32_t on,
                      int32_t fours);

/* Windows of pixels that are `step` bytes from each other: of `rows` rows, `run` bytes each, four or more. */
typedef struct {
    const int8_t *const *row; /* none where a row lies outside the map */
    int32_t rows, step, run;
    int8_t *to;
    int32_t apart;
    uint32_t zeros; /* for rows outside */
    int32_t count;  /* of windows, up to four */
} smg_windows;

/* Copy them, `offset` bytes into the rows. */
void smg_copy_windows(const smg_windows *windows, int32_t offset);

/* Multiply, and scale or keep. Weights that are raised (see scaling.inc) take longer to widen, and outputs one instruction
 * less: of up to eight words, for sums that start at the biases and a zero point that is the least int8. */
void smg_multiply_tiles(smg_tiles *tiles);

#endif
