/* The gradient of a softmax, from the shares it gave. */
#include "smidgen_training.h"

#include "rounding.h"

void smg_softmax_grad_g8(const smg_softmax_grad_g8_params *p, const int8_t *dy, const int8_t *y, const uint8_t *mask,
                         const int32_t *step_state, int8_t *dx, int32_t *peak_bits) {
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    for (int32_t row = 0; row < p->rows; row++) {
        const int32_t start = row * p->c;
        int32_t total = 0, sums[SMG_SUMS];
        for (int32_t i = start; i < start + p->c; i++) total += (y[i] + 128) * dy[i];
        for (int32_t c = 0, count; c < p->c; c += count) {
            count = smg_min(SMG_SUMS, p->c - c);
            for (int32_t i = 0; i < count; i++) {
                const int32_t at = start + c + i;
                sums[i] = (y[at] + 128) * ((256 * dy[at] - total) >> p->dropped);
            }
            smg_round_sums(&r, sums, count, c, start + c, mask, dx + start + c);
        }
    }
    *peak_bits = (int32_t)r.peak_bits;
}
