/* The gradient of a convolution's weights, tap by tap: what kernels for any core have in common. */
#ifndef SMIDGEN_WEIGHT_TAPS_H
#define SMIDGEN_WEIGHT_TAPS_H

#include "smidgen_training.h"

#include "accumulate.h"
#include "unroll.h"
#include "window.h"

/* One tap of the weights of one output channel, dy's first: sums[n] = Σ (x[n] − zero) dy over all positions. */
static inline void smg_weight_tap(const smg_conv2d_grad_weight_g8_params *p, const int8_t *x, const int8_t *dy,
                                  int32_t i, int32_t j, int32_t in, int32_t *sums) {
    const int32_t top = i * p->dilation_h - p->pad_h, left = j * p->dilation_w - p->pad_w;
    const smg_taps rows = smg_taps_inside(top, p->y_h, p->stride_h, p->x_h);
    const smg_taps columns = smg_taps_inside(left, p->y_w, p->stride_w, p->x_w);
    const int32_t count = columns.to - columns.from, high = rows.to - rows.from;
    /* Where whole rows follow each other in both maps, they are taken as one. */
    const int joined = p->stride_h == 1 && p->stride_w == 1 && p->x_w == p->y_w && count == p->y_w;
    const int32_t length = joined ? high * count : count;
    int32_t total = 0;
    for (int32_t n = 0; n < in; n++) sums[n] = 0;
    for (int32_t oy = rows.from; oy < rows.to; oy += joined ? high : 1) {
        const int8_t *d = dy + (oy * p->y_w + columns.from) * p->y_c;
        const int8_t *from = x + ((top + oy * p->stride_h) * p->x_w + left + columns.from * p->stride_w) * p->x_c;
        smg_accumulate(sums, in, d, p->y_c, from, p->stride_w * p->x_c, length);
        SMG_UNROLL
        for (int32_t at = 0; at < length; at++) total += d[at * p->y_c];
    }
    smg_take_zero(sums, in, p->x_zero, total);
}

/* The gradient of output channel o's weights. */
static inline void smg_weight_taps(const smg_conv2d_grad_weight_g8_params *p, const int8_t *x, const int8_t *dy,
                                   int32_t o, int32_t *sums) {
    const int32_t in = p->x_c / p->groups, group = o / (p->y_c / p->groups);
    for (int32_t i = 0; i < p->k_h; i++)
        for (int32_t j = 0; j < p->k_w; j++, sums += in) smg_weight_tap(p, x + group * in, dy + o, i, j, in, sums);
}

#endif
