/* The gated recurrent unit in int8: gates and hidden state are int16, and the state is rounded to int8 once a step; and
 * its slopes. */
#include "smidgen_training.h"

#include "arithmetic.h"
#include "dots.h"
#include "fixed16.h"
#include "recurrence.h"

enum { SLOPES = 5, SHARE_ZERO = -128 };
enum { RESET, UPDATE, NEW, GATES, FROM_STATE = GATES }; /* the bias has one row more: of NEW, beside the state */

typedef struct {
    const int8_t *w, *u;
    const int32_t *b;
} weights;

/* What x gives to `count` gates, from `gate` on, of cell `at`. */
static void given(const smg_gru_s8_params *p, int32_t gate, int32_t count, int32_t at, const int8_t *x,
                  const weights *v, int32_t *sums) {
    const int32_t row = gate * p->cells + at;
    smg_dots(sums, count, x, v->w + row * p->inputs, p->cells * p->inputs, p->inputs, p->x_zero);
    for (int32_t i = 0; i < count; i++) {
        const int32_t bias = v->b[row + i * p->cells];
        sums[i] = smg_saturate16(smg_gate_part(sums[i], bias, p->x_multiplier[gate + i], p->x_shift[gate + i]));
    }
}

/* What a hidden state gives to them; none is zero, as in the first step. */
static void kept(const smg_gru_s8_params *p, int32_t gate, int32_t count, int32_t at, const int8_t *h,
                 const weights *v, int32_t *sums) {
    const int32_t row = gate * p->cells + at, wide = h ? p->cells : 0;
    smg_dots(sums, count, h, v->u + row * p->cells, p->cells * p->cells, wide, p->y_zero);
    for (int32_t i = 0; i < count; i++) {
        const int32_t bias = gate + i == NEW ? v->b[FROM_STATE * p->cells + at] : 0;
        sums[i] = smg_gate_part(sums[i], bias, p->h_multiplier[gate + i], p->h_shift[gate + i]);
    }
}

/* The states times their reset gates, in int8. */
static void reset(const smg_gru_s8_params *p, const int8_t *x, const int8_t *h, const weights *v,
                  const int16_t *state, int8_t *gated) {
    for (int32_t i = 0; i < p->cells; i++) {
        int32_t from_x, from_h;
        given(p, RESET, 1, i, x, v, &from_x);
        kept(p, RESET, 1, i, h, v, &from_h);
        const int32_t product = smg_sigmoid16(smg_saturate16(from_x + from_h)) * state[i];
        const int32_t steps = smg_multiply(product, p->gated_multiplier, p->gated_shift);
        gated[i] = smg_to_int8(steps, p->y_zero, INT8_MIN, INT8_MAX);
    }
}

/* From dh to z and to n, from dn to r, and the shares z and r. */
static void keep_slopes(int32_t r, int32_t z, int32_t n, int32_t from_state, int32_t before, int8_t *to) {
    const int32_t one = 1 << SMG_FRACTION;
    const int32_t slopes[SLOPES] = {((before - n) * (z * (one - z) >> 15) + (1 << 21)) >> 22,
                                    ((one - z) * (one - (n * n >> 15)) + (1 << 22)) >> 23,
                                    (from_state * (r * (one - r) >> 15) + (1 << 20)) >> 21,
                                    ((z + 64) >> 7) + SHARE_ZERO,
                                    ((r + 64) >> 7) + SHARE_ZERO};
    for (int32_t k = 0; k < SLOPES; k++) to[k] = (int8_t)smg_clamp(slopes[k], INT8_MIN, INT8_MAX);
}

/* The next state of cell `at`: a share of the one before, and the rest of what is new. */
static int32_t next(const smg_gru_s8_params *p, int32_t at, const int8_t *x, const int8_t *h, const int8_t *gated,
                    const weights *v, int32_t state, int8_t *slopes) {
    int32_t from_x[GATES], from_h[GATES], r = 0, from_state = 0;
    const int32_t first = p->reset_after ? RESET : UPDATE;
    given(p, first, GATES - first, at, x, v, from_x + first);
    if (p->reset_after) {
        kept(p, RESET, GATES, at, h, v, from_h);
        r = smg_sigmoid16(smg_saturate16(from_x[RESET] + from_h[RESET]));
        from_state = smg_saturate16(from_h[NEW]);
        from_h[NEW] = smg_shift_right(r * from_state, SMG_FRACTION);
    } else {
        kept(p, UPDATE, 1, at, h, v, from_h + UPDATE);
        kept(p, NEW, 1, at, gated, v, from_h + NEW);
    }
    const int32_t share = smg_sigmoid16(smg_saturate16(from_x[UPDATE] + from_h[UPDATE]));
    const int32_t fresh = smg_tanh16(smg_saturate16(from_x[NEW] + from_h[NEW]), SMG_GATE_BITS);
    if (slopes) keep_slopes(r, share, fresh, from_state, state, slopes);
    return smg_shift_right(((1 << SMG_FRACTION) - share) * fresh + share * state, SMG_FRACTION);
}

/* Every step; hidden states are written to y, and slopes where they are asked for. */
static void run(const smg_gru_s8_params *p, const int8_t *x, const weights *v, int8_t *y, int8_t *slopes,
                int16_t *state, int8_t *gated, int8_t *spare) {
    const int8_t *before = 0;
    for (int32_t i = 0; i < p->cells; i++) state[i] = 0;
    for (int32_t t = 0; t < p->steps; t++, x += p->inputs) {
        int8_t *const now = smg_hidden_at(y, spare, p->whole, t, p->steps, p->cells);
        if (!p->reset_after) reset(p, x, before, v, state, gated);
        for (int32_t i = 0; i < p->cells; i++) {
            int8_t *const kinds = slopes ? slopes + (t * p->cells + i) * SLOPES : 0;
            const int32_t h = next(p, i, x, before, gated, v, state[i], kinds);
            state[i] = (int16_t)h;
            now[i] = smg_to_int8(smg_multiply(h, p->y_multiplier, p->y_shift), p->y_zero, INT8_MIN, INT8_MAX);
        }
        before = now;
    }
}

void smg_gru_s8(const smg_gru_s8_params *p, const int8_t *x, const int8_t *w, const int8_t *u, const int32_t *b,
                int8_t *y, void *scratch) {
    int16_t *const state = scratch;
    int8_t *const gated = (int8_t *)(state + p->cells), *const spare = p->reset_after ? gated : gated + p->cells;
    const weights v = {w, u, b};
    run(p, x, &v, y, 0, state, gated, spare);
}

void smg_gru_slopes_s8(const smg_gru_slopes_s8_params *p, const int8_t *x, const int8_t *w, const int8_t *u,
                       const int32_t *b, int8_t *slopes, void *scratch) {
    int16_t *const state = scratch;
    int8_t *const hidden = (int8_t *)(state + p->cells);
    const weights v = {w, u, b};
    run(p, x, &v, hidden, slopes, state, hidden, hidden + p->cells); /* resets come after: nothing is gated before */
}
