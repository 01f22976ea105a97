/* Sums of products: columns that lie side by side are summed together, others one after another. */
#include "products.h"

static inline uint32_t term(const smg_product *p, int8_t left, int8_t right) {
    return (uint32_t)((left - p->left_zero) * (right - p->right_zero));
}

static void side_by_side(const smg_product *p, const int8_t *left, const int8_t *right, int32_t *sums, int32_t count) {
    for (int32_t n = 0; n < count; n++) sums[n] = 0;
    for (int32_t i = 0; i < p->depth; i++, left += p->left_step, right += p->right_step)
        for (int32_t n = 0; n < count; n++) sums[n] = (int32_t)((uint32_t)sums[n] + term(p, *left, right[n]));
}

void smg_products(const smg_product *p, const int8_t *left, const int8_t *right, int32_t *sums, int32_t count) {
    if (p->right_column == 1) {
        side_by_side(p, left, right, sums, count);
        return;
    }
    for (int32_t n = 0; n < count; n++, right += p->right_column) {
        uint32_t sum = 0;
        for (int32_t i = 0; i < p->depth; i++) sum += term(p, left[i * p->left_step], right[i * p->right_step]);
        sums[n] = (int32_t)sum;
    }
}
