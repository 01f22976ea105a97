/* The upper parts of 64-bit products. A core that multiplies no more than 32 bits (Cortex-M0+) has them from products of
 * halfwords, in half the instructions of a call to its compiler's library. */
#ifndef SMIDGEN_WIDE_H
#define SMIDGEN_WIDE_H

#include <stdint.h>

#if defined(__ARM_ARCH_6M__) || defined(SMG_HALFWORDS)
/* Parts are added from the lowest on: no sum leaves its 32 bits. */
static inline int32_t smg_high_mul(int32_t a, int32_t b) {
    const int32_t a_high = a >> 16, a_low = a & 0xFFFF, b_high = b >> 16, b_low = b & 0xFFFF;
    const int32_t first = a_high * b_low + (int32_t)((uint32_t)a_low * (uint32_t)b_low >> 16);
    const int32_t second = a_low * b_high + (first & 0xFFFF) + (1 << 14); /* half of what is lost by the shift below */
    return (int32_t)(2 * ((uint32_t)(a_high * b_high) + (uint32_t)(first >> 16)) + (uint32_t)(second >> 15));
}

static inline uint32_t smg_upper_product(uint32_t a, uint32_t b, int32_t right) {
    const uint32_t a_high = a >> 16, a_low = a & 0xFFFF, b_high = b >> 16, b_low = b & 0xFFFF;
    const uint32_t lowest = a_low * b_low, first = a_high * b_low + (lowest >> 16);
    const uint32_t second = a_low * b_high + (first & 0xFFFF);
    const uint32_t high = a_high * b_high + (first >> 16) + (second >> 16);
    return high << (32 - right) | (second << 16 | (lowest & 0xFFFF)) >> right;
}
#else
/* The rounded upper half of 2ab, unless both are -2^31. A logical shift leaves bits 31 to 62 of the sum as they are. */
static inline int32_t smg_high_mul(int32_t a, int32_t b) {
    return (int32_t)(uint32_t)((uint64_t)((int64_t)a * b + (1 << 30)) >> 31);
}

/* The lower 32 bits of ab / 2^right, rounded down, for 0 < right < 32. */
static inline uint32_t smg_upper_product(uint32_t a, uint32_t b, int32_t right) {
    return (uint32_t)((uint64_t)a * b >> right);
}
#endif

#endif
