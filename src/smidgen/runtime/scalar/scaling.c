/* Sums become int8, with what is the same for all sums of a channel set up once. */
#include "scaling.h"

#include "arithmetic.h"

/* Usual are multipliers of a half and more, shifts to the right, and sums of less than 2^29: then no step of it leaves
 * 32 bits, halves away from zero are 1 off a negative number and half a unit on, and the zero point comes with that.
 * Else `right` is less than 0, and says which way it goes. */
smg_scaling smg_scaling_of(int32_t multiplier, int32_t shift, int32_t bias, int32_t count, int32_t zero, int32_t lo,
                           int32_t hi) {
    const int32_t small = bias < 1 << 28 && bias > -(1 << 28) && count < (1 << 28) / SMG_LARGEST_PRODUCT;
    const int32_t usual = small && multiplier >= 1 << 30 && shift < 0 && shift >= -19;
    const int32_t right = usual ? -shift : 0;
    const smg_scaling of = {multiplier, smg_shift_left(2 * (zero - lo) + 1, right) >> 1, right, hi - lo, lo, zero};
    const smg_scaling other = {multiplier, shift, -1, hi - lo, lo, zero};
    return usual ? of : other;
}

static void scale_any(int8_t *to, int32_t step, const uint32_t *sums, int32_t count, const smg_scaling *scaling) {
    const int32_t shift = scaling->half;
    for (int32_t i = 0; i < count; i++) {
        const int32_t scaled = smg_multiply((int32_t)sums[i], scaling->multiplier, shift);
        to[step * i] = smg_to_int8(scaled, scaling->zero, scaling->lo, scaling->lo + scaling->range);
    }
}

#if !defined(__thumb__)
/* Twice a multiplier is 2^32 more than the number of 32 bits that it leaves, so the sum itself is added to the upper half
 * of their product; what the lower half is rounded to is its first bit. */
static inline int32_t high_mul(int32_t sum, int32_t twice) {
    const int64_t product = (int64_t)sum * twice;
    return (int32_t)(product >> 32) + sum + (int32_t)((uint32_t)product >> 31);
}

static inline int8_t scale_one(uint32_t sum, int32_t twice, int32_t half, int32_t right, uint32_t range, int32_t lo) {
    const int32_t high = high_mul((int32_t)sum, twice), value = (high + (high >> 31) + half) >> right;
    const uint32_t limited = (uint32_t)value <= range ? (uint32_t)value : value < 0 ? 0 : range;
    return (int8_t)(lo + (int32_t)limited);
}

static void scale_usual(int8_t *to, int32_t step, const uint32_t *sums, int32_t count, const smg_scaling *scaling) {
    const int32_t twice = smg_shift_left(scaling->multiplier, 1), half = scaling->half, right = scaling->right;
    const int32_t lo = scaling->lo;
    const uint32_t range = (uint32_t)scaling->range;
    for (; count >= 4; count -= 4, sums += 4) {
        for (int32_t i = 0; i < 4; i++, to += step) *to = scale_one(sums[i], twice, half, right, range, lo);
    }
    for (int32_t i = 0; i < count; i++, to += step) *to = scale_one(sums[i], twice, half, right, range, lo);
}
#endif

void smg_scale_sums(int8_t *to, int32_t step, const uint32_t *sums, int32_t count, const smg_scaling *scaling) {
    if (scaling->right >= 0)
#if defined(__thumb__)
        smg_scale_thumb(to, step, sums, count, scaling);
#else
        scale_usual(to, step, sums, count, scaling);
#endif
    else
        scale_any(to, step, sums, count, scaling);
}
