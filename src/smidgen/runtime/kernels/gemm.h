/* The matrix product that convolutions and dense layers share: a tile of pixels against a run of weight rows. */
#ifndef SMIDGEN_GEMM_H
#define SMIDGEN_GEMM_H

#include <stdint.h>

/* Pixels a tile holds; Op.scratch of the graph's ops counts with it. */
enum { SMG_TILE = 8 };

/* How the accumulators of channel n become int8. */
typedef struct {
    const int32_t *multiplier, *shift;
    int32_t y_zero, lo, hi;
} smg_requantize;

/* y[p][n] of `pixels` <= SMG_TILE pixels and `channels` rows of weights: x holds each pixel's k inputs with the
 * zero point taken off, w the rows of k weights, y[p] where pixel p's first channel goes. */
void smg_gemm_s8(const smg_requantize *q, const int16_t *x, int32_t pixels, int32_t k, const int8_t *w,
                 const int32_t *b, int32_t channels, int8_t *const *y);

#endif
