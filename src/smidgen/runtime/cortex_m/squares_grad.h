/* The gradient of a depthwise convolution's input over maps of four by four: see squares.h. */
#ifndef SMIDGEN_SQUARES_GRAD_H
#define SMIDGEN_SQUARES_GRAD_H

#include "smidgen_training.h"

#include "columns.h"

/* All of it, eight channels at a time. */
void smg_square_gradients(const smg_depthwise_grad_g8_params *p, smg_rounding *r, const int8_t *dy, smg_weights w,
                          const uint8_t *mask, int8_t *dx, void *scratch);

#endif
