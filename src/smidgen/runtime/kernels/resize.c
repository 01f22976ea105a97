/* Bilinear resizing: each element is the sum of the four nearest, in shares of 1/1024 of each side. */
#include "arithmetic.h"
#include "smidgen.h"

enum { BITS = 10, ONE = 1 << BITS };

/* Where a point lies: between two places, `part` / 1024 of the way. */
typedef struct {
    int32_t lower, upper, part;
} between;

static inline between place(int32_t i, int32_t step, int32_t first, int32_t size) {
    const int32_t at = i * step + first, lower = smg_max(at, 0) / ONE;
    const between found = {lower, smg_min((at + ONE - 1) / ONE, size - 1), at - lower * ONE};
    return found;
}

void smg_resize_bilinear_s8(const smg_resize_bilinear_s8_params *p, const int8_t *x, int8_t *y) {
    for (int32_t i = 0; i < p->y_h; i++) {
        const between row = place(i, p->row_step, p->row_first, p->x_h);
        const int8_t *upper = x + row.lower * p->x_w * p->c, *lower = x + row.upper * p->x_w * p->c;
        for (int32_t j = 0; j < p->y_w; j++, y += p->c) {
            const between column = place(j, p->column_step, p->column_first, p->x_w);
            const int32_t left = column.lower * p->c, right = column.upper * p->c;
            const int32_t a = (ONE - row.part) * (ONE - column.part), b = row.part * (ONE - column.part);
            const int32_t c = (ONE - row.part) * column.part, d = row.part * column.part;
            for (int32_t k = 0; k < p->c; k++) {
                const int32_t sum = upper[left + k] * a + lower[left + k] * b + upper[right + k] * c + lower[right + k] * d;
                y[k] = (int8_t)((sum + (sum > 0 ? ONE * ONE / 2 : -ONE * ONE / 2)) / (ONE * ONE));
            }
        }
    }
}
