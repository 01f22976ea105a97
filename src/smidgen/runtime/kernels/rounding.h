/* The passage from sums to an int8 gradient that all gradient kernels share: scale, mask, round at random. */
#ifndef SMIDGEN_ROUNDING_H
#define SMIDGEN_ROUNDING_H

#include "stochastic.h"

/* Channels whose sums a kernel holds on its stack at once. */
enum { SMG_SUMS = 128 };

/* One gradient tensor in the making: v becomes ((v moved) + centre + random part) / 2^shift. */
typedef struct {
    const int32_t *multiplier; /* one a channel, or one for all */
    int32_t factors, lift;
    int32_t raise, deep, shift;
    int32_t centre; /* of a random byte's step where it is coarser than v, so that rounding has no bias */
    uint32_t key, peak_bits;
} smg_rounding;

/* Begin a tensor whose scaled sums are to be divided by 2^t. */
static inline smg_rounding smg_begin(const int32_t *multiplier, int32_t factors, int32_t lift, int32_t t,
                                     uint32_t key) {
    const int32_t max_shift = 22, max_raise = 10; /* so that value and random part fit 32 bits */
    const int32_t raise = smg_clamp(-t, 0, max_raise), deep = smg_clamp(t - max_shift, 0, 31);
    const int32_t shift = smg_clamp(t, 0, max_shift);
    const smg_rounding r = {multiplier, factors, lift, raise, deep, shift, (1 << shift) >> 9, key, 0};
    return r;
}

/* The same from a kernel's parameters, for sums in units of 2^e. */
#define SMG_BEGIN(p, step_state, e)                                                           \
    smg_begin((p)->multiplier, (p)->factors, (p)->lift,                                       \
              smg_exponent(step_state, (p)->slot_out) - (e) - (p)->shift + (p)->lift,         \
              smg_stream_key(step_state, (p)->stream))

/* Round the sums of `count` consecutive elements, the first of channel c and at `index` in the tensor, to `to`. */
void smg_round_sums(smg_rounding *r, const int32_t *sums, int32_t count, int32_t c, int32_t index, const uint8_t *mask,
                    int8_t *to);

#endif
