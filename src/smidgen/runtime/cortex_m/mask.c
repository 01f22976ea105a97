/* Where gradients pass: a bit for each element that its activation did not clamp, four elements at a time. */
#include "smidgen_training.h"

/* One bit for each byte of `four` of which `least` can be taken and leaves at most `span`; least and span in every
 * byte. The greater-or-equal flags of USUB8 are bits 16 to 19 of the status. */
static inline uint32_t inside(uint32_t four, uint32_t least, uint32_t span) {
    uint32_t state;
    __asm__ volatile("usub8 %0, %1, %2\n usub8 %0, %3, %0\n mrs %0, APSR"
                     : "=&r"(state)
                     : "r"(four), "r"(least), "r"(span)
                     : "cc");
    return state >> 16 & 15;
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
        mask[i] = (uint8_t)(inside(load(y), least, span) | inside(load(y + 4), least, span) << 4);
    for (int32_t i = whole; i < (p->n + 7) / 8; i++) {
        uint32_t bits = 0;
        for (int32_t k = 0; between >= 0 && k < p->n % 8; k++) bits |= (uint32_t)(y[k] > p->lo && y[k] < p->hi) << k;
        mask[i] = (uint8_t)bits;
    }
}
