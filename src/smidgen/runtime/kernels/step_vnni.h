/* Steps of weights in the words of AVX-512: sixteen at once. */
#ifndef SMIDGEN_STEP_VNNI_H
#define SMIDGEN_STEP_VNNI_H

#include "random_vnni.h"
#include "step.h"

#if defined(SMG_VNNI)
/* What a channel's sums are multiplied by and divided by a power of, in every lane. */
typedef struct {
    smg_vnni_factor mantissa;
    __m512i up, most;          /* where the power is negative */
    __m512i deep, shift, mask; /* where it is not */
    __mmask16 raised;
} smg_vnni_power;

/* smg_max(x, 0) and smg_min(…, most) of x, which may be any. */
static inline __m512i smg_vnni_clamp(__m512i x, int32_t lo, int32_t hi) {
    return _mm512_min_epi32(_mm512_max_epi32(x, _mm512_set1_epi32(lo)), _mm512_set1_epi32(hi));
}

/* Of sixteen mantissas and powers t: sums become sum * mantissa * 2^-t, at most `most` in size. */
static inline smg_vnni_power smg_vnni_power_of(__m512i mantissa, __m512i t, int32_t most) {
    const __m512i none = _mm512_setzero_si512(), one = _mm512_set1_epi32(1);
    smg_vnni_power p;
    p.mantissa = smg_vnni_factor_of(mantissa);
    p.raised = _mm512_cmplt_epi32_mask(t, none);
    p.up = _mm512_min_epu32(_mm512_sub_epi32(none, t), _mm512_set1_epi32(30));
    p.most = _mm512_srav_epi32(_mm512_set1_epi32(most), p.up);
    p.deep = smg_vnni_clamp(_mm512_sub_epi32(_mm512_max_epi32(t, none), _mm512_set1_epi32(31)), 0, 31);
    p.shift = smg_vnni_clamp(t, 0, 31);
    p.mask = _mm512_sub_epi32(_mm512_sllv_epi32(one, p.shift), one);
    return p;
}

/* The steps of sixteen sums, rounded at random by `words`. */
SMG_VNNI_PART __m512i smg_vnni_steps(const smg_vnni_power *p, __m512i sums, __m128i lift, __m512i words, int32_t most) {
    const __m512i v = smg_vnni_high_mul(_mm512_sll_epi32(sums, lift), p->mantissa);
    const __m512i moved = _mm512_srav_epi32(v, p->deep);
    const __m512i random =
        _mm512_srlv_epi32(_mm512_srli_epi32(words, 1), _mm512_sub_epi32(_mm512_set1_epi32(31), p->shift));
    const __m512i carried = _mm512_srlv_epi32(_mm512_add_epi32(_mm512_and_si512(moved, p->mask), random), p->shift);
    const __m512i down = smg_vnni_clamp(_mm512_add_epi32(_mm512_srav_epi32(moved, p->shift), carried), -most, most);
    if (!p->raised) return down;
    const __m512i limited =
        _mm512_min_epi32(_mm512_max_epi32(v, _mm512_sub_epi32(_mm512_setzero_si512(), p->most)), p->most);
    return _mm512_mask_sllv_epi32(down, p->raised, limited, p->up);
}

/* Bits `down` to `down` + 31 of sixteen products of unsigned words. */
SMG_VNNI_PART __m512i smg_vnni_product(__m512i a, __m512i b, unsigned down) {
    const __m512i even = _mm512_mul_epu32(a, b);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32));
    return _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, down), _mm512_slli_epi64(odd, 32 - down));
}

