/* Parts of tensors: crops, and some channels of one. */
#include "smidgen_training.h"

void smg_crop_s8(const smg_crop_s8_params *p, const int8_t *x, int8_t *y) {
    const int32_t *n = p->y_shape, *from = p->x_shape;
    for (int32_t i = 0; i < n[0]; i++) {
        for (int32_t j = 0; j < n[1]; j++) {
            for (int32_t k = 0; k < n[2]; k++, y += n[3]) {
                const int32_t row = ((i + p->start[0]) * from[1] + j + p->start[1]) * from[2] + k + p->start[2];
                const int8_t *source = x + row * from[3] + p->start[3];
                for (int32_t l = 0; l < n[3]; l++) y[l] = source[l];
            }
        }
    }
}

void smg_gather_s8(const smg_gather_s8_params *p, const int8_t *x, int8_t *y) {
    for (int32_t i = 0; i < p->n; i++, x += p->x_c, y += p->y_c)
        for (int32_t c = 0; c < p->y_c; c++) y[c] = x[p->channel[c]];
}
