/* Where gradients pass: a bit for each element that its activation did not clamp, four elements at a time. */
#include "smidgen_training.h"

#include "arithmetic.h"

/* Where words begin. */
typedef uint32_t __attribute__((may_alias)) word;

/* Of two bytes raised by 128, each in a halfword: bit 8 of a halfword is set where its byte lies inside. */
static inline uint32_t inside(uint32_t bytes, uint32_t least, uint32_t most) {
    return (bytes + least) & (most - bytes) & 0x01000100;
}

/* The bits of a word's four bytes. */
static inline uint32_t four(uint32_t bytes, uint32_t least, uint32_t most) {
    const uint32_t even = 0x00FF00FF, raised = bytes ^ 0x80808080;
    const uint32_t both = inside(raised & even, least, most) | inside(raised >> 8 & even, least, most) << 1;
    return (both >> 8 | both >> 22) & 15;
}

void smg_mask_s8(const smg_mask_s8_params *p, const int8_t *y, uint8_t *mask) {
    const uint32_t every = 0x00010001;
    const uint32_t least = every * (uint32_t)(256 - (p->lo + 129)), most = every * (uint32_t)(256 + p->hi + 127);
    const int32_t whole = (uintptr_t)y % sizeof(word) == 0 && p->lo >= -129 && p->hi <= 128 ? p->n / 8 : 0;
    const word *from = (const word *)(const void *)y;
    for (int32_t i = 0; i < whole; i++, from += 2)
        *mask++ = (uint8_t)(four(from[0], least, most) | four(from[1], least, most) << 4);
    for (int32_t i = 8 * whole; i < p->n; i += 8) {
        uint32_t bits = 0;
        for (int32_t k = i; k < smg_min(i + 8, p->n); k++) bits |= (uint32_t)(y[k] > p->lo && y[k] < p->hi) << (k - i);
        *mask++ = (uint8_t)bits;
    }
}
