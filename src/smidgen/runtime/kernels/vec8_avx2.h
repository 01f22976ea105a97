/* The words of vec8.h in AVX2. */
#ifndef SMIDGEN_VEC8_AVX2_H
#define SMIDGEN_VEC8_AVX2_H

#if defined(__AVX2__) && defined(SMG_VEC8)
#include <immintrin.h>
#include <string.h>

#include "twos_avx2.h"

typedef __m256i smg_vec8;
typedef __m128i smg_bytes; /* sixteen, or eight in its lower half */

/* Vectors of sums that a convolution holds in registers. */
enum { SMG_VEC8_WIDE = 8 };

static inline smg_bytes smg_bytes_load8(const void *from) { return _mm_loadl_epi64((const __m128i *)from); }
static inline smg_bytes smg_bytes_load16(const void *from) { return _mm_loadu_si128((const __m128i *)from); }
static inline void smg_bytes_store8(void *to, smg_bytes x) { _mm_storel_epi64((__m128i *)to, x); }
static inline void smg_bytes_store16(void *to, smg_bytes x) { _mm_storeu_si128((__m128i *)to, x); }
static inline smg_bytes smg_bytes_of(int64_t eight) { return _mm_cvtsi64_si128(eight); }
static inline smg_bytes smg_bytes_all(int8_t x) { return _mm_set1_epi8(x); }
static inline smg_bytes smg_bytes_low8(smg_bytes a, smg_bytes b) { return _mm_unpacklo_epi8(a, b); }
static inline smg_bytes smg_bytes_high8(smg_bytes a, smg_bytes b) { return _mm_unpackhi_epi8(a, b); }
static inline smg_bytes smg_bytes_low16(smg_bytes a, smg_bytes b) { return _mm_unpacklo_epi16(a, b); }
static inline smg_bytes smg_bytes_high16(smg_bytes a, smg_bytes b) { return _mm_unpackhi_epi16(a, b); }
static inline smg_bytes smg_bytes_low32(smg_bytes a, smg_bytes b) { return _mm_unpacklo_epi32(a, b); }
static inline smg_bytes smg_bytes_high32(smg_bytes a, smg_bytes b) { return _mm_unpackhi_epi32(a, b); }
static inline smg_bytes smg_bytes_low64(smg_bytes a, smg_bytes b) { return _mm_unpacklo_epi64(a, b); }
static inline smg_bytes smg_bytes_high64(smg_bytes a, smg_bytes b) { return _mm_unpackhi_epi64(a, b); }

/* A bit for each of sixteen bytes that lies strictly between the limits. */
static inline uint32_t smg_bytes_between(smg_bytes x, smg_bytes lo, smg_bytes hi) {
    return (uint32_t)_mm_movemask_epi8(_mm_and_si128(_mm_cmpgt_epi8(x, lo), _mm_cmpgt_epi8(hi, x)));
}

static inline smg_vec8 smg_vec8_load(const void *from) { return _mm256_loadu_si256((const __m256i *)from); }
static inline void smg_vec8_store(void *to, smg_vec8 x) { _mm256_storeu_si256((__m256i *)to, x); }
static inline smg_bytes smg_vec8_lower(smg_vec8 x) { return _mm256_castsi256_si128(x); }
static inline smg_bytes smg_vec8_upper(smg_vec8 x) { return _mm256_extracti128_si256(x, 1); }
static inline smg_vec8 smg_vec8_all(int32_t x) { return _mm256_set1_epi32(x); }
static inline smg_vec8 smg_vec8_words(int16_t x) { return _mm256_set1_epi16(x); }
static inline smg_vec8 smg_vec8_wide(smg_bytes x) { return _mm256_cvtepi8_epi16(x); }
static inline smg_vec8 smg_vec8_widest(smg_bytes x) { return _mm256_cvtepi8_epi32(x); }
static inline smg_vec8 smg_vec8_add(smg_vec8 a, smg_vec8 b) { return _mm256_add_epi32(a, b); }
static inline smg_vec8 smg_vec8_sub(smg_vec8 a, smg_vec8 b) { return _mm256_sub_epi32(a, b); }
static inline smg_vec8 smg_vec8_sub_words(smg_vec8 a, smg_vec8 b) { return _mm256_sub_epi16(a, b); }
static inline smg_vec8 smg_vec8_up(smg_vec8 x, int by) { return _mm256_slli_epi32(x, by); }

/* Two words in every lane. */
static inline smg_vec8 smg_vec8_pairs(const int16_t *from) {
    int32_t two;
    memcpy(&two, from, sizeof two);
    return _mm256_set1_epi32(two);
}

