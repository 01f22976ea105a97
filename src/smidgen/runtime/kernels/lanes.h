/* Sixteen channels at a time: the width in which convolutions accumulate and requantize.
 *
 * Lanes past the last channel are computed too, on whatever lies there, and not stored. */
#ifndef SMIDGEN_LANES_H
#define SMIDGEN_LANES_H

#include <stdint.h>

#include "working.h"

/* Two pixels are requantized at once: gcc leaves loops of more than sixteen rounds to its vectorizer. */
enum { SMG_PAIR = 2 * SMG_LANES };

/* Where the accumulators of sixteen channels start, and how they become int8: the latter twice over. */
typedef struct {
    int32_t bias[SMG_LANES];
    int32_t multiplier[SMG_PAIR], left[SMG_PAIR], right[SMG_PAIR], mask[SMG_PAIR];
    int32_t lefts; /* 0 where no channel is shifted to the left, as is usual */
    int32_t zero, lo, hi;
} smg_requantizer;

/* Set up biases and scales of `channels` channels; the rest of q is the caller's. */
void smg_lanes_scales(smg_requantizer *q, const int32_t *bias, const int32_t *multiplier, const int8_t *shift,
                      int32_t channels);

/* to[i] = x[i] - zero. */
void smg_lanes_widen(const int8_t *x, int32_t count, int32_t zero, int16_t *to);

/* to[column][lane] = x[column * step + lane] - zero. */
void smg_lanes_widen_columns(const int8_t *x, int32_t step, int32_t columns, int32_t zero, int32_t *to);

/* to[i][lane] = w[lane][i] for i < length, of `channels` rows of weights that are k apart. */
void smg_lanes_pack(const int8_t *w, int32_t k, int32_t channels, int32_t length, int16_t *to);

/* acc[pixel][lane] = bias[lane]. */
void smg_lanes_start(const smg_requantizer *q, uint32_t *acc, int32_t pixels);

/* acc[pixel][lane] += x[pixel][i] * w[i][lane] for i < length, SMG_PIXELS pixels at once as often as `pixels` asks;
 * pixels are `apart` elements from each other in x. */
void smg_lanes_multiply(uint32_t *acc, int32_t pixels, const int16_t *x, int32_t apart, const int16_t *w,
                        int32_t length);

/* acc[pixel][lane] += x[pixel * stride + tap][lane] * w[tap][lane] for tap < taps. */
void smg_lanes_slide(uint32_t *acc, int32_t pixels, const int32_t *x, int32_t stride, const int32_t *w, int32_t taps);

/* `channels` bytes at y + pixel * step from acc[pixel][lane]; of an odd number of pixels one more is read. */
void smg_lanes_requantize(const smg_requantizer *q, const uint32_t *acc, int32_t pixels, int32_t channels, int8_t *y,
                          int32_t step);

#endif
