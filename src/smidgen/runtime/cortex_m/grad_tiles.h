/* The gradient of a 1x1 convolution's input as a convolution with the weights transposed: see multiply.h. */
#ifndef SMIDGEN_GRAD_TILES_H
#define SMIDGEN_GRAD_TILES_H

#include "smidgen_training.h"

#include "columns.h"

/* Whether a 1x1 convolution's gradient can be computed this way. */
static inline int32_t smg_has_tiles(const smg_conv2d_grad_g8_params *p) {
    return p->x_h * p->x_w % 4 == 0 && p->y_c % 4 == 0 && p->y_c <= SMG_GRAD_DEEPEST && p->x_c % SMG_COLUMNS == 0;
}

/* Whether few gradients are zero, which need not be multiplied: some are looked at. */
static inline int32_t smg_is_dense(const smg_conv2d_grad_g8_params *p, const int8_t *dy) {
    const int32_t step = 7, count = p->x_h * p->x_w * p->y_c;
    int32_t found = 0, seen = 0;
    for (int32_t i = 0; i < count; i += step, seen++) found += dy[i] != 0;
    return 100 * found > SMG_GRAD_DENSE * seen;
}

/* All of it, eight channels of some pixels at a time. */
void smg_grad_tiles(const smg_conv2d_grad_g8_params *p, smg_rounding *r, const int8_t *dy, smg_weights w, int8_t *dx,
                    void *scratch);

#endif
