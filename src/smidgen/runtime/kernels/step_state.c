/* The step_state from one step to the next. */
#include "smidgen_training.h"

#include "stochastic.h"

/* A level falls by this a step: 2^(-4/256), or faster where its tensor rounded to zero everywhere. */
enum { DECAY = 4, DECAY_OF_NOTHING = 64 };

static inline int32_t bit_length(uint32_t x) {
    int32_t bits = 0;
    for (; x; x >>= 1) bits++;
    return bits;
}

/* Up at once where the tensor was larger, slowly down where it was not. */
static inline int32_t next_level(int32_t level, int32_t peak_bits) {
    const int32_t held = smg_exponent_of(level) + bit_length((uint32_t)peak_bits);
    return smg_limit_level(peak_bits ? smg_max(level - DECAY, held * (1 << SMG_LEVEL_BITS)) : level - DECAY_OF_NOTHING);
}

/* x[0] is the step state before, in whose place the one after may lie; the rest are the peak bits of each gradient. */
void smg_advance_step_state(const smg_advance_step_state_params *p, const int32_t *const *x, int32_t *after) {
    after[SMG_SEED] = x[0][SMG_SEED];
    for (int32_t i = 0; i < p->count; i++)
        after[SMG_FIRST_LEVEL + i] = next_level(smg_limit_level(x[0][SMG_FIRST_LEVEL + i]), *x[1 + i]);
    after[SMG_STEP] = (int32_t)((uint32_t)x[0][SMG_STEP] + 1u);
}
