/* What lanes.c does most, in the words of AVX2: two products a lane and instruction, which compilers do not find. */
#ifndef SMIDGEN_AVX2_H
#define SMIDGEN_AVX2_H

#if defined(__AVX2__)
#include <immintrin.h>
#include <string.h>

#include "lanes.h"
#include "twos_avx2.h"

static inline __m256i smg_avx2_load(const void *from) { return _mm256_loadu_si256((const __m256i *)from); }
static inline void smg_avx2_store(void *to, __m256i x) { _mm256_storeu_si256((__m256i *)to, x); }

/* Two elements of x in every 32 bits, or one and a zero. */
static inline __m256i smg_avx2_pair(const int16_t *x) {
    int32_t both;
    memcpy(&both, x, sizeof both);
    return _mm256_set1_epi32(both);
}

static inline __m256i smg_avx2_one(const int16_t *x) { return _mm256_set1_epi32((uint16_t)*x); }

/* smg_lanes_multiply of SMG_PIXELS pixels. Interleaved weights leave lanes 0-3 and 8-11 in one vector, the others in the
 * other one, and sums are kept so. */
static inline void smg_avx2_multiply(uint32_t *acc, const int16_t *x, int32_t apart, const int16_t *w, int32_t length) {
    __m256i low[SMG_PIXELS], high[SMG_PIXELS];
    for (int32_t p = 0; p < SMG_PIXELS; p++) {
        const __m256i a = smg_avx2_load(acc + p * SMG_LANES), b = smg_avx2_load(acc + p * SMG_LANES + SMG_LANES / 2);
        low[p] = _mm256_permute2x128_si256(a, b, 0x20);
        high[p] = _mm256_permute2x128_si256(a, b, 0x31);
    }
    for (int32_t i = 0; i < length; i += 2) {
        const int whole = i + 1 < length;
        const __m256i first = smg_avx2_load(w + i * SMG_LANES);
        const __m256i second = whole ? smg_avx2_load(w + (i + 1) * SMG_LANES) : _mm256_setzero_si256();
        const __m256i some = _mm256_unpacklo_epi16(first, second), others = _mm256_unpackhi_epi16(first, second);
        for (int32_t p = 0; p < SMG_PIXELS; p++) {
            const __m256i v = whole ? smg_avx2_pair(x + p * apart + i) : smg_avx2_one(x + p * apart + i);
            low[p] = smg_avx2_add(low[p], some, v);
            high[p] = smg_avx2_add(high[p], others, v);
        }
    }
    for (int32_t p = 0; p < SMG_PIXELS; p++) {
        smg_avx2_store(acc + p * SMG_LANES, _mm256_permute2x128_si256(low[p], high[p], 0x20));
        smg_avx2_store(acc + p * SMG_LANES + SMG_LANES / 2, _mm256_permute2x128_si256(low[p], high[p], 0x31));
    }
}

/* Eight accumulators, scaled and rounded: smg_high_mul of even and of odd lanes, then smg_shift_right_masked. */
static inline __m256i smg_avx2_scale(__m256i x, const smg_requantizer *q, int32_t n, int lefts) {
    const __m256i multiplier = smg_avx2_load(q->multiplier + n), mask = smg_avx2_load(q->mask + n);
    const __m256i nudge = _mm256_set1_epi64x(1 << 30);
    if (lefts) x = _mm256_sllv_epi32(x, smg_avx2_load(q->left + n));
    const __m256i even = _mm256_add_epi64(_mm256_mul_epi32(x, multiplier), nudge);
    const __m256i odd =
        _mm256_add_epi64(_mm256_mul_epi32(_mm256_srli_epi64(x, 32), _mm256_srli_epi64(multiplier, 32)), nudge);
    const __m256i high = _mm256_blend_epi32(_mm256_srli_epi64(even, 31), _mm256_slli_epi64(odd, 1), 0xaa);
    const __m256i limit = _mm256_sub_epi32(_mm256_srli_epi32(mask, 1), _mm256_srai_epi32(high, 31));
    const __m256i up = _mm256_cmpgt_epi32(_mm256_and_si256(high, mask), limit);
    return _mm256_sub_epi32(_mm256_srav_epi32(high, smg_avx2_load(q->right + n)), up);
}

/* Sixteen accumulators as int8: what does not fit 16 bits, or 8, does not fit the limits either. */
static inline void smg_avx2_requantize(const smg_requantizer *q, const uint32_t *acc, int lefts, int8_t *to) {
    const __m256i some = smg_avx2_scale(smg_avx2_load(acc), q, 0, lefts);
    const __m256i others = smg_avx2_scale(smg_avx2_load(acc + SMG_LANES / 2), q, SMG_LANES / 2, lefts);
    const __m256i steps = _mm256_permute4x64_epi64(_mm256_packs_epi32(some, others), 0xd8);
    const __m256i whole = _mm256_adds_epi16(steps, _mm256_set1_epi16((int16_t)q->zero));
    const __m128i small = _mm_packs_epi16(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    const __m128i lo = _mm_set1_epi8((int8_t)q->lo), hi = _mm_set1_epi8((int8_t)q->hi);
    _mm_storeu_si128((__m128i *)to, _mm_min_epi8(_mm_max_epi8(small, lo), hi));
}
#endif

#endif
