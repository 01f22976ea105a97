/* What recurrent layers share: sums that go into their gates, and where hidden states lie. */
#ifndef SMIDGEN_RECURRENCE_H
#define SMIDGEN_RECURRENCE_H

#include <stdint.h>

#include "arithmetic.h"
#include "fixed16.h"

enum { SMG_WIDE = 1 << 16 }; /* beyond it, a sum with any int16 number saturates */

/* A sum of products with its bias in Q3.12. */
static inline int32_t smg_gate_part(int32_t sum, int32_t bias, int32_t multiplier, int32_t shift) {
    const int32_t whole = (int32_t)((uint32_t)sum + (uint32_t)bias);
    return smg_clamp(smg_multiply(whole, multiplier, shift), -SMG_WIDE, SMG_WIDE);
}

/* Where the hidden state of step t is written: the last one alone, unless `whole`, and before it in turns. */
static inline int8_t *smg_hidden_at(int8_t *y, int8_t *spare, int32_t whole, int32_t t, int32_t steps, int32_t cells) {
    return whole ? y + t * cells : (steps - 1 - t) % 2 ? spare : y;
}

#endif
