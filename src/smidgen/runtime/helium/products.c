/* Sums of products: along what lies side by side sixteen at a time; where columns lie side by side, four columns at once.
 * Sums wrap at 32 bits, as in the contract, and zero points are taken off at the end. */
#include <arm_mve.h>

#include "products.h"

enum { SIXTEEN = 16, FOUR = 4 };

/* Σ (l - a) (r - b) is Σ lr - a Σ r - b Σ l + ab for each of them. */
static int32_t without_zeros(const smg_product *p, int32_t sum, int32_t left, int32_t right) {
    const uint32_t a = (uint32_t)p->left_zero, b = (uint32_t)p->right_zero;
    return (int32_t)((uint32_t)sum - a * (uint32_t)right - b * (uint32_t)left + a * b * (uint32_t)p->depth);
}

static int32_t along(const smg_product *p, const int8_t *left, const int8_t *right) {
    int32_t sum = 0, lefts = 0, rights = 0;
    for (int32_t i = 0; i < p->depth; i += SIXTEEN) {
        const mve_pred16_t some = vctp8q((uint32_t)(p->depth - i));
        const int8x16_t l = vldrbq_z_s8(left + i, some), r = vldrbq_z_s8(right + i, some);
        sum = vmladavaq_p_s8(sum, l, r, some);
        lefts = vaddvaq_p_s8(lefts, l, some);
        rights = vaddvaq_p_s8(rights, r, some);
    }
    return without_zeros(p, sum, lefts, rights);
}

/* The sums of four columns that lie side by side, or of those that there are. */
static void across(const smg_product *p, const int8_t *left, const int8_t *right, int32_t *sums, mve_pred16_t some) {
    int32x4_t sum = vdupq_n_s32(0);
    int32_t lefts = 0;
    for (int32_t i = 0; i < p->depth; i++, left += p->left_step, right += p->right_step) {
        const int32_t factor = *left - p->left_zero;
        sum = vmlaq_n_s32(sum, vldrbq_z_s32(right, some), factor);
        lefts += factor;
    }
    const uint32_t zeros = (uint32_t)p->right_zero * (uint32_t)lefts;
    vstrwq_p_s32(sums, vsubq_n_s32(sum, (int32_t)zeros), some);
}

static int32_t any(const smg_product *p, const int8_t *left, const int8_t *right) {
    int32_t sum = 0, lefts = 0, rights = 0;
    for (int32_t i = 0; i < p->depth; i++, left += p->left_step, right += p->right_step) {
        sum = (int32_t)((uint32_t)sum + (uint32_t)(*left * *right));
        lefts += *left;
        rights += *right;
    }
    return without_zeros(p, sum, lefts, rights);
}

void smg_products(const smg_product *p, const int8_t *left, const int8_t *right, int32_t *sums, int32_t count) {
    if (p->left_step == 1 && p->right_step == 1)
        for (int32_t n = 0; n < count; n++) sums[n] = along(p, left, right + n * p->right_column);
    else if (p->right_column == 1)
        for (int32_t n = 0; n < count; n += FOUR)
            across(p, left, right + n, sums + n, vctp32q((uint32_t)(count - n)));
    else
        for (int32_t n = 0; n < count; n++) sums[n] = any(p, left, right + n * p->right_column);
}
