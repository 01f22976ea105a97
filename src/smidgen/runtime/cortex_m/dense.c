/* The fully connected layer, four products at a time in packed halfwords. */
#include "smidgen.h"

#include <arm_acle.h>

#include "arithmetic.h"
#include "dense.h"
#include "packed.h"

/* Sums wrap at 32 bits, as in the contract. */
static int32_t dot(const int8_t *x, const int8_t *w, int32_t k, int32_t x_zero) {
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
    for (int32_t r = 0; r < p->rows; r++, x += p->x_c, y += p->y_c) {
        for (int32_t n = 0; n < p->y_c; n++) {
            const uint32_t acc = (uint32_t)dot(x, w + n * p->x_c, p->x_c, p->x_zero) + (uint32_t)b[n];
            y[n] = smg_to_int8(smg_scale_double((int32_t)acc, p->factor[n]), p->y_zero, p->lo, p->hi);
        }
    }
}
