/* The bits of float32. */
#ifndef SMIDGEN_FLOAT32_H
#define SMIDGEN_FLOAT32_H

#include <stdint.h>

#include "exact_floats.h"

typedef union {
    float real;
    int32_t bits;
} smg_float32;

static inline int32_t smg_bits(float x) {
    const smg_float32 both = {x};
    return both.bits;
}

static inline float smg_from_bits(int32_t bits) {
    smg_float32 both;
    both.bits = bits;
    return both.real;
}

/* 2^n for -126 <= n <= 127. */
static inline float smg_power_of_two(int32_t n) { return smg_from_bits((n + 127) << 23); }

/* x within ±most; in this order a NaN becomes the lower limit. */
static inline float smg_limit(float x, float most) {
    const float above = x > -most ? x : -most;
    return above < most ? above : most;
}

#endif
