/* The gradient of a convolution's input. */
#include "smidgen_training.h"

#include "grad_any.h"

void smg_conv2d_grad_g8(const smg_conv2d_grad_g8_params *p, const int8_t *dy, const smg_weights *w,
                        const uint8_t *mask, const int32_t *step_state, int8_t *dx, int32_t *peak_bits, void *scratch) {
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    (void)scratch;
    smg_conv2d_grad_any(p, &r, dy, *w, mask, dx);
    *peak_bits = (int32_t)r.peak_bits;
}
