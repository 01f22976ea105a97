/* How sums become int8 in the words of AVX2: eight at once, as smg_requantizer has it.
 *
 * Where every channel is shifted to the right by at most SMG_AVX2_SHIFT, as is usual, all rounding and the zero point
 * are one number that is added to a product. */
#ifndef SMIDGEN_SCALE_AVX2_H
#define SMIDGEN_SCALE_AVX2_H

#include "vnni.h"

#if defined(__AVX2__) && defined(__x86_64__) && !defined(SMG_VNNI)
#define SMG_AVX2 1
#include <immintrin.h>
#include <string.h>

#include "smidgen.h"

#include "arithmetic.h"
#include "working.h"

typedef struct {
    __m256i even, odd; /* multipliers of even lanes, and of odd ones */
    __m256i even_start, odd_start, less;
} smg_avx2_scale8;

/* What scales of a layer share. */
typedef struct {
    __m256i lo, hi; /* limits in 8 bits */
    int positive;   /* nothing below the zero point is asked for */
} smg_avx2_limits;

enum { SMG_AVX2_SHIFT = 23, SMG_AVX2_LANES = 8 };

/* Loops of their own, for which compilers have all registers, and parts of them, in which they know some arguments. */
#define SMG_AVX2_LOOP static __attribute__((noinline)) void
#define SMG_AVX2_PART static inline __attribute__((always_inline))

/* A vector in a register: compilers that see it used twice would load it twice. */
SMG_AVX2_PART __m256i smg_avx2_held(__m256i x) {
    __asm__("" : "+x"(x));
    return x;
}

/* Whether all of `count` channels are shifted to the right, by no more than is usual. */
static inline int smg_avx2_simple(const int8_t *shift, int32_t count) {
    int simple = 1;
    for (int32_t n = 0; n < count; n++) simple &= shift[n] < 0 && shift[n] >= -SMG_AVX2_SHIFT;
    return simple;
}

static inline smg_avx2_limits smg_avx2_limit(int32_t zero, int32_t lo, int32_t hi) {
    const smg_avx2_limits limits = {_mm256_set1_epi8((int8_t)lo), _mm256_set1_epi8((int8_t)hi), lo >= zero};
    return limits;
}

/* What is added to four products that are to be divided by 2^(31 + by): the zero point, and halves of both roundings. */
static inline __m256i smg_avx2_rounding(__m256i by, int32_t zero) {
    const __m256i right = _mm256_and_si256(by, _mm256_set1_epi64x(255)), half = _mm256_set1_epi64x(1 << 30);
    const __m256i whole = _mm256_sllv_epi64(_mm256_set1_epi64x(2 * (int64_t)zero + 1), right);
    return _mm256_add_epi64(half, _mm256_slli_epi64(whole, 30));
}

/* Eight numbers, or `count` and zeros. */
static inline __m256i smg_avx2_some(const int32_t *from, int32_t count) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_epi32((const int *)from, _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane));
}

/* Eight bytes, or `count` and zeros. */
static inline __m128i smg_avx2_eight(const int8_t *from, int32_t count) {
    int64_t eight = 0;
    if (count == SMG_AVX2_LANES) return _mm_loadl_epi64((const __m128i *)from);
    for (int32_t n = count - 1; n >= 0; n--) eight = (int64_t)((uint64_t)eight << 8 | (uint8_t)from[n]);
    return _mm_cvtsi64_si128(eight);
}

/* Of eight multipliers and shifts to the right, whichever channels they belong to. */
static inline smg_avx2_scale8 smg_avx2_scale_from(__m256i multiplier, __m256i right, int32_t zero) {
    smg_avx2_scale8 q;
    q.even = multiplier;
    q.odd = _mm256_srli_epi64(multiplier, 32);
    q.less = _mm256_sub_epi32(right, _mm256_set1_epi32(1));
    q.even_start = smg_avx2_rounding(right, zero);
    q.odd_start = smg_avx2_rounding(_mm256_srli_epi64(right, 32), zero);
    return q;
}

/* Of up to eight channels; one that is not there is shifted by 1. */
static inline smg_avx2_scale8 smg_avx2_scale_of(const int32_t *multiplier, const int8_t *shift, int32_t count,
                                                int32_t zero) {
    const __m256i shifts = _mm256_cvtepi8_epi32(smg_avx2_eight(shift, count));
    const __m256i right = _mm256_sub_epi32(_mm256_setzero_si256(), shifts);
    return smg_avx2_scale_from(smg_avx2_some(multiplier, count), _mm256_max_epi32(right, _mm256_set1_epi32(1)), zero);
}

/* Of one multiplier and shift; a shift that is not usual is not asked for. */
static inline smg_avx2_scale8 smg_avx2_scale_all(int32_t multiplier, int32_t shift, int32_t zero) {
    return smg_avx2_scale_from(_mm256_set1_epi32(multiplier), _mm256_set1_epi32(smg_max(-shift, 1)), zero);
}

/* Eight sums, scaled, with the zero point. Halves are rounded away from zero: below it a product is taken one less in
 * the first rounding's unit. That is left out where nothing below the zero point is asked for. */
SMG_AVX2_PART __m256i smg_avx2_scaled(const smg_avx2_scale8 *q, __m256i x, int positive) {
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

/* Four times eight numbers in 8 bits, in order: what does not fit 16 bits, or 8, does not fit the limits either. */
SMG_AVX2_PART __m256i smg_avx2_bytes(const smg_avx2_limits *limits, __m256i a, __m256i b, __m256i c, __m256i d) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i x = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    const __m256i within = _mm256_min_epi8(_mm256_max_epi8(x, limits->lo), limits->hi);
    return _mm256_permutevar8x32_epi32(within, order);
}

/* Up to eight of these bytes. */
SMG_AVX2_PART void smg_avx2_store8(int8_t *to, __m128i x, int32_t count) {
    int8_t lanes[2 * SMG_AVX2_LANES];
    if (count == SMG_AVX2_LANES) {
        _mm_storel_epi64((__m128i *)to, x);
        return;
    }
    _mm_storeu_si128((__m128i *)lanes, x);
    for (int32_t n = 0; n < count; n++) to[n] = lanes[n];
}

/* Of `pixels` pixels, at most four, that are y_c apart, up to eight channels each. */
SMG_AVX2_PART void smg_avx2_store_four(int8_t *y, __m256i x, int32_t count, int32_t pixels, int32_t y_c) {
    const __m128i low = _mm256_castsi256_si128(x), high = _mm256_extracti128_si256(x, 1);
    if (pixels >= 4 && count == SMG_AVX2_LANES && y_c == SMG_AVX2_LANES) {
        _mm256_storeu_si256((__m256i *)y, x);
        return;
    }
    smg_avx2_store8(y, low, count);
    if (pixels > 1) smg_avx2_store8(y + y_c, _mm_unpackhi_epi64(low, low), count);
    if (pixels > 2) smg_avx2_store8(y + 2 * y_c, high, count);
    if (pixels > 3) smg_avx2_store8(y + 3 * y_c, _mm_unpackhi_epi64(high, high), count);
}
#endif

#endif
