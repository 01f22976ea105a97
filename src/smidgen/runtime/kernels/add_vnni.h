/* The sum of two tensors in the words of AVX-512: sixty-four elements at once. */
#ifndef SMIDGEN_ADD_VNNI_H
#define SMIDGEN_ADD_VNNI_H

#include "smidgen.h"

#include "vnni.h"

#if defined(SMG_VNNI)
/* How one input is scaled; that of the larger scale by a half, which is a shift. */
typedef struct {
    __m512i zero;
    smg_vnni_scale scale;
} smg_vnni_term;

static inline int smg_vnni_is_half(int32_t multiplier, int32_t shift) { return multiplier == 1 << 30 && shift == 0; }

static inline int smg_vnni_is_usual(int32_t shift) { return shift < 0 && shift >= -SMG_VNNI_SHIFT; }

static inline smg_vnni_term smg_vnni_term_of(int32_t zero, int32_t multiplier, int32_t shift) {
    const smg_vnni_term term = {_mm512_set1_epi32(zero),
                                smg_vnni_scale_of(_mm512_set1_epi32(multiplier), _mm512_set1_epi32(shift), 0)};
    return term;
}

/* Sixteen elements, raised by `headroom` bits and scaled. */
SMG_VNNI_PART __m512i smg_vnni_term_at(const smg_vnni_term *t, const smg_vnni_limits *limits, const int8_t *from,
                                       __mmask16 some, unsigned headroom, int half) {
    const __m512i x = _mm512_sub_epi32(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(some, from)), t->zero);
    return half ? _mm512_slli_epi32(x, headroom - 1)
                : smg_vnni_scaled(&t->scale, limits, _mm512_slli_epi32(x, headroom), SMG_VNNI_USUAL);
}

SMG_VNNI_PART void smg_vnni_add_all(const smg_add_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y,
                                    int32_t count, unsigned headroom, int a_half, int b_half) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const int8_t shift = (int8_t)p->y_shift;
    const smg_vnni_limits limits = smg_vnni_limit(&shift, 1, p->y_zero, p->lo, p->hi);
    const smg_vnni_term left = smg_vnni_term_of(p->a_zero, p->a_multiplier, p->a_shift);
    const smg_vnni_term right = smg_vnni_term_of(p->b_zero, p->b_multiplier, p->b_shift);
    const smg_vnni_scale scale =
        smg_vnni_scale_of(_mm512_set1_epi32(p->y_multiplier), _mm512_set1_epi32(p->y_shift), p->y_zero);
    for (int32_t i = 0; i < count; i += 64) {
        const __mmask64 some = smg_vnni_bytes(count - i);
        __m512i out[4];
        for (int32_t k = 0; k < 4; k++) {
            const __mmask16 part = (__mmask16)(some >> 16 * k);
            const int32_t at = i + 16 * k;
            const __m512i sum =
                _mm512_add_epi32(smg_vnni_term_at(&left, &limits, a + at, part, headroom, a_half),
                                 smg_vnni_term_at(&right, &limits, b + at, part, headroom, b_half));
            out[k] = smg_vnni_scaled(&scale, &limits, sum, SMG_VNNI_USUAL);
        }
        const __m512i all = smg_vnni_within(&limits, smg_vnni_bytes_of(out[0], out[1], out[2], out[3]));
        const __m512i ordered = _mm512_permutexvar_epi32(order, all);
        if (count - i >= 64)
            _mm512_storeu_si512(y + i, ordered);
        else
            _mm512_mask_storeu_epi8(y + i, some, ordered);
    }
}

/* The whole kernel; 0 where the second input repeats, or scales are unusual. */
static inline int smg_add_vnni(const smg_add_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y, int32_t count,
                               unsigned headroom) {
    const int a_half = smg_vnni_is_half(p->a_multiplier, p->a_shift);
    const int b_half = smg_vnni_is_half(p->b_multiplier, p->b_shift);
    if (count > p->b_period || !smg_vnni_is_usual(p->y_shift) || !(a_half || smg_vnni_is_usual(p->a_shift)) ||
        !(b_half || smg_vnni_is_usual(p->b_shift)))
        return 0;
    if (a_half && b_half)
        smg_vnni_add_all(p, a, b, y, count, headroom, 1, 1);
    else if (a_half)
        smg_vnni_add_all(p, a, b, y, count, headroom, 1, 0);
    else if (b_half)
        smg_vnni_add_all(p, a, b, y, count, headroom, 0, 1);
    else
        smg_vnni_add_all(p, a, b, y, count, headroom, 0, 0);
    return 1;
}
#endif

#endif
