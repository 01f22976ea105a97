/* Softmax in int8, on gemmlowp's fixed-point arithmetic as TFLite's reference kernel uses it. */
#include "smidgen.h"

#include "arithmetic.h"

enum { DIFF_BITS = 5, SUM_BITS = 12, EXP_STEPS = 7 };

/* The rounded upper half of 2ab for any signs; only −1 · −1 in Q0.31 would not fit. */
static int32_t product(int32_t a, int32_t b) {
    return a == INT32_MIN && b == INT32_MIN ? INT32_MAX : smg_high_mul(a, b);
}

/* x * 2^left, saturated. */
static int32_t saturating_left(int32_t x, int32_t left) {
    const int64_t wide = (int64_t)x * (1 << left);
    return wide > INT32_MAX ? INT32_MAX : wide < INT32_MIN ? INT32_MIN : (int32_t)wide;
}

/* exp(a) in Q0.31 for a <= 0 in Q5.26. */
static int32_t exp_negative(int32_t a) {
    /* exp(−2^k) for k = −2 … 4, in Q0.31: the factors of a barrel shifter. */
    static const int32_t factors[EXP_STEPS] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
    const int32_t exp_eighth = 1895147668, third = 715827883, quarter = 1 << 24;
    const int32_t offset = (a & (quarter - 1)) - quarter;
    const int32_t x = offset * (1 << DIFF_BITS) + (1 << 28);
    const int32_t x2 = product(x, x), x3 = product(x2, x), x4 = product(x2, x2);
    const int32_t tail = smg_shift_right(product(smg_shift_right(x4, 2) + x3, third) + x2, 1);
    int32_t result = exp_eighth + product(exp_eighth, x + tail);
    const int32_t remainder = offset - a;
    for (int32_t i = 0; i < EXP_STEPS; i++)
        if (remainder & (1 << (24 + i))) result = product(result, factors[i]);
    return a == 0 ? INT32_MAX : result;
}

/* 1 / total of a Q12.19 sum, in Q0.31 after a shift by SUM_BITS − zeros; zeros counts total's leading zeros. */
static int32_t reciprocal(uint32_t total, int32_t zeros) {
    const int32_t c_48_17 = 1515870810, c_32_17 = -1010580540; /* Newton's starting line for 1/x, in Q2.29 */
    const int64_t fraction = (int64_t)((uint64_t)total << zeros) - ((int64_t)1 << 31);
    const int32_t half = (int32_t)((fraction + INT32_MAX + 1) >> 1);
    int32_t x = c_48_17 + product(half, c_32_17);
    for (int32_t i = 0; i < 3; i++) x += saturating_left(product(x, (1 << 29) - product(half, x)), 2);
    return saturating_left(x, 1);
}

static int32_t leading_zeros(uint32_t x) {
    int32_t zeros = 0;
    for (uint32_t bit = (uint32_t)1 << 31; bit && !(x & bit); bit >>= 1) zeros++;
    return zeros;
}

static int32_t scaled_exp(const smg_softmax_s8_params *p, int32_t difference) {
    return exp_negative(product(smg_shift_left(difference, p->shift), p->multiplier));
}

static void softmax_row(const smg_softmax_s8_params *p, const int8_t *x, int8_t *y) {
    int32_t highest = -128;
    for (int32_t i = 0; i < p->c; i++) highest = smg_max(highest, x[i]);
    uint32_t total = 0;
    for (int32_t i = 0; i < p->c; i++)
        if (x[i] - highest >= p->least) total += (uint32_t)smg_shift_right(scaled_exp(p, x[i] - highest), SUM_BITS);
    const int32_t zeros = leading_zeros(total), scale = reciprocal(total, zeros);
    const int32_t right = SUM_BITS - zeros + 31 - 8;
    for (int32_t i = 0; i < p->c; i++) {
        const int32_t difference = x[i] - highest;
        if (difference < p->least) {
            y[i] = -128;
            continue;
        }
        /* Non-negative, and the shift may exceed 31: rounded in 64 bits. */
        const int64_t share = product(scale, scaled_exp(p, difference));
        y[i] = (int8_t)(smg_min((int32_t)((share + ((int64_t)1 << (right - 1))) >> right), 255) - 128);
    }
}

void smg_softmax_s8(const smg_softmax_s8_params *p, const int8_t *x, int8_t *y) {
    for (int32_t r = 0; r < p->rows; r++) softmax_row(p, x + r * p->c, y + r * p->c);
}
