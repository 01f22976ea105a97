/* The sum of two tensors in int8, some elements at a time, operand by operand: few registers hold what one of them
 * needs. The output may be the first input's memory. */
#include "smidgen.h"

#include "arithmetic.h"
#include "noinline.h"

/* Bits TFLite gives the sum of two int8 tensors, and elements taken at once. */
enum { HEADROOM = 20, BLOCK = 32 };

/* How a sum is divided: by 2^right, halves away from zero; half = 2^right / 2. Where right is 0 nothing is rounded. */
typedef struct {
    int32_t right, half, rounds;
} division;

static inline division division_of(int32_t shift) {
    const division d = {-shift, (1 << -shift) >> 1, shift ? -1 : 0};
    return d;
}

static inline int32_t divide(int32_t x, division d) { return (x + d.half + ((x >> 31) & d.rounds)) >> d.right; }

/* One operand raised by HEADROOM bits and scaled. Its elements have nine bits, so that products with the halves of a
 * multiplier fit a word, and that with the upper half is shifted without a loss. */
static SMG_NOINLINE void load(int32_t *to, const int8_t *x, int32_t count, int32_t zero, int32_t multiplier,
                              division by) {
    const int32_t high = multiplier >> 16, low = multiplier & 0xFFFF, lost = 31 - HEADROOM;
    for (int32_t i = 0; i < count; i++) {
        const int32_t q = x[i] - zero;
        const int32_t scaled = q * high * (1 << (16 - lost)) + ((q * low + (1 << (lost - 1))) >> lost);
        to[i] += divide(scaled, by);
    }
}

static SMG_NOINLINE void store(int8_t *y, const int32_t *sums, int32_t count, const smg_add_s8_params *p) {
    const int32_t multiplier = p->y_multiplier, zero = p->y_zero, lo = p->lo, hi = p->hi;
    const division by = division_of(p->y_shift);
    for (int32_t i = 0; i < count; i++) y[i] = smg_to_int8(divide(smg_high_mul(sums[i], multiplier), by), zero, lo, hi);
}

/* One element, however its parts are shifted. */
static SMG_NOINLINE int8_t any(const smg_add_s8_params *p, int32_t a, int32_t b) {
    const int32_t left = smg_multiply((a - p->a_zero) * (1 << HEADROOM), p->a_multiplier, p->a_shift);
    const int32_t right = smg_multiply((b - p->b_zero) * (1 << HEADROOM), p->b_multiplier, p->b_shift);
    return smg_to_int8(smg_multiply(left + right, p->y_multiplier, p->y_shift), p->y_zero, p->lo, p->hi);
}

/* Shifts to the right that leave room for the half that is added. */
static int regular(int32_t shift) { return shift <= 0 && shift > -30; }

void smg_add_s8(const smg_add_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y, int32_t count) {
    const int is_regular = regular(p->a_shift) && regular(p->b_shift) && regular(p->y_shift);
    for (int32_t start = 0, at = 0, length; start < count; start += length) {
        int32_t sums[BLOCK] = {0};
        length = smg_min(smg_min(BLOCK, count - start), p->b_period - at);
        if (is_regular) {
            load(sums, a + start, length, p->a_zero, p->a_multiplier, division_of(p->a_shift));
            load(sums, b + at, length, p->b_zero, p->b_multiplier, division_of(p->b_shift));
            store(y + start, sums, length, p);
        } else {
            for (int32_t i = 0; i < length; i++) y[start + i] = any(p, a[start + i], b[at + i]);
        }
        at = at + length < p->b_period ? at + length : 0;
    }
}
