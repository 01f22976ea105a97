/* Four int8 in a word, two int16 in a word. */
#ifndef SMIDGEN_PACKED_H
#define SMIDGEN_PACKED_H

#include <stdint.h>

/* Four elements, wherever they lie. */
static inline uint32_t smg_four(const int8_t *x) {
    uint32_t word;
    __builtin_memcpy(&word, x, sizeof word);
    return word;
}

/* Elements 1 and 3 in the places of 0 and 2. */
static inline uint32_t smg_turned(uint32_t word) { return word >> 8 | word << 24; }

/* A number in both halves. */
static inline uint32_t smg_both(int32_t x) { return (uint32_t)(uint16_t)x * 0x10001u; }

#endif
