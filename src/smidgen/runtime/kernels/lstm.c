/* Long short-term memory in int8: gates and cell state are int16, as in TFLite's kernel. */
#include "smidgen.h"

#include "arithmetic.h"
#include "fixed16.h"
#include "recurrence.h"

enum { GATES = 4 };

/* What cell `at` of a gate is given by x and by the hidden state before, which is zero in the first step. */
static int32_t gate_sum(const smg_lstm_s8_params *p, int32_t gate, int32_t at, const int8_t *x, const int8_t *h,
                        const int8_t *w, const int8_t *u, const int32_t *b) {
    const int32_t row = gate * p->cells + at;
    const int32_t given = smg_saturate16(smg_gate_part(x, w + row * p->inputs, p->inputs, p->x_zero, b[row],
                                                       p->x_multiplier[gate], p->x_shift[gate]));
    if (!h) return given;
    return smg_saturate16(given + smg_gate_part(h, u + row * p->cells, p->cells, p->y_zero, 0, p->h_multiplier[gate],
                                                p->h_shift[gate]));
}

void smg_lstm_s8(const smg_lstm_s8_params *p, const int8_t *x, const int8_t *w, const int8_t *u, const int32_t *b,
                 int8_t *y, void *scratch) {
    int16_t *const cell = scratch;
    int8_t *const spare = (int8_t *)(cell + p->cells);
    const int8_t *before = 0;
    for (int32_t i = 0; i < p->cells; i++) cell[i] = 0;
    for (int32_t t = 0; t < p->steps; t++, x += p->inputs) {
        int8_t *const now = smg_hidden_at(y, spare, p->whole, t, p->steps, p->cells);
        for (int32_t i = 0; i < p->cells; i++) {
            int32_t sums[GATES];
            for (int32_t gate = 0; gate < GATES; gate++) sums[gate] = gate_sum(p, gate, i, x, before, w, u, b);
            const int32_t added = smg_sigmoid16(sums[0]) * smg_tanh16(sums[2], SMG_GATE_BITS);
            int32_t c = smg_shift_right(smg_sigmoid16(sums[1]) * cell[i], SMG_FRACTION);
            c = smg_saturate16(c + smg_shift_right(added, SMG_FRACTION + p->bits));
            if (p->limit) c = smg_clamp(c, -p->limit, p->limit);
            cell[i] = (int16_t)c;
            const int32_t h = smg_sigmoid16(sums[3]) * smg_tanh16(c, p->bits);
            now[i] = smg_to_int8(smg_multiply(h, p->y_multiplier, p->y_shift), p->y_zero, INT8_MIN, INT8_MAX);
        }
        before = now;
    }
}
