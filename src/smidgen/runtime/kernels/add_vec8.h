/* The sum of two tensors in vectors of eight: thirty-two elements at once. */
#ifndef SMIDGEN_ADD_VEC8_H
#define SMIDGEN_ADD_VEC8_H

#include "vec8.h"

#if defined(SMG_VEC8)
enum { SMG_VEC8_AT_ONCE = 32 };

static inline int smg_vec8_is_half(int32_t multiplier, int32_t shift) { return multiplier == 1 << 30 && shift == 0; }

static inline int smg_vec8_is_usual(int32_t shift) { return shift < 0 && shift >= -SMG_VEC8_SHIFT; }

/* Eight elements, raised by `headroom` bits and scaled; those of the larger scale by a half, which is a shift. */
SMG_VEC8_PART smg_vec8 smg_vec8_term(const smg_vec8_scale *q, const int8_t *from, smg_vec8 zero, int headroom,
                                        int half) {
    const smg_vec8 x = smg_vec8_sub(smg_vec8_widest(smg_bytes_load8(from)), zero);
    return half ? smg_vec8_up(x, headroom - 1) : smg_vec8_scaled_alike(q, smg_vec8_up(x, headroom));
}

SMG_VEC8_PART void smg_vec8_add_all(const smg_add_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y,
                                    int32_t count, int headroom, int a_half, int b_half) {
    const smg_vec8_limits limits = smg_vec8_limit(p->y_zero, p->lo, p->hi);
    const smg_vec8_scale left = smg_vec8_scale_all(p->a_multiplier, p->a_shift, 0);
    const smg_vec8_scale right = smg_vec8_scale_all(p->b_multiplier, p->b_shift, 0);
    const smg_vec8_scale scale = smg_vec8_scale_all(p->y_multiplier, p->y_shift, p->y_zero);
    const smg_vec8 a_zero = smg_vec8_all(p->a_zero), b_zero = smg_vec8_all(p->b_zero);
    for (int32_t i = 0; i < count; i += SMG_VEC8_AT_ONCE) {
        smg_vec8 out[4];
        for (int32_t k = 0; k < 4; k++) {
            const int32_t at = i + k * SMG_VEC8_LANES;
            const smg_vec8 one = smg_vec8_term(&left, a + at, a_zero, headroom, a_half);
            const smg_vec8 other = smg_vec8_term(&right, b + at, b_zero, headroom, b_half);
            out[k] = smg_vec8_scaled_alike(&scale, smg_vec8_add(one, other));
        }
        smg_vec8_store(y + i, smg_vec8_bytes(&limits, out[0], out[1], out[2], out[3]));
    }
}

/* How many elements were added; none where the second input repeats, or scales are unusual. */
static inline int32_t smg_add_vec8(const smg_add_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y,
                                   int32_t count, int headroom) {
    const int a_half = smg_vec8_is_half(p->a_multiplier, p->a_shift);
    const int b_half = smg_vec8_is_half(p->b_multiplier, p->b_shift);
    const int32_t most = count - count % SMG_VEC8_AT_ONCE;
    if (count > p->b_period || !smg_vec8_is_usual(p->y_shift) || !(a_half || smg_vec8_is_usual(p->a_shift)) ||
        !(b_half || smg_vec8_is_usual(p->b_shift)))
        return 0;
    if (a_half && b_half)
        smg_vec8_add_all(p, a, b, y, most, headroom, 1, 1);
    else if (a_half)
        smg_vec8_add_all(p, a, b, y, most, headroom, 1, 0);
    else if (b_half)
        smg_vec8_add_all(p, a, b, y, most, headroom, 0, 1);
    else
        smg_vec8_add_all(p, a, b, y, most, headroom, 0, 0);
    return most;
}
#endif

#endif