/* (2^32 − 1) / d for 2^15 <= d < 2^16: a quotient that is no whole number is too far from one for doubles to reach it. */
static inline __m512i smg_vnni_inverse(__m512i d) {
    const __m512d all = _mm512_set1_pd(4294967295.0);
    const __m256i low = _mm512_cvttpd_epu32(_mm512_div_pd(all, _mm512_cvtepu32_pd(_mm512_castsi512_si256(d))));
    const __m256i high = _mm512_cvttpd_epu32(_mm512_div_pd(all, _mm512_cvtepu32_pd(_mm512_extracti64x4_epi64(d, 1))));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* Sixteen fractions of `bits` bits, 4 or 2, that lie packed, the lowest first; and back. */
static inline __m512i smg_vnni_fractions(uint64_t packed, int32_t bits) {
    if (bits == 4) {
        const __m128i x = _mm_cvtsi64_si128((int64_t)packed), low = _mm_set1_epi8(15);
        return _mm512_cvtepu8_epi32(
            _mm_unpacklo_epi8(_mm_and_si128(x, low), _mm_and_si128(_mm_srli_epi16(x, 4), low)));
    }
    const __m128i x = _mm_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)packed));
    const __m128i all = _mm_or_si128(_mm_or_si128(x, _mm_slli_epi32(x, 6)),
                                     _mm_or_si128(_mm_slli_epi32(x, 12), _mm_slli_epi32(x, 18)));
    return _mm512_cvtepu8_epi32(_mm_and_si128(all, _mm_set1_epi8(3)));
}

static inline uint64_t smg_vnni_packed(__m512i x, int32_t bits) {
    const __m128i bytes = _mm512_cvtepi32_epi8(x), pairs = _mm_maddubs_epi16(bytes, _mm_set1_epi16(16 << 8 | 1));
    const __m128i twos = _mm_maddubs_epi16(bytes, _mm_set1_epi16(4 << 8 | 1));
    const __m128i fours = _mm_cvtepi32_epi8(_mm_madd_epi16(twos, _mm_set1_epi32(16 << 16 | 1)));
    return (uint64_t)_mm_cvtsi128_si64(bits == 4 ? _mm_packus_epi16(pairs, pairs) : fours);
}

/* Up to eight bytes; whole ones, as is usual, at once. */
static inline uint64_t smg_vnni_load_bytes(const uint8_t *from, int32_t count) {
    uint64_t x = 0;
    if (count == 8)
        memcpy(&x, from, 8);
    else
        for (int32_t i = 0; i < count; i++) x |= (uint64_t)from[i] << 8 * i;
    return x;
}

static inline void smg_vnni_store_bytes(uint64_t x, int32_t count, uint8_t *to) {
    if (count == 8)
        memcpy(to, &x, 8);
    else
        for (int32_t i = 0; i < count; i++) to[i] = (uint8_t)(x >> 8 * i);
}

/* The factors of sixteen channels. */
typedef struct {
    __m512i mantissa, shift;
} smg_vnni_factors;

/* smg_derived_factor of up to sixteen channels from c on, an even one. */
static inline smg_vnni_factors smg_vnni_derived(const smg_step *s, int32_t c, int32_t count, __m512i shift) {
    const __mmask16 some = smg_vnni_first(count);
    const __m512i m = _mm512_mask_loadu_epi32(_mm512_set1_epi32(1 << 30), some, s->multiplier + c);
    const __m512i first = _mm512_slli_epi32(smg_vnni_inverse(_mm512_srli_epi32(m, 15)), 14);
    const __m512i left = _mm512_sub_epi32(_mm512_set1_epi32(INT32_MIN), smg_vnni_product(m, first, 31));
    const __m512i inverse = smg_vnni_product(first, left, 30), square = smg_vnni_product(inverse, inverse, 30);
    const __m512i product = smg_vnni_product(square, _mm512_set1_epi32(s->scale), 31), one = _mm512_set1_epi32(1);
    const __mmask16 small = _mm512_cmplt_epu32_mask(product, _mm512_set1_epi32(INT32_MIN));
    const __mmask16 smaller = _mm512_cmplt_epu32_mask(product, _mm512_set1_epi32(1 << 30));
    const __m512i up = _mm512_mask_add_epi32(_mm512_maskz_mov_epi32(small, one), smaller, one, one);
    const __m512i nibbles = smg_vnni_fractions(smg_vnni_load_bytes(s->correction + c / 2, (count + 1) / 2), 4);
    const __m512i missing = _mm512_sub_epi32(nibbles, _mm512_set1_epi32(8));
    const __m512i moved = _mm512_sub_epi32(_mm512_set1_epi32(s->exponent + 2), _mm512_slli_epi32(shift, 1));
    smg_vnni_factors f;
    f.mantissa = _mm512_add_epi32(_mm512_srli_epi32(_mm512_sllv_epi32(product, up), 1), missing);
    f.shift = _mm512_sub_epi32(moved, up);
    const __mmask16 large = _mm512_cmpgt_epi32_mask(f.shift, _mm512_set1_epi32(60));
    f.mantissa = _mm512_mask_mov_epi32(f.mantissa, large, _mm512_set1_epi32(1 << 30));
    f.shift = _mm512_mask_mov_epi32(f.shift, large, _mm512_set1_epi32(61));
    return f;
}

