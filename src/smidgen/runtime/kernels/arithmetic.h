/* TFLite's fixed-point arithmetic, written so that it has no branches and no undefined shifts. */
#ifndef SMIDGEN_ARITHMETIC_H
#define SMIDGEN_ARITHMETIC_H

#include <stdint.h>

#include "wide.h"

static inline int32_t smg_min(int32_t a, int32_t b) { return a < b ? a : b; }
static inline int32_t smg_max(int32_t a, int32_t b) { return a > b ? a : b; }
static inline int32_t smg_clamp(int32_t x, int32_t lo, int32_t hi) { return smg_min(smg_max(x, lo), hi); }

/* x * 2^left for 0 <= left < 32; what leaves the 32 bits is lost. */
static inline int32_t smg_shift_left(int32_t x, int32_t left) { return (int32_t)((uint32_t)x << left); }

/* x / 2^right for 0 <= right < 32 and mask = 2^right - 1, halves away from zero. */
static inline int32_t smg_shift_right_masked(int32_t x, int32_t right, int32_t mask) {
    return (x >> right) + ((x & mask) > (mask >> 1) + (x < 0));
}

static inline int32_t smg_shift_right(int32_t x, int32_t right) {
    return smg_shift_right_masked(x, right, (int32_t)(((uint32_t)1 << right) - 1));
}

/* round(x * multiplier * 2^(shift - 31)). */
static inline int32_t smg_multiply(int32_t x, int32_t multiplier, int32_t shift) {
    return smg_shift_right(smg_high_mul(smg_shift_left(x, smg_max(shift, 0)), multiplier), smg_max(-shift, 0));
}

/* Add the zero point and saturate; limiting first keeps the sum in range. */
static inline int8_t smg_to_int8(int32_t x, int32_t zero, int32_t lo, int32_t hi) {
    return (int8_t)(smg_clamp(x, lo - zero, hi - zero) + zero);
}

#endif
