/* Random bits, and the product that all gradients are scaled by, in the words of AVX-512: sixteen at once. */
#ifndef SMIDGEN_RANDOM_VNNI_H
#define SMIDGEN_RANDOM_VNNI_H

#include "vnni.h"

#if defined(SMG_VNNI)
/* Multipliers of sixteen lanes: of even ones, and of odd ones. */
typedef struct {
    __m512i even, odd;
} smg_vnni_factor;

static inline smg_vnni_factor smg_vnni_factor_of(__m512i multiplier) {
    const smg_vnni_factor factor = {multiplier, _mm512_srli_epi64(multiplier, 32)};
    return factor;
}

/* smg_high_mul of sixteen lanes. */
SMG_VNNI_PART __m512i smg_vnni_high_mul(__m512i x, smg_vnni_factor factor) {
    const __m512i nudge = _mm512_set1_epi64(1 << 30);
    const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(x, factor.even), nudge);
    const __m512i odd = _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(x, 32), factor.odd), nudge);
    return _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 31), _mm512_slli_epi64(odd, 1));
}

/* smg_mix of sixteen words. */
SMG_VNNI_PART __m512i smg_vnni_mix(__m512i x) {
    x = _mm512_mullo_epi32(_mm512_xor_si512(x, _mm512_srli_epi32(x, 16)), _mm512_set1_epi32(0x7FEB352D));
    x = _mm512_mullo_epi32(_mm512_xor_si512(x, _mm512_srli_epi32(x, 15)), _mm512_set1_epi32((int32_t)0x846CA68Bu));
    return _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
}

/* smg_word of sixteen numbers. */
SMG_VNNI_PART __m512i smg_vnni_words(__m512i key, __m512i index) {
    const __m512i spread = _mm512_mullo_epi32(index, _mm512_set1_epi32((int32_t)0x9E3779B9u));
    return smg_vnni_mix(_mm512_add_epi32(spread, key));
}

static inline __m512i smg_vnni_counted(void) {
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
#endif

#endif