/* smg_factor_of of up to sixteen channels from c on, an even one; times the rate, and as the power to divide by. */
static inline smg_vnni_factors smg_vnni_factors_of(const smg_step *s, int32_t c, int32_t count) {
    const __mmask16 some = smg_vnni_first(count);
    const __m512i shift = _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(some, s->shift + c));
    const smg_vnni_factors listed = {_mm512_maskz_loadu_epi32(some, s->multiplier + c), shift};
    smg_vnni_factors f = s->correction ? smg_vnni_derived(s, c, count, shift) : listed;
    if (s->unit) {
        const __m512i unit = _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(some, s->unit + c));
        f.shift = _mm512_sub_epi32(f.shift, smg_vnni_clamp(_mm512_sub_epi32(_mm512_set1_epi32(-7), unit), 0, 15));
    }
    f.mantissa = smg_vnni_high_mul(f.mantissa, smg_vnni_factor_of(_mm512_set1_epi32(s->rate)));
    f.shift = _mm512_sub_epi32(_mm512_set1_epi32((int32_t)((uint32_t)s->lift - (uint32_t)s->power)), f.shift);
    return f;
}

/* Channels whose weights, up to so many each, are stepped together. */
enum { SMG_VNNI_CHANNELS = 48, SMG_VNNI_INNER = 64 };

/* smg_step_weights of all weights of up to SMG_VNNI_CHANNELS channels, `inner` to each and at most SMG_VNNI_INNER, the
 * first of which is a multiple of that: vectors are filled with weights of several channels. */
void smg_vnni_step_channels(const smg_step *s, const int32_t *sums, int32_t channels, int32_t inner, int32_t first,
                            int8_t *w, uint8_t *fraction, int16_t *buffer);

/* Move up to sixteen weights by their steps; `fraction` is NULL where they are their int8 alone. */
static inline void smg_vnni_move(int8_t *w, uint8_t *fraction, int32_t bits, __m512i steps, int32_t count) {
    const __mmask16 some = smg_vnni_first(count);
    const __m512i old = _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(some, w));
    __m512i moved = smg_vnni_clamp(_mm512_sub_epi32(old, steps), -127, 127);
    if (fraction) {
        const int32_t most = 127 * (1 << bits), bytes = count * bits / 8;
        const __m512i half = _mm512_set1_epi32((1 << bits) >> 1);
        const __m512i below = smg_vnni_fractions(smg_vnni_load_bytes(fraction, bytes), bits);
        const __m512i whole = _mm512_sub_epi32(_mm512_add_epi32(_mm512_slli_epi32(old, (unsigned)bits), below), half);
        const __m512i all = _mm512_add_epi32(smg_vnni_clamp(_mm512_sub_epi32(whole, steps), -most, most), half);
        moved = _mm512_srai_epi32(all, (unsigned)bits);
        smg_vnni_store_bytes(smg_vnni_packed(_mm512_and_si512(all, _mm512_set1_epi32((1 << bits) - 1)), bits), bytes,
                             fraction);
    }
    if (count == SMG_LANES)
        _mm_storeu_si128((__m128i *)w, _mm512_cvtepi32_epi8(moved));
    else
        _mm_mask_storeu_epi8(w, some, _mm512_cvtepi32_epi8(moved));
}
#endif

#endif
