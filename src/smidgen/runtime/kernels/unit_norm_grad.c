/* The gradient of rows brought to the length of one, by integers alone. */
#include "smidgen_training.h"

#include "normalize.h"
#include "rounding.h"

enum { UNIT_BITS = 14 }; /* of an element of such a row after the point */

static inline int64_t unit(int64_t inverse, int32_t half, int32_t step) {
    return (step * inverse) >> (SMG_ROOT_BITS - UNIT_BITS - half);
}

void smg_unit_norm_grad_g8(const smg_unit_norm_grad_g8_params *p, const int8_t *dy, const int8_t *x,
                           const uint8_t *mask, const int32_t *step_state, int8_t *dx, int32_t *peak_bits) {
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    for (int32_t row = 0; row < p->rows; row++) {
        const int32_t start = row * p->c;
        int64_t squares = 0, along = 0;
        int32_t half;
        for (int32_t i = start; i < start + p->c; i++) squares += (x[i] - p->x_zero) * (x[i] - p->x_zero);
        const int64_t inverse = smg_inverse_root((uint64_t)(squares > 1 ? squares : 1), &half);
        for (int32_t i = start; i < start + p->c; i++) along += dy[i] * unit(inverse, half, x[i] - p->x_zero);
        const int32_t right = smg_clamp(SMG_ROOT_BITS + UNIT_BITS - half - p->fraction, 0, 63);
        for (int32_t c = 0, count; c < p->c; c += count) {
            int32_t sums[SMG_SUMS];
            count = smg_min(SMG_SUMS, p->c - c);
            for (int32_t k = 0; k < count; k++) {
                const int32_t at = start + c + k;
                const int64_t part = (unit(inverse, half, x[at] - p->x_zero) * along) >> UNIT_BITS;
                const int64_t rest = dy[at] * ((int64_t)1 << UNIT_BITS) - part;
                sums[k] = (int32_t)((rest * inverse) >> right);
            }
            smg_round_sums(&r, sums, count, c, start + c, mask, dx + start + c);
        }
    }
    *peak_bits = (int32_t)r.peak_bits;
}
