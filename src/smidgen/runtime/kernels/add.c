/* The sum of two tensors in int8. The output may be the first input's memory. */
#include "smidgen.h"

#include "add_vec8.h"
#include "add_vnni.h"
#include "blocks.h"

void smg_add_s8(const smg_add_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y, int32_t count) {
    enum { HEADROOM = 20 }; /* bits TFLite gives the sum of two int8 tensors */
    smg_block left, right;
#if defined(SMG_VNNI)
    if (smg_add_vnni(p, a, b, y, count, HEADROOM)) return;
#endif
    int32_t start = 0;
#if defined(SMG_VEC8)
    start = smg_add_vec8(p, a, b, y, count, HEADROOM);
#endif
    for (; start < count; start += SMG_BLOCK) {
        const int32_t length = smg_min(SMG_BLOCK, count - start);
        smg_load(&left, a + start, length, p->a_zero);
        smg_load_repeated(&right, b, start, length, p->b_period, p->b_zero);
        for (int32_t i = 0; i < SMG_BLOCK; i++) left.x[i] *= 1 << HEADROOM;
        for (int32_t i = 0; i < SMG_BLOCK; i++) right.x[i] *= 1 << HEADROOM;
        smg_scale(&left, p->a_multiplier, p->a_shift);
        smg_scale(&right, p->b_multiplier, p->b_shift);
        for (int32_t i = 0; i < SMG_BLOCK; i++) left.x[i] += right.x[i];
        smg_scale(&left, p->y_multiplier, p->y_shift);
        smg_store(y + start, &left, length, p->y_zero, p->lo, p->hi);
    }
}
