/* Kernels that move bytes and compute nothing: pad, crop, pick, transpose, concatenate. */
#include "smidgen.h"

#include "copying.h"

static inline void fill(int8_t *to, int32_t value, int32_t count) {
    for (int32_t i = 0; i < count; i++) to[i] = (int8_t)value;
}

/* Is index i of dimension d inside the input, not in its padding? */
static inline int inside(const smg_pad_s8_params *p, int32_t d, int32_t i) {
    return i >= p->before[d] && i < p->before[d] + p->x_shape[d];
}

void smg_pad_s8(const smg_pad_s8_params *p, const int8_t *x, int8_t *y) {
    const int32_t *n = p->y_shape, row = p->x_shape[3], after = n[3] - p->before[3] - row;
    for (int32_t i = 0; i < n[0]; i++) {
        for (int32_t j = 0; j < n[1]; j++) {
            for (int32_t k = 0; k < n[2]; k++, y += n[3]) {
                if (inside(p, 0, i) && inside(p, 1, j) && inside(p, 2, k)) {
                    fill(y, p->zero, p->before[3]);
                    smg_copy(y + p->before[3], x, row);
                    fill(y + p->before[3] + row, p->zero, after);
                    x += row;
                } else {
                    fill(y, p->zero, n[3]);
                }
            }
        }
    }
}

void smg_crop_s8(const smg_crop_s8_params *p, const int8_t *x, int8_t *y) {
    const int32_t *n = p->y_shape, *from = p->x_shape;
    for (int32_t i = 0; i < n[0]; i++) {
        for (int32_t j = 0; j < n[1]; j++) {
            for (int32_t k = 0; k < n[2]; k++, y += n[3]) {
                const int32_t row = ((i + p->start[0]) * from[1] + j + p->start[1]) * from[2] + k + p->start[2];
                smg_copy(y, x + row * from[3] + p->start[3], n[3]);
            }
        }
    }
}

/* One row of smg_pick_s8. */
static inline void pick_row(const smg_pick_s8_params *p, const int8_t *x, int8_t *y) {
    for (int32_t j = 0; j < p->y_w; j += p->columns_taken, x += p->columns_of * p->c)
        for (int32_t k = 0; k < p->columns_taken; k++, y += p->c) smg_copy(y, x + p->column[k] * p->c, p->c);
}

void smg_pick_s8(const smg_pick_s8_params *p, const int8_t *x, int8_t *y) {
    const int32_t x_row = p->x_w * p->c, y_row = p->y_w * p->c;
    for (int32_t i = 0; i < p->y_h; i += p->rows_taken, x += p->rows_of * x_row)
        for (int32_t k = 0; k < p->rows_taken; k++, y += y_row) pick_row(p, x + p->row[k] * x_row, y);
}

void smg_transpose_s8(const smg_transpose_s8_params *p, const int8_t *x, int8_t *y) {
    const int32_t *n = p->y_shape, *step = p->x_step;
    for (int32_t i = 0; i < n[0]; i++) {
        for (int32_t j = 0; j < n[1]; j++) {
            for (int32_t k = 0; k < n[2]; k++) {
                const int8_t *from = x + i * step[0] + j * step[1] + k * step[2];
                for (int32_t l = 0; l < n[3]; l++) *y++ = from[l * step[3]];
            }
        }
    }
}

void smg_concat_s8(const smg_concat_s8_params *p, const int8_t *const *x, int8_t *y) {
    for (int32_t i = 0; i < p->outer; i++) {
        for (int32_t j = 0; j < p->count; j++) {
            smg_copy(y, x[j] + i * p->part[j], p->part[j]);
            y += p->part[j];
        }
    }
}
