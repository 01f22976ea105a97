/* Products of one row of int8 numbers with several, two products at a time in packed halfwords. */
#include "dots.h"

#include <arm_acle.h>

#include "packed.h"

/* Four numbers less their zero point, the even ones and the odd ones, times four weights. */
static inline int32_t four(uint32_t even, uint32_t odd, const int8_t *w, int32_t sum) {
    const uint32_t b = smg_four(w);
    sum = __smlad((int16x2_t)even, __sxtb16((int8x4_t)b), sum);
    return __smlad((int16x2_t)odd, __sxtb16((int8x4_t)smg_turned(b)), sum);
}

/* Two rows of weights: as many as registers hold, without the stack. */
static void two_rows(int32_t *sums, const int8_t *x, const int8_t *w, int32_t apart, int32_t count, int32_t zero) {
    const uint32_t minus = smg_both(-zero);
    const int8_t *const last = x + (count & ~3), *const end = x + count;
    int32_t first = 0, second = 0;
    for (; x < last; x += 4, w += 4) {
        const uint32_t a = smg_four(x);
        const uint32_t even = (uint32_t)__sxtab16((int16x2_t)minus, (int8x4_t)a);
        const uint32_t odd = (uint32_t)__sxtab16((int16x2_t)minus, (int8x4_t)smg_turned(a));
        first = four(even, odd, w, first);
        second = four(even, odd, w + apart, second);
    }
    for (; x < end; x++, w++) {
        first += (*x - zero) * *w;
        second += (*x - zero) * w[apart];
    }
    sums[0] = first;
    sums[1] = second;
}

static int32_t one_row(const int8_t *x, const int8_t *w, int32_t count, int32_t zero) {
    const uint32_t minus = smg_both(-zero);
    const int8_t *const last = x + (count & ~3), *const end = x + count;
    int32_t sum = 0;
    for (; x < last; x += 4, w += 4) {
        const uint32_t a = smg_four(x);
        const uint32_t even = (uint32_t)__sxtab16((int16x2_t)minus, (int8x4_t)a);
        sum = four(even, (uint32_t)__sxtab16((int16x2_t)minus, (int8x4_t)smg_turned(a)), w, sum);
    }
    for (; x < end; x++, w++) sum += (*x - zero) * *w;
    return sum;
}

void smg_dots(int32_t *sums, int32_t rows, const int8_t *x, const int8_t *w, int32_t apart, int32_t count,
              int32_t zero) {
    for (; rows >= 2; rows -= 2, sums += 2, w += 2 * apart) two_rows(sums, x, w, apart, count, zero);
    if (rows) *sums = one_row(x, w, count, zero);
}
