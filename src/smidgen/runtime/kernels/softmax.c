/* Softmax in int8 and its logarithm, on gemmlowp's fixed-point arithmetic as TFLite's reference kernel uses it. */
#include "smidgen.h"

#include "arithmetic.h"

enum { DIFF_BITS = 5, SUM_BITS = 12, EXP_STEPS = 7, LOG_BITS = DIFF_BITS + 1 };
/* A difference that gives the lowest int8 whatever is subtracted from it, and the bits that the output drops. */
enum { LOG_LEAST = -(1 << 30), LOG_SHIFT = 22 };

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

/* 1 / (1 + fraction) in Q0.31, by Newton's method. */
static int32_t one_over_one_plus(int64_t fraction) {
    const int32_t c_48_17 = 1515870810, c_32_17 = -1010580540; /* the starting line for 1/x, in Q2.29 */
    const int32_t half = (int32_t)((fraction + INT32_MAX + 1) >> 1);
    int32_t x = c_48_17 + product(half, c_32_17);
    for (int32_t i = 0; i < 3; i++) x += saturating_left(product(x, (1 << 29) - product(half, x)), 2);
    return saturating_left(x, 1);
}

/* 1 / total of a Q12.19 sum, in Q0.31 after a shift by SUM_BITS − zeros; zeros counts total's leading zeros. */
static int32_t reciprocal(uint32_t total, int32_t zeros) {
    return one_over_one_plus((int64_t)((uint64_t)total << zeros) - ((int64_t)1 << 31));
}

static int32_t leading_zeros(uint32_t x) {
    int32_t zeros = 0;
    for (uint32_t bit = (uint32_t)1 << 31; bit && !(x & bit); bit >>= 1) zeros++;
    return zeros;
}

/* A difference to the row's highest element in Q5.26. */
static int32_t scaled(const smg_softmax_s8_params *p, int32_t difference) {
    return product(smg_shift_left(difference, p->shift), p->multiplier);
}

static int32_t highest_of(const smg_softmax_s8_params *p, const int8_t *x) {
    int32_t highest = -128;
    for (int32_t i = 0; i < p->c; i++) highest = smg_max(highest, x[i]);
    return highest;
}

/* The sum of a row's exponentials in Q12.19. */
static uint32_t total_of(const smg_softmax_s8_params *p, const int8_t *x, int32_t highest) {
    uint32_t total = 0;
    for (int32_t i = 0; i < p->c; i++)
        if (x[i] - highest >= p->least)
            total += (uint32_t)smg_shift_right(exp_negative(scaled(p, x[i] - highest)), SUM_BITS);
    return total;
}

static void softmax_row(const smg_softmax_s8_params *p, const int8_t *x, int8_t *y) {
    const int32_t highest = highest_of(p, x);
    const uint32_t total = total_of(p, x, highest);
    const int32_t zeros = leading_zeros(total), scale = reciprocal(total, zeros);
    const int32_t right = SUM_BITS - zeros + 31 - 8;
    for (int32_t i = 0; i < p->c; i++) {
        const int32_t difference = x[i] - highest;
        if (difference < p->least) {
            y[i] = -128;
            continue;
        }
        /* Non-negative, and the shift may exceed 31: rounded in 64 bits. */
        const int64_t share = product(scale, exp_negative(scaled(p, difference)));
        y[i] = (int8_t)(smg_min((int32_t)((share + ((int64_t)1 << (right - 1))) >> right), 255) - 128);
    }
}

void smg_softmax_s8(const smg_softmax_s8_params *p, const int8_t *x, int8_t *y) {
    for (int32_t r = 0; r < p->rows; r++) softmax_row(p, x + r * p->c, y + r * p->c);
}

/* The logarithm of a Q12.19 number from one on, as Q5.26: it is 2^k r with r near the fourth root of 1/2, and log r a
 * quotient of polynomials; of two such splits the smaller r counts. */
static int32_t log_of(uint32_t total) {
    /* log 2, the roots of 1/2, and 11/240 a, 1/20 a, 2/a − a and 1/4 a for the fourth root a of 2, in Q0.31. */
    const int32_t log_two = 1488522236, root = 1518500250, fourth_root = 1805811301;
    const int32_t alpha_n = 117049297, alpha_d = 127690142, alpha_i = 1057819769, alpha_f = 638450708;
    const int32_t quarter = 1 << (29 - LOG_BITS), unit = 1 << (31 - LOG_BITS), z = (int32_t)total;
    const int32_t zeros = leading_zeros(total), halved = leading_zeros((uint32_t)product(z, root)) - 1;
    const int32_t first = saturating_left(product(saturating_left(z, zeros - 1), root), 1);
    const int32_t r = smg_min(first, saturating_left(z, halved));
    const int32_t exponent = smg_max((SUM_BITS - zeros) * unit + quarter, (SUM_BITS - halved) * unit - quarter);
    const int32_t p = (int32_t)(((int64_t)r + fourth_root + 1) >> 1), q = 2 * (r - fourth_root);
    const int32_t square = product(q, q);
    const int32_t numerator = product(q, r) + product(product(q, square), alpha_n);
    const int32_t rest = product(p, alpha_i + q + product(alpha_d, square)) + product(alpha_f, q);
    const int32_t quotient = product(smg_shift_right(numerator, LOG_BITS), one_over_one_plus(rest));
    return saturating_left(product(exponent, log_two) + quotient, 1);
}

static void log_softmax_row(const smg_log_softmax_s8_params *p, const int8_t *x, int8_t *y) {
    const int32_t highest = highest_of(p, x), log_sum = log_of(total_of(p, x, highest));
    for (int32_t i = 0; i < p->c; i++) {
        const int32_t difference = x[i] - highest;
        const int32_t below = difference < p->least ? LOG_LEAST : smg_max(scaled(p, difference), LOG_LEAST);
        y[i] = smg_to_int8(smg_shift_right(below - log_sum, LOG_SHIFT), 127, -128, 127);
    }
}

void smg_log_softmax_s8(const smg_log_softmax_s8_params *p, const int8_t *x, int8_t *y) {
    for (int32_t r = 0; r < p->rows; r++) log_softmax_row(p, x + r * p->c, y + r * p->c);
}
