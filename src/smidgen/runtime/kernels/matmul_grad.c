/* The gradient of a product of two computed tensors with respect to either. */
#include "smidgen_training.h"

#include "products.h"
#include "rounding.h"

void smg_matmul_grad_g8(const smg_matmul_grad_g8_params *p, const int8_t *dy, const int8_t *other, const uint8_t *mask,
                        const int32_t *step_state, int8_t *dx, int32_t *peak_bits) {
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    const int32_t first = p->gradient_first, left_size = p->rows * p->depth, right_size = p->depth * p->columns;
    const smg_product product = {p->depth,      p->left_step,    first ? 0 : p->zero,
                                 p->right_step, p->right_column, first ? p->zero : 0};
    const int8_t *left = first ? dy : other, *right = first ? other : dy;
    for (int32_t row = 0; row < p->count * p->rows; row++) {
        const int8_t *from = left + row / p->rows * left_size + row % p->rows * p->left_row;
        const int8_t *with = right + row / p->rows * right_size;
        for (int32_t c = 0, count; c < p->columns; c += count) {
            int32_t sums[SMG_PRODUCTS];
            count = smg_min(SMG_PRODUCTS, p->columns - c);
            smg_products(&product, from, with + c * p->right_column, sums, count);
            smg_round_sums(&r, sums, count, c, row * p->columns + c, mask, dx + row * p->columns + c);
        }
    }
    *peak_bits = (int32_t)r.peak_bits;
}
