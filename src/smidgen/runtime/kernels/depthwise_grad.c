/* The gradient of a depthwise convolution's input. */
#include "smidgen_training.h"

#include "grad_any.h"

void smg_depthwise_grad_g8(const smg_depthwise_grad_g8_params *p, const int8_t *dy, smg_weights w,
                           const uint8_t *mask, const int32_t *carry, int8_t *dx, int32_t *seen, void *scratch) {
    smg_rounding r = SMG_BEGIN(p, carry, smg_exponent(carry, p->slot_in));
    smg_depthwise_grad_any(p, &r, dy, w, mask, dx, scratch);
    *seen = (int32_t)r.seen;
}
