/* Long short-term memory in int8: gates and cell state are int16, as in TFLite's kernel. */
#include "smidgen.h"

#include "arithmetic.h"
#include "fixed16.h"

enum { GATES = 4, WIDE = 1 << 16 }; /* beyond WIDE, a sum with any int16 number saturates */

/* The sum of products with weights, which are at most 2^15. */
static int32_t dot(const int8_t *x, const int8_t *w, int32_t count, int32_t zero) {
    int32_t acc = 0;
    for (int32_t i = 0; i < count; i++) acc += (int16_t)(x[i] - zero) * (int16_t)w[i];
    return acc;
}

/* What cell `at` of a gate is given by x and by the hidden state before, which is zero in the first step: Q3.12. */
static int32_t gate_sum(const smg_lstm_s8_params *p, int32_t gate, int32_t at, const int8_t *x, const int8_t *h,
                        const int8_t *w, const int8_t *u, const int32_t *b) {
    const int32_t row = gate * p->cells + at;
    const uint32_t given = (uint32_t)dot(x, w + row * p->inputs, p->inputs, p->x_zero) + (uint32_t)b[row];
    const int32_t sum = smg_saturate16(smg_multiply((int32_t)given, p->x_multiplier[gate], p->x_shift[gate]));
    if (!h) return sum;
    const int32_t kept = dot(h, u + row * p->cells, p->cells, p->y_zero);
    const int32_t added = smg_multiply(kept, p->h_multiplier[gate], p->h_shift[gate]);
    return smg_saturate16(sum + smg_clamp(added, -WIDE, WIDE));
}

void smg_lstm_s8(const smg_lstm_s8_params *p, const int8_t *x, const int8_t *w, const int8_t *u, const int32_t *b,
                 int8_t *y, void *scratch) {
    int16_t *cell = scratch;
    int8_t *const spare = (int8_t *)(cell + p->cells); /* where only the last hidden state is wanted */
    const int8_t *before = 0;
    for (int32_t i = 0; i < p->cells; i++) cell[i] = 0;
    for (int32_t t = 0; t < p->steps; t++, x += p->inputs) {
        int8_t *const now = p->whole ? y + t * p->cells : (p->steps - 1 - t) % 2 ? spare : y;
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
