/* Gradients of convolutions' inputs for any geometry; faster kernels leave to them what they are not made for. */
#ifndef SMIDGEN_GRAD_ANY_H
#define SMIDGEN_GRAD_ANY_H

#include "smidgen_training.h"

#include "rounding.h"

void smg_conv2d_grad_any(const smg_conv2d_grad_g8_params *p, smg_rounding *r, const int8_t *dy, smg_weights w,
                         const uint8_t *mask, int8_t *dx);
void smg_depthwise_grad_any(const smg_depthwise_grad_g8_params *p, smg_rounding *r, const int8_t *dy, smg_weights w,
                            const uint8_t *mask, int8_t *dx, void *scratch);

#endif
