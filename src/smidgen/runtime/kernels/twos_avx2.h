/* Products of twos of words, added to eight sums: one instruction with AVX-VNNI, two with AVX2 alone. Both wrap. */
#ifndef SMIDGEN_TWOS_AVX2_H
#define SMIDGEN_TWOS_AVX2_H

#if defined(__AVX2__)
#include <immintrin.h>

static inline __m256i smg_avx2_add(__m256i sum, __m256i w, __m256i x) {
#if defined(__AVXVNNI__)
    return _mm256_dpwssd_avx_epi32(sum, w, x);
#elif defined(__AVX512VNNI__) && defined(__AVX512VL__)
    return _mm256_dpwssd_epi32(sum, w, x);
#else
    return _mm256_add_epi32(sum, _mm256_madd_epi16(w, x));
#endif
}

#endif
#endif
