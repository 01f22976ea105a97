/* Where gradients pass: a bit for each element that its activation did not clamp. */
#include "smidgen_training.h"

/* One bit for each of up to eight elements that lie strictly between the limits. */
static inline uint8_t inside(const int8_t *y, int32_t count, int32_t lo, int32_t hi) {
    uint32_t bits = 0;
    for (int32_t k = 0; k < count; k++) bits |= (uint32_t)(y[k] > lo && y[k] < hi) << k;
    return (uint8_t)bits;
}

void smg_mask_s8(const smg_mask_s8_params *p, const int8_t *y, uint8_t *mask) {
    const int32_t whole = p->n / 8;
    for (int32_t i = 0; i < whole; i++) mask[i] = inside(y + 8 * i, 8, p->lo, p->hi);
    if (p->n % 8) mask[whole] = inside(y + 8 * whole, p->n % 8, p->lo, p->hi);
}
