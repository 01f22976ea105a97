/* Fixed point in 16 bits as TFLite's recurrent layers compute in it: Qm.n has m bits before the point and n after it.
 * The functions are gemmlowp's: e^x as a polynomial times factors by the bits of x, then a quotient by Newton's method.
 */
#ifndef SMIDGEN_FIXED16_H
#define SMIDGEN_FIXED16_H

#include <stdint.h>

#include "arithmetic.h"

enum { SMG_FRACTION = 15, SMG_GATE_BITS = 3, SMG_ONE_Q2 = 1 << 13, SMG_EXP_STEPS = 7 };

static inline int32_t smg_saturate16(int32_t x) { return smg_clamp(x, INT16_MIN, INT16_MAX); }

/* The rounded upper half of 2ab of two int16 numbers, not both -2^15. */
static inline int32_t smg_half_mul(int32_t a, int32_t b) { return (a * b + (1 << 14)) >> 15; }

/* exp(a) in Q0.15 for a <= 0 with `whole` bits before the point. */
static inline int32_t smg_exp_negative16(int32_t a, int32_t whole) {
    /* exp(-2^k) for k = -2 ... 4, in Q0.15: the factors of a barrel shifter. */
    static const int16_t factors[SMG_EXP_STEPS] = {25520, 19875, 12055, 4435, 600, 11, 0};
    const int32_t exp_eighth = 28918, third = 10923, fraction = SMG_FRACTION - whole, quarter = 1 << (fraction - 2);
    const int32_t offset = (a & (quarter - 1)) - quarter;
    const int32_t x = offset * (1 << whole) + (1 << 12);
    const int32_t x2 = smg_half_mul(x, x), x3 = smg_half_mul(x2, x), x4 = smg_half_mul(x2, x2);
    const int32_t tail = smg_shift_right(smg_half_mul(smg_shift_right(x4, 2) + x3, third) + x2, 1);
    int32_t result = smg_saturate16(exp_eighth + smg_half_mul(exp_eighth, x + tail));
    if (a == 0) return INT16_MAX;
    if (whole > 5 && a < -(32 << fraction)) return 0;
    const int16_t *factor = factors;
    for (int32_t quarters = (offset - a) >> (fraction - 2); quarters; quarters >>= 1, factor++)
        if (quarters & 1) result = smg_half_mul(result, *factor);
    return result;
}

/* 2 / (1 + x) in Q2.13 for x in Q0.15, from 0 to 1. */
static inline int32_t smg_reciprocal16(int32_t x) {
    const int32_t c_48_17 = 23130, c_32_17 = -15420; /* Newton's starting line for 1/x, in Q2.13 */
    const int32_t half = (x + INT16_MAX + 1) >> 1;
    int32_t y = c_48_17 + smg_half_mul(half, c_32_17);
    for (int32_t i = 0; i < 3; i++) y += smg_saturate16(smg_half_mul(y, SMG_ONE_Q2 - smg_half_mul(half, y)) * 4);
    return y;
}

/* 1 / (1 + e^-x): Q3.12 to Q0.15. */
static inline int32_t smg_sigmoid16(int32_t x) {
    const int32_t positive = smg_saturate16(smg_reciprocal16(smg_exp_negative16(x < 0 ? x : -x, SMG_GATE_BITS)) * 2);
    return x == 0 ? 1 << 14 : x > 0 ? positive : INT16_MAX - positive;
}

/* tanh of x with `whole` bits before the point, 0 to 6, in Q0.15. */
static inline int32_t smg_tanh16(int32_t x, int32_t whole) {
    const int32_t e = smg_exp_negative16(x < 0 ? x : -x, whole + 1);
    const int32_t magnitude = smg_saturate16((smg_reciprocal16(e) - SMG_ONE_Q2) * 4);
    return x == 0 ? 0 : x < 0 ? -magnitude : magnitude;
}

#endif
