/* The sum of two tensors in the words of AVX2: thirty-two elements at once. */
#ifndef SMIDGEN_ADD_AVX2_H
#define SMIDGEN_ADD_AVX2_H

#include "scale_avx2.h"

#if defined(SMG_AVX2)
enum { SMG_AVX2_AT_ONCE = 32 };

static inline int smg_avx2_is_half(int32_t multiplier, int32_t shift) { return multiplier == 1 << 30 && shift == 0; }

static inline int smg_avx2_is_usual(int32_t shift) { return shift < 0 && shift >= -SMG_AVX2_SHIFT; }

/* Eight elements, raised by `headroom` bits and scaled; those of the larger scale by a half, which is a shift. */
SMG_AVX2_PART __m256i smg_avx2_term(const smg_avx2_scale8 *q, const int8_t *from, __m256i zero, int headroom, int half) {
    const __m256i x = _mm256_sub_epi32(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from)), zero);
    return half ? _mm256_slli_epi32(x, headroom - 1)
                : smg_avx2_scaled(q, _mm256_slli_epi32(x, headroom), 0);
}

SMG_AVX2_PART void smg_avx2_add_all(const smg_add_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y,
                                    int32_t count, int headroom, int a_half, int b_half) {
    const smg_avx2_limits limits = smg_avx2_limit(p->y_zero, p->lo, p->hi);
    const smg_avx2_scale8 left = smg_avx2_scale_all(p->a_multiplier, p->a_shift, 0);
    const smg_avx2_scale8 right = smg_avx2_scale_all(p->b_multiplier, p->b_shift, 0);
    const smg_avx2_scale8 scale = smg_avx2_scale_all(p->y_multiplier, p->y_shift, p->y_zero);
    const __m256i a_zero = _mm256_set1_epi32(p->a_zero), b_zero = _mm256_set1_epi32(p->b_zero);
    for (int32_t i = 0; i < count; i += SMG_AVX2_AT_ONCE) {
        __m256i out[4];
        for (int32_t k = 0; k < 4; k++) {
            const int32_t at = i + k * SMG_AVX2_LANES;
            const __m256i one = smg_avx2_term(&left, a + at, a_zero, headroom, a_half);
            const __m256i other = smg_avx2_term(&right, b + at, b_zero, headroom, b_half);
            out[k] = smg_avx2_scaled(&scale, _mm256_add_epi32(one, other), 0);
        }
        _mm256_storeu_si256((__m256i *)(y + i), smg_avx2_bytes(&limits, out[0], out[1], out[2], out[3]));
    }
}

/* How many elements were added; none where the second input repeats, or scales are unusual. */
static inline int32_t smg_add_avx2(const smg_add_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y,
                                   int32_t count, int headroom) {
    const int a_half = smg_avx2_is_half(p->a_multiplier, p->a_shift);
    const int b_half = smg_avx2_is_half(p->b_multiplier, p->b_shift);
    const int32_t most = count - count % SMG_AVX2_AT_ONCE;
    if (count > p->b_period || !smg_avx2_is_usual(p->y_shift) || !(a_half || smg_avx2_is_usual(p->a_shift)) ||
        !(b_half || smg_avx2_is_usual(p->b_shift)))
        return 0;
    if (a_half && b_half)
        smg_avx2_add_all(p, a, b, y, most, headroom, 1, 1);
    else if (a_half)
        smg_avx2_add_all(p, a, b, y, most, headroom, 1, 0);
    else if (b_half)
        smg_avx2_add_all(p, a, b, y, most, headroom, 0, 1);
    else
        smg_avx2_add_all(p, a, b, y, most, headroom, 0, 0);
    return most;
}
#endif

#endif
