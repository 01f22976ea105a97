/* Element by element in int8: multiply, rescale, look up. The output may be the first input's memory. */
#include "smidgen.h"

#include "blocks.h"

void smg_mul_s8(const smg_mul_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y, int32_t count) {
    smg_block left, right;
    for (int32_t start = 0; start < count; start += SMG_BLOCK) {
        const int32_t length = smg_min(SMG_BLOCK, count - start);
        smg_load(&left, a + start, length, p->a_zero);
        smg_load_repeated(&right, b, start, length, p->b_period, p->b_zero);
        for (int32_t i = 0; i < SMG_BLOCK; i++) left.x[i] *= right.x[i];
        smg_scale(&left, p->multiplier, p->shift);
        smg_store(y + start, &left, length, p->y_zero, p->lo, p->hi);
    }
}

void smg_rescale_s8(const smg_rescale_s8_params *p, const int8_t *x, int8_t *y, int32_t count) {
    smg_block values;
    for (int32_t start = 0; start < count; start += SMG_BLOCK) {
        const int32_t length = smg_min(SMG_BLOCK, count - start);
        smg_load(&values, x + start, length, p->x_zero);
        smg_scale(&values, p->multiplier, p->shift);
        smg_store(y + start, &values, length, p->y_zero, p->lo, p->hi);
    }
}

void smg_lookup_s8(const smg_lookup_s8_params *p, const int8_t *x, int8_t *y, int32_t count) {
    const int8_t *of_zero = p->table + 128;
    for (int32_t i = 0; i < count; i++) y[i] = of_zero[x[i]];
}
