/* The larger of two tensors in int8, and which of them it is. */
#include "smidgen_training.h"

void smg_maximum_s8(const smg_maximum_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y, int32_t count) {
    for (int32_t i = 0, k = 0; i < count; i++) {
        y[i] = a[i] > b[k] ? a[i] : b[k];
        k = k + 1 == p->b_period ? 0 : k + 1;
    }
}

void smg_compare_s8(const smg_compare_s8_params *p, const int8_t *a, const int8_t *b, uint8_t *mask) {
    for (int32_t start = 0, k = 0; start < p->n; start += 8) {
        uint32_t bits = 0;
        for (int32_t i = 0; i < 8 && start + i < p->n; i++) {
            bits |= (uint32_t)((a[start + i] >= b[k]) != p->less) << i;
            k = k + 1 == p->b_period ? 0 : k + 1;
        }
        mask[start / 8] = (uint8_t)bits;
    }
}
