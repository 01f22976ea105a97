/* Long short-term memory in int8: gates and cell state are int16, as in TFLite's kernel; and its slopes. */
#include "smidgen_training.h"

#include "arithmetic.h"
#include "dots.h"
#include "fixed16.h"
#include "recurrence.h"

enum { GATES = 4, SLOPES = 6, SHARE_ZERO = -128 };

typedef struct {
    int32_t i, f, g, o, c, tanh;
} step;

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

/* One cell's gates and state, from the state before. */
static step next(const smg_lstm_s8_params *p, const int32_t *sums, int32_t before) {
    step s = {smg_sigmoid16(sums[0]), smg_sigmoid16(sums[1]), smg_tanh16(sums[2], SMG_GATE_BITS),
              smg_sigmoid16(sums[3]), 0, 0};
    const int32_t kept = smg_shift_right(s.f * before, SMG_FRACTION);
    s.c = smg_saturate16(kept + smg_shift_right(s.i * s.g, SMG_FRACTION + p->bits));
    if (p->limit) s.c = smg_clamp(s.c, -p->limit, p->limit);
    s.tanh = smg_tanh16(s.c, p->bits);
    return s;
}

static int32_t up_to_a_quarter(int32_t x, int32_t gate) {
    return (x * (gate * ((1 << SMG_FRACTION) - gate) >> 15) + (1 << 20)) >> 21;
}

static int32_t up_to_one(int32_t gate, int32_t x) {
    return (gate * ((1 << SMG_FRACTION) - (x * x >> 15)) + (1 << 22)) >> 23;
}

/* From dh to o and to c; from dc to i, f and g, and to the c before, unless the cell state is at its limit. */
static void keep_slopes(const smg_lstm_s8_params *p, const step *s, int32_t before, int8_t *to) {
    const int32_t most = p->limit ? p->limit : INT16_MAX, free = s->c > -most && s->c < most;
    const int32_t slopes[SLOPES] = {up_to_a_quarter(s->tanh, s->o),
                                    up_to_one(s->o, s->tanh),
                                    free ? up_to_a_quarter(s->g, s->i) : 0,
                                    free ? up_to_a_quarter(before, s->f) : 0,
                                    free ? up_to_one(s->i, s->g) : 0,
                                    (free ? (s->f + 64) >> 7 : 0) + SHARE_ZERO};
    for (int32_t k = 0; k < SLOPES; k++) to[k] = (int8_t)smg_clamp(slopes[k], INT8_MIN, INT8_MAX);
}

/* Every step; hidden states are written to y, and slopes where they are asked for. */
static void run(const smg_lstm_s8_params *p, const int8_t *x, const int8_t *w, const int8_t *u, const int32_t *b,
                int8_t *y, int8_t *slopes, int16_t *cell, int8_t *spare) {
    const int8_t *before = 0;
    for (int32_t i = 0; i < p->cells; i++) cell[i] = 0;
    for (int32_t t = 0; t < p->steps; t++, x += p->inputs) {
        int8_t *const now = smg_hidden_at(y, spare, p->whole, t, p->steps, p->cells);
        for (int32_t i = 0; i < p->cells; i++) {
            int32_t sums[GATES];
            gate_sums(p, i, x, before, w, u, b, sums);
            const step s = next(p, sums, cell[i]);
            if (slopes) keep_slopes(p, &s, cell[i], slopes + (t * p->cells + i) * SLOPES);
            cell[i] = (int16_t)s.c;
            const int32_t h = smg_multiply(s.o * s.tanh, p->y_multiplier, p->y_shift);
            now[i] = smg_to_int8(h, p->y_zero, INT8_MIN, INT8_MAX);
        }
        before = now;
    }
}

void smg_lstm_s8(const smg_lstm_s8_params *p, const int8_t *x, const int8_t *w, const int8_t *u, const int32_t *b,
                 int8_t *y, void *scratch) {
    int16_t *const cell = scratch;
    run(p, x, w, u, b, y, 0, cell, (int8_t *)(cell + p->cells));
}

void smg_lstm_slopes_s8(const smg_lstm_slopes_s8_params *p, const int8_t *x, const int8_t *w, const int8_t *u,
                        const int32_t *b, int8_t *slopes, void *scratch) {
    int16_t *const cell = scratch;
    int8_t *const hidden = (int8_t *)(cell + p->cells);
    run(p, x, w, u, b, hidden, slopes, cell, hidden + p->cells);
}
