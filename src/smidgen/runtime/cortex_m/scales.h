/* How the assembly scales a channel's sums: what it needs to know of the multiplier, and which of its ways it takes. */
#ifndef SMIDGEN_SCALES_H
#define SMIDGEN_SCALES_H

#include "arithmetic.h"

/* The ways: see SMG_SCALE_MACROS; those of SMG_OTHER, multipliers of a half and more, are left to C. */
enum { SMG_NEAR, SMG_FAR, SMG_OTHER };

static inline int32_t smg_way(int32_t multiplier, int32_t shift) {
    if (multiplier == 0) return SMG_NEAR;
    if (shift >= 0 || multiplier < 1 << 30) return SMG_OTHER;
    return shift <= -3 && shift >= -17 ? SMG_NEAR : SMG_FAR;
}

/* What the assembly takes as `m` and `h`; a multiplier of 0 leaves nothing of any sum. */
static inline int32_t smg_twice(int32_t multiplier) { return (int32_t)((uint32_t)multiplier << 1); }

static inline int32_t smg_shifted(int32_t multiplier, int32_t shift, int32_t way) {
    if (way == SMG_NEAR) return multiplier ? 1 << (17 + shift) : 0;
    return multiplier ? -shift - 1 : 31;
}

/* The assembly saturates at the ends of int8; closer limits are kept to afterwards. */
static inline void smg_limit(int8_t *y, int32_t count, int32_t lo, int32_t hi) {
    if (lo > -128 || hi < 127)
        for (int32_t i = 0; i < count; i++) y[i] = (int8_t)smg_clamp(y[i], lo, hi);
}

#endif
