/* Some channels of a tensor. */
#include "smidgen_training.h"

void smg_gather_s8(const smg_gather_s8_params *p, const int8_t *x, int8_t *y) {
    for (int32_t i = 0; i < p->n; i++, x += p->x_c, y += p->y_c)
        for (int32_t c = 0; c < p->y_c; c++) y[c] = x[p->channel[c]];
}
