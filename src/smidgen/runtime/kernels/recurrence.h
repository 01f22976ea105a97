/* What recurrent layers share: the sums that go into their gates, in Q3.12, and where hidden states lie. */
#ifndef SMIDGEN_RECURRENCE_H
#define SMIDGEN_RECURRENCE_H

#include "smidgen.h"

#include "arithmetic.h"
#include "fixed16.h"

enum { SMG_WIDE = 1 << 16 }; /* beyond it, a sum with any int16 number saturates */

/* One row of weights times x, at most 2^15 products, with a bias, scaled. */
static inline int32_t smg_gate_part(const int8_t *x, const int8_t *w, int32_t count, int32_t zero, int32_t bias,
                                    int32_t multiplier, int32_t shift) {
    int32_t acc = 0;
    for (int32_t i = 0; i < count; i++) acc += (int16_t)(x[i] - zero) * (int16_t)w[i];
    return smg_clamp(smg_multiply((int32_t)((uint32_t)acc + (uint32_t)bias), multiplier, shift), -SMG_WIDE, SMG_WIDE);
}

/* Where the hidden state of step t is written: the last one alone, unless `whole`, and before it in turns. */
static inline int8_t *smg_hidden_at(int8_t *y, int8_t *spare, int32_t whole, int32_t t, int32_t steps, int32_t cells) {
    return whole ? y + t * cells : (steps - 1 - t) % 2 ? spare : y;
}

#endif
