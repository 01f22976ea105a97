/* The product of two computed tensors, matrix by matrix. */
#include "smidgen.h"

#include "arithmetic.h"
#include "products.h"

static void row(const smg_matmul_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y) {
    const smg_product product = {p->depth, p->a_step, p->a_zero, p->b_step, p->b_column, p->b_zero};
    int32_t sums[SMG_PRODUCTS];
    for (int32_t at = 0, count; at < p->columns; at += count) {
        count = smg_min(SMG_PRODUCTS, p->columns - at);
        smg_products(&product, a, b + at * p->b_column, sums, count);
        for (int32_t n = 0; n < count; n++)
            y[at + n] = smg_to_int8(smg_multiply(sums[n], p->multiplier, p->shift), p->y_zero, -128, 127);
    }
}

void smg_matmul_s8(const smg_matmul_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y) {
    const int32_t a_size = p->rows * p->depth, b_size = p->depth * p->columns;
    for (int32_t i = 0; i < p->count; i++, a += a_size, b += b_size)
        for (int32_t r = 0; r < p->rows; r++, y += p->columns) row(p, a + r * p->a_row, b, y);
}
