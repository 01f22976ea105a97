/* Counter-based random bits and the step state: every implementation draws the same, in any order. */
#ifndef SMIDGEN_STOCHASTIC_H
#define SMIDGEN_STOCHASTIC_H

#include <stdint.h>

#include "arithmetic.h"

/* Places in the step state, and how its levels are kept: log2 of a running maximum with LEVEL_BITS fraction bits. */
enum {
    SMG_STEP = 0,
    SMG_SEED = 1,
    SMG_FIRST_LEVEL = 2,
    SMG_LEVEL_BITS = 8,
    SMG_LEVEL_LIMIT = 60 << SMG_LEVEL_BITS
};

/* A bijection that scatters every input bit over all output bits. */
static inline uint32_t smg_mix(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    x = (x ^ (x >> 15)) * 0x846CA68Bu;
    return x ^ (x >> 16);
}

/* The key of one tensor's random bits in this step. */
static inline uint32_t smg_stream_key(const int32_t *step_state, int32_t stream) {
    const uint32_t seeded = (uint32_t)step_state[SMG_STEP] + smg_mix((uint32_t)step_state[SMG_SEED]);
    return smg_mix(smg_mix(seeded) + (uint32_t)stream);
}

/* Word `index` of a stream. */
static inline uint32_t smg_word(uint32_t key, uint32_t index) { return smg_mix(index * 0x9E3779B9u + key); }

static inline int32_t smg_limit_level(int32_t level) { return smg_clamp(level, -SMG_LEVEL_LIMIT, SMG_LEVEL_LIMIT); }

/* The power of two under which a tensor of this level fits seven bits. */
static inline int32_t smg_exponent_of(int32_t level) {
    return ((level + (1 << SMG_LEVEL_BITS) - 1) >> SMG_LEVEL_BITS) - 7;
}

/* The power of two of the gradient tensor with this place in the step state. */
static inline int32_t smg_exponent(const int32_t *step_state, int32_t slot) {
    return smg_exponent_of(smg_limit_level(step_state[SMG_FIRST_LEVEL + slot]));
}

/* Whether this step is the last of `every`. */
static inline int smg_due(const int32_t *step_state, int32_t every) {
    return ((uint32_t)step_state[SMG_STEP] + 1u) % (uint32_t)every == 0;
}

#endif
