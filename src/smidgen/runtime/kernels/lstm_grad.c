/* The gradient of an LSTM's input, back through time, from the slopes of every step. */
#include "smidgen_training.h"

#include "rounding.h"

enum { GATES = 4, SLOPES = 6, FINE = 9, COARSE = 7, SHARE = 8, SHARE_ZERO = -128, FRACTION = 12, MOST = 1 << 23 };

static inline int32_t limited(int64_t x) { return x > MOST ? MOST : x < -MOST ? -MOST : (int32_t)x; }

/* x / 2^bits, halves up. */
static inline int32_t shifted(int32_t x, int32_t bits) { return (x + ((1 << bits) >> 1)) >> bits; }

/* What the gates' gradients are to column `at` of what their weights are multiplied with. */
static int32_t through(const smg_lstm_grad_g8_params *p, const int32_t *dz, const int8_t *weights, int32_t columns,
                       int32_t at, const int32_t *scale, int32_t places) {
    int64_t total = (int64_t)1 << (places - 1);
    for (int32_t gate = 0; gate < GATES; gate++) {
        int64_t sum = 0;
        for (int32_t j = 0; j < p->cells; j++, dz++) sum += (int64_t)*dz * weights[(gate * p->cells + j) * columns + at];
        total += sum * scale[gate];
    }
    return limited(total >> places);
}

/* One step back: dh and dc of each cell become the gradients of its gates, and dc that of the step before. */
static void back(const smg_lstm_grad_g8_params *p, const int8_t *dy, const int8_t *slopes, int32_t *dh, int32_t *dc,
                 int32_t *dz) {
    for (int32_t i = 0; i < p->cells; i++, slopes += SLOPES) {
        const int32_t h = limited((int64_t)(dy ? dy[i] : 0) * (1 << FRACTION) + dh[i]);
        const int32_t c = limited((int64_t)dc[i] + shifted(h * slopes[1], COARSE));
        dz[i] = limited(shifted(c * slopes[2], FINE));
        dz[p->cells + i] = limited(shifted(c * slopes[3], FINE - p->bits));
        dz[2 * p->cells + i] = limited(shifted(c * slopes[4], COARSE));
        dz[3 * p->cells + i] = limited(shifted(h * slopes[0], FINE));
        dc[i] = shifted(c * (slopes[5] - SHARE_ZERO), SHARE);
    }
}

void smg_lstm_grad_g8(const smg_lstm_grad_g8_params *p, const int8_t *dy, const int8_t *slopes, const int8_t *w,
                      const int8_t *u, const uint8_t *mask, const int32_t *step_state, int8_t *dx, int32_t *peak_bits,
                      void *scratch) {
    int32_t *const dh = scratch, *const dc = dh + p->cells, *const dz = dc + p->cells;
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    for (int32_t i = 0; i < 2 * p->cells; i++) dh[i] = 0;
    for (int32_t t = p->steps - 1; t >= 0; t--) {
        const int8_t *const given = p->whole ? dy + t * p->cells : t == p->steps - 1 ? dy : 0;
        back(p, given, slopes + t * p->cells * SLOPES, dh, dc, dz);
        for (int32_t i = 0; i < p->cells; i++) dh[i] = through(p, dz, u, p->cells, i, p->h_scale, p->h_places);
        for (int32_t first = 0; first < p->inputs; first += SMG_SUMS) {
            const int32_t count = smg_min(SMG_SUMS, p->inputs - first), index = t * p->inputs + first;
            int32_t sums[SMG_SUMS];
            for (int32_t i = 0; i < count; i++)
                sums[i] = through(p, dz, w, p->inputs, first + i, p->x_scale, p->x_places);
            smg_round_sums(&r, sums, count, first, index, mask, dx + index);
        }
    }
    *peak_bits = (int32_t)r.peak_bits;
}
