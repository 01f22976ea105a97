/* The gradient of a GRU's input, back through time, from the slopes of every step. */
#include "smidgen_training.h"

#include "rounding.h"
#include "time_grad.h"

enum { GATES = 3, SLOPES = 5, TO_Z = 8, TO_R = 6 };

/* dh of each cell, with what the step itself is given, becomes the gradients of its gates r, z and n. */
static void back(const smg_gru_grad_g8_params *p, const int8_t *dy, const int8_t *slopes, int32_t *dh, int32_t *dz) {
    for (int32_t i = 0; i < p->cells; i++, slopes += SLOPES) {
        const int32_t h = smg_limited((int64_t)(dy ? dy[i] : 0) * (1 << SMG_POINT) + dh[i]);
        const int32_t n = smg_limited(smg_halves_up(h * slopes[1], SMG_COARSE));
        dz[i] = smg_limited(smg_halves_up(n * slopes[2], TO_R));
        dz[p->cells + i] = smg_limited(smg_halves_up(h * slopes[0], TO_Z));
        dz[2 * p->cells + i] = n;
        dh[i] = h;
    }
}

/* dh of the step before: what z lets pass, and what the gates give; n's gradient becomes what r lets pass of it. */
static void before(const smg_gru_grad_g8_params *p, const int8_t *slopes, const int8_t *u, int32_t *dh, int32_t *dz) {
    int32_t *const n = dz + 2 * p->cells;
    for (int32_t i = 0; i < p->cells; i++)
        n[i] = smg_halves_up(n[i] * (slopes[i * SLOPES + 4] - SMG_SHARE_ZERO), SMG_SHARE);
    for (int32_t i = 0; i < p->cells; i++) {
        const int32_t passed = smg_halves_up(dh[i] * (slopes[i * SLOPES + 3] - SMG_SHARE_ZERO), SMG_SHARE);
        dh[i] = smg_limited((int64_t)passed + smg_through(dz, GATES, p->cells, u, p->cells, i, p->h_scale, p->h_places));
    }
}

void smg_gru_grad_g8(const smg_gru_grad_g8_params *p, const int8_t *dy, const int8_t *slopes, const int8_t *w,
                     const int8_t *u, const uint8_t *mask, const int32_t *step_state, int8_t *dx, int32_t *peak_bits,
                     void *scratch) {
    int32_t *const dh = scratch, *const dz = dh + p->cells;
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    for (int32_t i = 0; i < p->cells; i++) dh[i] = 0;
    for (int32_t t = p->steps - 1; t >= 0; t--) {
        const int8_t *const kinds = slopes + t * p->cells * SLOPES;
        back(p, smg_given_at(p, dy, t), kinds, dh, dz);
        for (int32_t first = 0; first < p->inputs; first += SMG_SUMS) {
            const int32_t count = smg_min(SMG_SUMS, p->inputs - first), index = t * p->inputs + first;
            int32_t sums[SMG_SUMS];
            for (int32_t i = 0; i < count; i++)
                sums[i] = smg_through(dz, GATES, p->cells, w, p->inputs, first + i, p->x_scale, p->x_places);
            smg_round_sums(&r, sums, count, first, index, mask, dx + index);
        }
        before(p, kinds, u, dh, dz);
    }
    *peak_bits = (int32_t)r.peak_bits;
}