/* Products of twos of words, added to eight sums. */
static inline smg_vec8 smg_vec8_multiply(smg_vec8 sums, smg_vec8 w, smg_vec8 x) { return smg_avx2_add(sums, w, x); }

/* A vector in a register: compilers that see it used twice would load it twice. */
SMG_VEC8_PART smg_vec8 smg_vec8_held(smg_vec8 x) {
    __asm__("" : "+x"(x));
    return x;
}

/* smg_high_mul of eight numbers. */
SMG_VEC8_PART smg_vec8 smg_vec8_high_mul(smg_vec8 x, smg_vec8 multiplier) {
    const __m256i half = _mm256_set1_epi64x(1 << 30);
    const __m256i even = _mm256_add_epi64(_mm256_mul_epi32(x, multiplier), half);
    const __m256i odd =
        _mm256_add_epi64(_mm256_mul_epi32(_mm256_srli_epi64(x, 32), _mm256_srli_epi64(multiplier, 32)), half);
    return _mm256_blend_epi32(_mm256_srli_epi64(even, 31), _mm256_slli_epi64(odd, 1), 0xaa);
}

/* How eight sums are scaled. */
typedef struct {
    __m256i even, odd; /* multipliers of even lanes, and of odd ones */
    __m256i even_start, odd_start, less;
} smg_vec8_scale;

/* What is added to four products that are to be divided by 2^(31 + by): the zero point, and halves of both roundings. */
static inline __m256i smg_avx2_rounding(__m256i by, int32_t zero) {
    const __m256i right = _mm256_and_si256(by, _mm256_set1_epi64x(255)), half = _mm256_set1_epi64x(1 << 30);
    const __m256i whole = _mm256_sllv_epi64(_mm256_set1_epi64x(2 * (int64_t)zero + 1), right);
    return _mm256_add_epi64(half, _mm256_slli_epi64(whole, 30));
}

/* Of eight multipliers and shifts to the right, whichever channels they belong to. */
static inline smg_vec8_scale smg_vec8_scale_from(smg_vec8 multiplier, const int32_t *shifts, int32_t zero) {
    const __m256i right = smg_vec8_load(shifts);
    const smg_vec8_scale q = {multiplier, _mm256_srli_epi64(multiplier, 32), smg_avx2_rounding(right, zero),
                               smg_avx2_rounding(_mm256_srli_epi64(right, 32), zero),
                               _mm256_sub_epi32(right, _mm256_set1_epi32(1))};
    return q;
}

/* Eight sums, scaled, with the zero point. Halves are rounded away from zero: below it a product is taken one less in
 * the first rounding's unit. That is left out where nothing below the zero point is asked for. */
SMG_VEC8_PART smg_vec8 smg_vec8_scaled(const smg_vec8_scale *q, smg_vec8 x, int positive) {
    const __m256i unit = _mm256_set1_epi64x((int64_t)1 << 31), high = _mm256_srli_epi64(x, 32);
    __m256i even = _mm256_mul_epi32(x, q->even), odd = _mm256_mul_epi32(high, q->odd);
    if (!positive) { /* the unit is where the sign of a sum is */
        even = _mm256_sub_epi64(even, _mm256_and_si256(x, unit));
        odd = _mm256_sub_epi64(odd, _mm256_and_si256(high, unit));
    }
    even = _mm256_srli_epi64(_mm256_add_epi64(even, q->even_start), 32);
    odd = _mm256_add_epi64(odd, q->odd_start);
    return _mm256_srav_epi32(_mm256_blend_epi32(even, odd, 0xaa), q->less);
}

/* The same where all lanes have one scale, and results need not fit 8 bits. */
SMG_VEC8_PART smg_vec8 smg_vec8_scaled_alike(const smg_vec8_scale *q, smg_vec8 x) {
    return smg_vec8_scaled(q, x, 0);
}

/* Four times eight numbers in 8 bits, in order; what does not fit becomes the nearest that does. */
SMG_VEC8_PART smg_vec8 smg_vec8_narrow(smg_vec8 a, smg_vec8 b, smg_vec8 c, smg_vec8 d) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i x = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    return _mm256_permutevar8x32_epi32(x, order);
}

SMG_VEC8_PART smg_vec8 smg_vec8_within(smg_vec8 x, smg_bytes lo, smg_bytes hi) {
    return _mm256_min_epi8(_mm256_max_epi8(x, _mm256_broadcastsi128_si256(lo)), _mm256_broadcastsi128_si256(hi));
}
#endif

#endif
