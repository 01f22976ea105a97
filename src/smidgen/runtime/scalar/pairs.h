/* Two products by one multiplication. With d = d0 + d1 * 2^16 and w = w1 + w0 * 2^16, modulo 2^32,
 *
 *     d * w = d0 w1 + (d0 w0 + d1 w1) * 2^16,
 *
 * whose upper half, rounded to the nearest, is the sum of both products as long as 16 bits hold it and what stands in
 * the lower half. Of sums of such words the same is true: of gradients whose magnitudes add up to SMG_FEW and of
 * weights down to -128 neither half leaves its 16 bits. Two gradients never come to more. */
#ifndef SMIDGEN_PAIRS_H
#define SMIDGEN_PAIRS_H

#include <stdint.h>

/* What magnitudes of gradients may add up to: 128 times as much is less than 2^15. */
enum { SMG_FEW = 255, SMG_HALF = 1 << 15 };

static inline uint32_t smg_gradient_pair(int32_t d0, int32_t d1) { return (uint32_t)d0 + ((uint32_t)d1 << 16); }
static inline uint32_t smg_weight_pair(int32_t w0, int32_t w1) { return (uint32_t)w1 + ((uint32_t)w0 << 16); }

/* The sum in a word to which SMG_HALF was added. */
static inline int32_t smg_upper(uint32_t word) { return (int32_t)word >> 16; }

static inline int32_t smg_magnitude(int32_t x) { return x < 0 ? -x : x; }

#endif
