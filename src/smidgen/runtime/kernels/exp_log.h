/* An exp and a log of our own in float32, for losses: the same bits everywhere. */
#ifndef SMIDGEN_EXP_LOG_H
#define SMIDGEN_EXP_LOG_H

#include "float32.h"

/* Logits are kept within 2^100, so that their differences are numbers. */
#define SMG_LOGIT_LIMIT 1.26765060e+30f

/* e^x for x <= 0. Below -80 it is taken as 0: it cannot show in a float32 sum that holds a 1. */
static inline float smg_exp_negative(float x) {
    const float log2_e = 1.44269502f, ln2_high = 0.693145752f, ln2_low = 1.42860677e-06f, least = -80;
    const float limited = x > least ? x : least;
    const int32_t n = (int32_t)(limited * log2_e - 0.5f);
    const float whole = (float)n, r = (limited - whole * ln2_high) - whole * ln2_low;
    float p = 0.00138888892f; /* Taylor: 1/6!, 1/5!, ... */
    p = p * r + 0.00833333377f;
    p = p * r + 0.0416666679f;
    p = p * r + 0.166666672f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return x < least ? 0.0f : p * smg_power_of_two(n);
}

/* ln x for normal x > 0: x = m 2^e with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh((m - 1) / (m + 1)). */
static inline float smg_log_positive(float x) {
    const float ln2_high = 0.693145752f, ln2_low = 1.42860677e-06f;
    const int32_t bits = smg_bits(x), e = (bits - 0x3F3504F3) >> 23;
    const float m = smg_from_bits(bits - e * (1 << 23)), exponent = (float)e;
    const float s = (m - 1.0f) / (m + 1.0f), s2 = s * s;
    float p = 0.222222224f;
    p = p * s2 + 0.285714298f;
    p = p * s2 + 0.400000006f;
    p = p * s2 + 0.666666687f;
    p = p * s2 + 2.0f;
    return (exponent * ln2_low + s * p) + exponent * ln2_high;
}

#endif
