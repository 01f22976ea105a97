/* Rows brought to the length of one, on gemmlowp's fixed-point arithmetic as TFLite's reference kernel uses it. */
#include "smidgen.h"

#include "arithmetic.h"

enum { OUTPUT_BITS = 7, NEWTON_STEPS = 5 };

static inline int32_t raised(int32_t x, int32_t left) {
    const int64_t wide = (int64_t)x << left;
    return wide > INT32_MAX ? INT32_MAX : (int32_t)wide;
}

/* 1 / root of n as a multiplier, and its shift. */
static int32_t inverse_root(uint32_t n, int32_t *shift) {
    int32_t right = 11;
    *shift = 0;
    if (n <= 1) return INT32_MAX;
    for (; n >= (uint32_t)1 << 29; right++) n /= 4;
    for (; n < (uint32_t)1 << 27; right--) n <<= 2;
    const int32_t whole = (int32_t)(n >> 1), half = (whole >> 1) + (whole & 1), three_halves = 3 << 27;
    int32_t x = 1 << 28;
    for (int32_t i = 0; i < NEWTON_STEPS; i++) {
        const int32_t cube = raised(smg_high_mul(smg_high_mul(x, x), x), 6);
        x = raised(smg_high_mul(three_halves, x) - smg_high_mul(half, cube), 3);
    }
    x = smg_high_mul(x, 1518500250); /* half of the root of two, in Q0.31 */
    if (right < 0) return smg_shift_left(x, -right);
    *shift = -right;
    return x;
}

void smg_unit_norm_s8(const smg_unit_norm_s8_params *p, const int8_t *x, int8_t *y) {
    for (int32_t r = 0; r < p->rows; r++, x += p->c, y += p->c) {
        uint32_t squares = 0;
        for (int32_t i = 0; i < p->c; i++) squares += (uint32_t)((x[i] - p->x_zero) * (x[i] - p->x_zero));
        int32_t shift;
        const int32_t multiplier = inverse_root(squares, &shift);
        for (int32_t i = 0; i < p->c; i++)
            y[i] = smg_to_int8(smg_multiply(x[i] - p->x_zero, multiplier, shift + OUTPUT_BITS), 0, -128, 127);
    }
}
