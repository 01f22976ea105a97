/* Where gradients pass: a bit for each element that its activation did not clamp, sixteen elements at a time. */
#include <arm_mve.h>

#include "smidgen_training.h"

/* A predicate of bytes is what sixteen bits of a mask are. */
static inline uint16_t inside(const int8_t *y, int8_t lo, int8_t hi, mve_pred16_t some) {
    const int8x16_t all = vldrbq_z_s8(y, some);
    return vcmpltq_m_n_s8(all, hi, vcmpgtq_m_n_s8(all, lo, some));
}

void smg_mask_s8(const smg_mask_s8_params *p, const int8_t *y, uint8_t *mask) {
    const int8_t lo = (int8_t)p->lo, hi = (int8_t)p->hi;
    int32_t left = p->n;
    for (; left >= 16; left -= 16, y += 16, mask += 2) {
        const uint16_t bits = inside(y, lo, hi, 0xFFFF);
        __builtin_memcpy(mask, &bits, sizeof bits);
    }
    if (left > 0) {
        const uint16_t bits = inside(y, lo, hi, vctp8q((uint32_t)left));
        mask[0] = (uint8_t)bits;
        if (left > 8) mask[1] = (uint8_t)(bits >> 8);
    }
}
