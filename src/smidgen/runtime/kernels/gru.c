/* The gated recurrent unit in int8: gates and hidden state are int16, and the state is rounded to int8 once a step. */
#include "smidgen.h"

#include "arithmetic.h"
#include "fixed16.h"
#include "recurrence.h"

enum { RESET, UPDATE, NEW, NEW_FROM_STATE }; /* rows of the bias; the first three are gates */

/* What cell `at` of a gate is given by x. */
static int32_t given(const smg_gru_s8_params *p, int32_t gate, int32_t at, const int8_t *x, const int8_t *w,
                     const int32_t *b) {
    const int32_t row = gate * p->cells + at;
    return smg_saturate16(smg_gate_part(x, w + row * p->inputs, p->inputs, p->x_zero, b[row], p->x_multiplier[gate],
                                        p->x_shift[gate]));
}

/* What it is given by the hidden state before, which is zero in the first step. */
static int32_t kept(const smg_gru_s8_params *p, int32_t gate, int32_t at, const int8_t *h, const int8_t *u,
                    int32_t bias) {
    const int32_t row = gate * p->cells + at, count = h ? p->cells : 0;
    return smg_gate_part(h, u + row * p->cells, count, p->y_zero, bias, p->h_multiplier[gate], p->h_shift[gate]);
}

static int32_t gate_of(const smg_gru_s8_params *p, int32_t gate, int32_t at, const int8_t *x, const int8_t *h,
                       const int8_t *w, const int8_t *u, const int32_t *b) {
    return smg_sigmoid16(smg_saturate16(given(p, gate, at, x, w, b) + kept(p, gate, at, h, u, 0)));
}

/* The states times their reset gates, in int8. */
static void reset(const smg_gru_s8_params *p, const int8_t *x, const int8_t *h, const int8_t *w, const int8_t *u,
                  const int32_t *b, const int16_t *state, int8_t *gated) {
    for (int32_t i = 0; i < p->cells; i++) {
        const int32_t product = gate_of(p, RESET, i, x, h, w, u, b) * state[i];
        gated[i] = smg_to_int8(smg_multiply(product, p->gated_multiplier, p->gated_shift), p->y_zero, INT8_MIN, INT8_MAX);
    }
}

void smg_gru_s8(const smg_gru_s8_params *p, const int8_t *x, const int8_t *w, const int8_t *u, const int32_t *b,
                int8_t *y, void *scratch) {
    int16_t *const state = scratch;
    int8_t *const gated = (int8_t *)(state + p->cells), *const spare = p->reset_after ? gated : gated + p->cells;
    const int32_t *const from_state = b + NEW_FROM_STATE * p->cells;
    const int8_t *before = 0;
    for (int32_t i = 0; i < p->cells; i++) state[i] = 0;
    for (int32_t t = 0; t < p->steps; t++, x += p->inputs) {
        int8_t *const now = smg_hidden_at(y, spare, p->whole, t, p->steps, p->cells);
        if (!p->reset_after) reset(p, x, before, w, u, b, state, gated);
        for (int32_t i = 0; i < p->cells; i++) {
            int32_t old;
            if (p->reset_after) {
                old = smg_saturate16(kept(p, NEW, i, before, u, from_state[i]));
                old = smg_shift_right(gate_of(p, RESET, i, x, before, w, u, b) * old, SMG_FRACTION);
            } else {
                old = kept(p, NEW, i, gated, u, from_state[i]);
            }
            const int32_t fresh = smg_tanh16(smg_saturate16(given(p, NEW, i, x, w, b) + old), SMG_GATE_BITS);
            const int32_t share = gate_of(p, UPDATE, i, x, before, w, u, b);
            const int32_t h = smg_shift_right(((1 << SMG_FRACTION) - share) * fresh + share * state[i], SMG_FRACTION);
            state[i] = (int16_t)h;
            now[i] = smg_to_int8(smg_multiply(h, p->y_multiplier, p->y_shift), p->y_zero, INT8_MIN, INT8_MAX);
        }
        before = now;
    }
}
