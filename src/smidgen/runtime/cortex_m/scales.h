/* Which multipliers the assembly scales with, and what it leaves to C. */
#ifndef SMIDGEN_SCALES_H
#define SMIDGEN_SCALES_H

#include "arithmetic.h"

/* Negative where the assembly cannot scale by these: multipliers of a half and more, and those that are nothing. */
static inline int32_t smg_unusual(int32_t multiplier, int32_t shift) { return (multiplier - (1 << 30)) | ~shift; }

/* The assembly saturates at the ends of int8; closer limits, where there are any, are kept to afterwards. */
static inline int32_t smg_limited(int32_t lo, int32_t hi) { return lo > -128 || hi < 127; }

void smg_limit(int8_t *y, int32_t count, int32_t lo, int32_t hi);

#endif
