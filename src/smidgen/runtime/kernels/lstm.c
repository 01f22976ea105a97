/* Long short-term memory in int8: gates and cell state are int16, as in TFLite's kernel. */
#include "smidgen.h"

#include "arithmetic.h"
#include "dots.h"
#include "fixed16.h"
#include "recurrence.h"

enum { GATES = 4 };

/* What x and the hidden state before, which is zero in the first step, give to the gates of cell `at`. */
static void gate_sums(const smg_lstm_s8_params *p, int32_t at, const int8_t *x, const int8_t *h, const int8_t *w,
                      const int8_t *u, const int32_t *b, int32_t *sums) {
    int32_t kept[GATES];
    smg_dots(sums, GATES, x, w + at * p->inputs, p->cells * p->inputs, p->inputs, p->x_zero);
    if (h) smg_dots(kept, GATES, h, u + at * p->cells, p->cells * p->cells, p->cells, p->y_zero);
    for (int32_t gate = 0; gate < GATES; gate++) {
        const int32_t bias = b[gate * p->cells + at];
        sums[gate] = smg_saturate16(smg_gate_part(sums[gate], bias, p->x_multiplier[gate], p->x_shift[gate]));
        if (h) sums[gate] += smg_gate_part(kept[gate], 0, p->h_multiplier[gate], p->h_shift[gate]);
        sums[gate] = smg_saturate16(sums[gate]);
    }
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
            gate_sums(p, i, x, before, w, u, b, sums);
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
