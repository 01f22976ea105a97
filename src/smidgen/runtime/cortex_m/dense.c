/* The fully connected layer: four rows of weights at a time, in packed halfwords. */
#include "smidgen.h"

#include <arm_acle.h>

#include "arithmetic.h"
#include "dense.h"
#include "fours.h"
#include "noinline.h"
#include "packed.h"

/* Bits of a double: of its mantissa that are multiplied with, of its exponent. */
enum { MANTISSA = 31, BIAS = 1023, STORED = 52 };

/* The fraction of a product, 2^FRACTION for a whole, may be off by SURE; nearer to a half, the double itself decides. */
enum { FRACTION = 20, SURE = 64 };

/* acc * factor, rounded as smg_scale_double rounds it, where that is below 2^10 and as good as certain; without a
 * double, which is slow here. Anything larger is beyond int8 whatever the zero point is. */
static inline int32_t scale(int32_t acc, double factor) {
    uint64_t bits;
    __builtin_memcpy(&bits, &factor, sizeof bits);
    const int32_t exponent = (int32_t)(bits >> STORED), right = BIAS + MANTISSA - 1 - exponent - FRACTION;
    const uint32_t mantissa = (uint32_t)(bits >> (STORED - MANTISSA + 1)) << 1 >> 1 | 1u << (MANTISSA - 1);
    if (right < 0 || right > 62) return smg_scale_double(acc, factor);
    const int64_t product = (int64_t)acc * (int32_t)mantissa;
    const int64_t parts = (product < 0 ? -product : product) >> right;
    if (parts >= (int64_t)1 << 30) return product < 0 ? -1024 : 1024;
    const int32_t whole = (int32_t)parts + (1 << (FRACTION - 1)), rest = whole & ((1 << FRACTION) - 1);
    if (rest < SURE || rest > (1 << FRACTION) - SURE) return smg_scale_double(acc, factor);
    return product < 0 ? -(whole >> FRACTION) : whole >> FRACTION;
}

/* Sums wrap at 32 bits, as in the contract. */
static SMG_NOINLINE int32_t dot(const int8_t *x, const int8_t *w, int32_t k, int32_t x_zero) {
    const uint32_t minus = smg_both(-x_zero);
    int32_t sum = 0, i = 0;
    for (; i + 4 <= k; i += 4) {
        const uint32_t a = smg_four(x + i), b = smg_four(w + i);
        sum = __smlad((int16x2_t)__sxtab16((int16x2_t)minus, (int8x4_t)a), __sxtb16((int8x4_t)b), sum);
        sum = __smlad((int16x2_t)__sxtab16((int16x2_t)minus, (int8x4_t)smg_turned(a)),
                      __sxtb16((int8x4_t)smg_turned(b)), sum);
    }
    for (; i < k; i++) sum = (int32_t)((uint32_t)sum + (uint32_t)((x[i] - x_zero) * w[i]));
    return sum;
}

void smg_dense_s8(const smg_dense_s8_params *p, const int8_t *x, const int8_t *w, const int32_t *b, int8_t *y) {
    const int32_t k = p->x_c, whole = k % 4 == 0 ? p->y_c & ~3 : 0;
    int32_t sums[4];
    for (int32_t r = 0; r < p->rows; r++, x += k, y += p->y_c) {
        for (int32_t n = 0; n < p->y_c; n++) {
            if (n >= whole)
                sums[n & 3] = dot(x, w + n * k, k, p->x_zero);
            else if ((n & 3) == 0)
                smg_dot_rows(x, w + n * k, k / 4, smg_both(-p->x_zero), sums);
            const uint32_t acc = (uint32_t)sums[n & 3] + (uint32_t)b[n];
            y[n] = smg_to_int8(scale((int32_t)acc, p->factor[n]), p->y_zero, p->lo, p->hi);
        }
    }
}
