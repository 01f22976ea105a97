/* The gradient of an LSTM's input, back through time, from the slopes of every step. */
#include "smidgen_training.h"

#include "rounding.h"
#include "time_grad.h"

enum { GATES = 4, SLOPES = 6, FINE = 9 };

/* One step back: dh and dc of each cell become the gradients of its gates, and dc that of the step before. */
static void back(const smg_lstm_grad_g8_params *p, const int8_t *dy, const int8_t *slopes, int32_t *dh, int32_t *dc,
                 int32_t *dz) {
    for (int32_t i = 0; i < p->cells; i++, slopes += SLOPES) {
        const int32_t h = smg_limited((int64_t)(dy ? dy[i] : 0) * (1 << SMG_POINT) + dh[i]);
        const int32_t c = smg_limited((int64_t)dc[i] + smg_halves_up(h * slopes[1], SMG_COARSE));
        dz[i] = smg_limited(smg_halves_up(c * slopes[2], FINE));
        dz[p->cells + i] = smg_limited(smg_halves_up(c * slopes[3], FINE - p->bits));
        dz[2 * p->cells + i] = smg_limited(smg_halves_up(c * slopes[4], SMG_COARSE));
        dz[3 * p->cells + i] = smg_limited(smg_halves_up(h * slopes[0], FINE));
        dc[i] = smg_halves_up(c * (slopes[5] - SMG_SHARE_ZERO), SMG_SHARE);
    }
}

void smg_lstm_grad_g8(const smg_lstm_grad_g8_params *p, const int8_t *dy, const int8_t *slopes, const int8_t *w,
                      const int8_t *u, const uint8_t *mask, const int32_t *step_state, int8_t *dx, int32_t *peak_bits,
                      void *scratch) {
    int32_t *const dh = scratch, *const dc = dh + p->cells, *const dz = dc + p->cells;
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    for (int32_t i = 0; i < 2 * p->cells; i++) dh[i] = 0;
    for (int32_t t = p->steps - 1; t >= 0; t--) {
        back(p, smg_given_at(p, dy, t), slopes + t * p->cells * SLOPES, dh, dc, dz);
        for (int32_t i = 0; i < p->cells; i++)
            dh[i] = smg_through(dz, GATES, p->cells, u, p->cells, i, p->h_scale, p->h_places);
        for (int32_t first = 0; first < p->inputs; first += SMG_SUMS) {
            const int32_t count = smg_min(SMG_SUMS, p->inputs - first), index = t * p->inputs + first;
            int32_t sums[SMG_SUMS];
            for (int32_t i = 0; i < count; i++)
                sums[i] = smg_through(dz, GATES, p->cells, w, p->inputs, first + i, p->x_scale, p->x_places);
            smg_round_sums(&r, sums, count, first, index, mask, dx + index);
        }
    }
    *peak_bits = (int32_t)r.peak_bits;
}
