/* The gradient of a depthwise convolution's input as a convolution itself: filters, turned round, slide over it. */
#ifndef SMIDGEN_SLIDE_GRAD_H
#define SMIDGEN_SLIDE_GRAD_H

#include "smidgen_training.h"

#include "columns.h"

/* Whether a layer's gradient is computed this way, of a map that is a multiple of eight channels. */
static inline int32_t smg_grad_slides(const smg_depthwise_grad_g8_params *p) {
    return p->k_h == p->k_w && (p->k_w == 3 || p->k_w == 5 || p->k_w == 7) && p->stride_h == 1 && p->stride_w == 1 &&
           p->x_w >= 4 && p->x_h * p->x_w <= SMG_GRAD_ELEMENTS && p->x_h * p->x_w >= SMG_GRAD_LEAST;
}

/* All of it: the sums of eight channels are there before any is written, since dx may lie in the place of dy. */
void smg_slide_gradients(const smg_depthwise_grad_g8_params *p, smg_rounding *r, const int8_t *dy, smg_weights w,
                         const uint8_t *mask, int8_t *dx, void *scratch);

#endif
