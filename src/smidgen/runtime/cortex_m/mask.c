/* Where gradients pass: a bit for each element that its activation did not clamp, four elements at a time. */
#include "smidgen_training.h"

/* Of each byte of `four` of which `least` can be taken and leaves at most `span`, that of `bits`; least and span in every
 * byte. SEL goes by the greater-or-equal flags of USUB8. */
static inline uint32_t inside(uint32_t four, uint32_t least, uint32_t span, uint32_t bits) {
    uint32_t passed;
    __asm__("usub8 %0, %1, %2\n usub8 %0, %3, %0\n sel %0, %4, %5"
            : "=&r"(passed)
            : "r"(four), "r"(least), "r"(span), "r"(bits), "r"(0));
    return passed;
}

/* The sum of four bytes. */
static inline uint32_t sum(uint32_t four) {
    uint32_t total;
    __asm__("usad8 %0, %1, %2" : "=r"(total) : "r"(four), "r"(0));
    return total;
}

static inline uint32_t load(const int8_t *y) {
    uint32_t four;
    __builtin_memcpy(&four, y, sizeof four);
    return four;
}

void smg_mask_s8(const smg_mask_s8_params *p, const int8_t *y, uint8_t *mask) {
    const int32_t between = p->hi - p->lo - 2; /* negative where nothing lies inside */
    const uint32_t every = 0x01010101u, least = every * (uint8_t)(p->lo + 1), span = every * (uint8_t)between;
    const int32_t whole = between < 0 ? 0 : p->n / 8;
    for (int32_t i = 0; i < whole; i++, y += 8)
        mask[i] = (uint8_t)sum(inside(load(y), least, span, 0x08040201u) | inside(load(y + 4), least, span, 0x80402010u));
    for (int32_t i = whole; i < (p->n + 7) / 8; i++) {
        uint32_t bits = 0;
        for (int32_t k = 0; between >= 0 && k < p->n % 8; k++) bits |= (uint32_t)(y[k] > p->lo && y[k] < p->hi) << k;
        mask[i] = (uint8_t)bits;
    }
}
