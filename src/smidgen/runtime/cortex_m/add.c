/* The sum of two tensors in int8, where one of them is exactly halved, as TFLite has it: four elements at a time. */
#include "smidgen.h"

#include "noinline.h"
#include "scales.h"

enum { HEADROOM = 20 }; /* bits TFLite gives the sum of two int8 tensors */

/* The tensor that is halved, and the one that is scaled first. */
typedef struct {
    const int8_t *half, *other;
    int8_t *y;
    const int8_t *y_end;
    int32_t half_minus, other_minus; /* zero points' negatives */
    int32_t other_twice, other_inverse; /* inverses are of powers of two, negative, times 2^32 */
    int32_t y_twice, y_inverse, y_zero; /* of the sum: of half its power; zero: twice the zero point and 1 */
} smg_sums;

/* Add them all: in add_words.S. */
void smg_add_words(const smg_sums *sums);

/* One element, however its tensors are scaled. */
static int8_t add(const smg_add_s8_params *p, int32_t a, int32_t b) {
    const int32_t left = smg_multiply((a - p->a_zero) * (1 << HEADROOM), p->a_multiplier, p->a_shift);
    const int32_t right = smg_multiply((b - p->b_zero) * (1 << HEADROOM), p->b_multiplier, p->b_shift);
    return smg_to_int8(smg_multiply(left + right, p->y_multiplier, p->y_shift), p->y_zero, p->lo, p->hi);
}

static int32_t halves(int32_t multiplier, int32_t shift) { return multiplier == 1 << 30 && shift == 0; }

/* -2^(32 - right), for 1 <= right <= 31. */
static int32_t inverse(int32_t right) { return (int32_t)(~0u << (32 - right)); }

/* As many whole words of elements as the assembly adds; 0 where these scales are not for it. */
static SMG_SHORT int32_t add_words(const smg_add_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y, int32_t count) {
    const int32_t swap = !halves(p->a_multiplier, p->a_shift), done = count & ~3;
    const int32_t multiplier = swap ? p->a_multiplier : p->b_multiplier, shift = swap ? p->a_shift : p->b_shift;
    const int32_t both = halves(multiplier, shift); /* halved as by 1, and then by a shift: even numbers stay exact */
    if (swap && !halves(p->b_multiplier, p->b_shift)) return 0;
    if (smg_unusual(p->y_multiplier, p->y_shift) < 0 || (!both && smg_unusual(multiplier, shift) < 0)) return 0;
    if (done == 0 || p->b_period < count || shift < -24 || p->y_shift > -2 || (!both && shift > -1)) return 0;
    const smg_sums sums = {
        swap ? b : a, swap ? a : b, y, y + done, swap ? -p->b_zero : -p->a_zero, swap ? -p->a_zero : -p->b_zero,
        both ? 0 : (int32_t)((uint32_t)multiplier << 1), inverse(both ? 1 : -shift),
        (int32_t)((uint32_t)p->y_multiplier << 1), inverse(-p->y_shift - 1), 2 * p->y_zero + 1,
    };
    smg_add_words(&sums);
    if (smg_limited(p->lo, p->hi)) smg_limit(y, done, p->lo, p->hi);
    return done;
}

void smg_add_s8(const smg_add_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y, int32_t count) {
    for (int32_t i = add_words(p, a, b, y, count); i < count; i++) y[i] = add(p, a[i], b[i % p->b_period]);
}
