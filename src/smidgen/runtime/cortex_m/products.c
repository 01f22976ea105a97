/* Sums of products in packed halfwords: along what lies side by side, two columns share the left side; where columns lie
 * side by side, two rows of four columns are multiplied at once. Sums wrap at 32 bits, as in the contract. */
#include "products.h"

#include <arm_acle.h>

#include "packed.h"

static inline int32_t term(const smg_product *p, int32_t left, int32_t right) {
    return (left - p->left_zero) * (right - p->right_zero);
}

static inline int32_t plus(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }

/* Elements 0 and 2 of four bytes, moved by what is in both halves of `minus`. */
static inline int16x2_t even(uint32_t minus, uint32_t four) {
    return (int16x2_t)__sxtab16((int16x2_t)minus, (int8x4_t)four);
}

/* The sums of two columns at right and other, or of one twice. */
static void along(const smg_product *p, const int8_t *left, const int8_t *right, const int8_t *other, int32_t *sums) {
    const uint32_t l_minus = smg_both(-p->left_zero), r_minus = smg_both(-p->right_zero);
    int32_t first = 0, second = 0, i = 0;
    for (; i + 4 <= p->depth; i += 4) {
        const uint32_t l = smg_four(left + i), a = smg_four(right + i), b = smg_four(other + i);
        const int16x2_t l_even = even(l_minus, l), l_odd = even(l_minus, smg_turned(l));
        first = __smlad(l_even, even(r_minus, a), first);
        second = __smlad(l_even, even(r_minus, b), second);
        first = __smlad(l_odd, even(r_minus, smg_turned(a)), first);
        second = __smlad(l_odd, even(r_minus, smg_turned(b)), second);
    }
    for (; i < p->depth; i++) {
        first = plus(first, term(p, left[i], right[i]));
        second = plus(second, term(p, left[i], other[i]));
    }
    sums[0] = first;
    sums[1] = second;
}

static inline int16x2_t lower(int16x2_t a, int16x2_t b) {
    return (int16x2_t)(((uint32_t)a & 0xFFFFu) | (uint32_t)b << 16);
}
static inline int16x2_t upper(int16x2_t a, int16x2_t b) {
    return (int16x2_t)((uint32_t)a >> 16 | ((uint32_t)b & 0xFFFF0000u));
}

/* The sums of four columns that lie side by side. */
static void across(const smg_product *p, const int8_t *left, const int8_t *right, int32_t *sums) {
    const uint32_t minus = smg_both(-p->right_zero);
    int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0, i = 0;
    for (; i + 2 <= p->depth; i += 2, left += 2 * p->left_step, right += 2 * p->right_step) {
        const uint32_t a = smg_four(right), b = smg_four(right + p->right_step);
        const int32_t one = *left - p->left_zero, two = left[p->left_step] - p->left_zero;
        const int16x2_t factors = lower((int16x2_t)one, (int16x2_t)two);
        const int16x2_t a_even = even(minus, a), b_even = even(minus, b);
        const int16x2_t a_odd = even(minus, smg_turned(a)), b_odd = even(minus, smg_turned(b));
        s0 = __smlad(factors, lower(a_even, b_even), s0);
        s1 = __smlad(factors, lower(a_odd, b_odd), s1);
        s2 = __smlad(factors, upper(a_even, b_even), s2);
        s3 = __smlad(factors, upper(a_odd, b_odd), s3);
    }
    if (i < p->depth) {
        s0 = plus(s0, term(p, *left, right[0]));
        s1 = plus(s1, term(p, *left, right[1]));
        s2 = plus(s2, term(p, *left, right[2]));
        s3 = plus(s3, term(p, *left, right[3]));
    }
    sums[0] = s0, sums[1] = s1, sums[2] = s2, sums[3] = s3;
}

static int32_t any(const smg_product *p, const int8_t *left, const int8_t *right) {
    int32_t sum = 0;
    for (int32_t i = 0; i < p->depth; i++, left += p->left_step, right += p->right_step)
        sum = plus(sum, term(p, *left, *right));
    return sum;
}

void smg_products(const smg_product *p, const int8_t *left, const int8_t *right, int32_t *sums, int32_t count) {
    const int32_t column = p->right_column;
    int32_t n = 0;
    if (p->left_step == 1 && p->right_step == 1) {
        int32_t last[2];
        for (; n + 2 <= count; n += 2) along(p, left, right + n * column, right + (n + 1) * column, sums + n);
        if (n < count) along(p, left, right + n * column, right + n * column, last), sums[n++] = last[0];
    } else if (column == 1)
        for (; n + 4 <= count; n += 4) across(p, left, right + n, sums + n);
    for (; n < count; n++) sums[n] = any(p, left, right + n * column);
}
