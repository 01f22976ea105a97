/* The gradient of bilinear resizing: sums over all points near an element, each times its shares. */
#include "smidgen_training.h"

#include "rounding.h"

static inline int32_t begin(const int32_t *end, int32_t at) { return at > 0 ? end[at - 1] : 0; }

/* Add up `count` channels of all points near row iy and column ix. */
static inline void element(const smg_resize_bilinear_grad_g8_params *p, const int8_t *dy, int32_t iy, int32_t ix,
                           int32_t count, int32_t *sums) {
    for (int32_t i = begin(p->row_end, iy); i < p->row_end[iy]; i++) {
        for (int32_t j = begin(p->column_end, ix); j < p->column_end[ix]; j++) {
            const int32_t share = p->row_share[i] * p->column_share[j];
            const int8_t *point = dy + (p->row[i] * p->y_w + p->column[j]) * p->c;
            for (int32_t n = 0; n < count; n++) sums[n] += point[n] * share;
        }
    }
}

void smg_resize_bilinear_grad_g8(const smg_resize_bilinear_grad_g8_params *p, const int8_t *dy, const uint8_t *mask,
                                 const int32_t *step_state, int8_t *dx, int32_t *peak_bits) {
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    for (int32_t at = 0; at < p->x_h * p->x_w; at++) {
        for (int32_t c = 0; c < p->c; c += SMG_SUMS) {
            const int32_t count = smg_min(SMG_SUMS, p->c - c), index = at * p->c + c;
            int32_t sums[SMG_SUMS] = {0};
            element(p, dy + c, at / p->x_w, at % p->x_w, count, sums);
            smg_round_sums(&r, sums, count, c, index, mask, dx + index);
        }
    }
    *peak_bits = (int32_t)r.peak_bits;
}
