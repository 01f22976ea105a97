/* The sums of products that matrix multiplications of two computed tensors spend their time in. */
#ifndef SMIDGEN_PRODUCTS_H
#define SMIDGEN_PRODUCTS_H

#include <stdint.h>

/* Columns whose sums a kernel holds on its stack at once. */
enum { SMG_PRODUCTS = 64 };

/* One row on the left, `depth` rows on the right: elements between neighbours, and what stands for zero. */
typedef struct {
    int32_t depth, left_step, left_zero, right_step, right_column, right_zero;
} smg_product;

/* sums[n] = Σ (left[i * left_step] - left_zero) * (right[i * right_step + n * right_column] - right_zero) over i < depth,
 * for n < count, which is SMG_PRODUCTS at most. */
void smg_products(const smg_product *p, const int8_t *left, const int8_t *right, int32_t *sums, int32_t count);

#endif
