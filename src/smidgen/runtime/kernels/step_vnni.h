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

/* Sixteen fractions of `bits` bits, 4 or 2, that lie packed, the lowest first; and back. */
static inline __m512i smg_vnni_fractions(const uint8_t *from, int32_t bits) {
    if (bits == 4) {
        const __m128i x = _mm_loadl_epi64((const __m128i *)from), low = _mm_set1_epi8(15);
        return _mm512_cvtepu8_epi32(
            _mm_unpacklo_epi8(_mm_and_si128(x, low), _mm_and_si128(_mm_srli_epi16(x, 4), low)));
    }
    int32_t packed;
    memcpy(&packed, from, sizeof packed);
    const __m128i x = _mm_cvtepu8_epi32(_mm_cvtsi32_si128(packed));
    const __m128i all = _mm_or_si128(_mm_or_si128(x, _mm_slli_epi32(x, 6)),
                                     _mm_or_si128(_mm_slli_epi32(x, 12), _mm_slli_epi32(x, 18)));
    return _mm512_cvtepu8_epi32(_mm_and_si128(all, _mm_set1_epi8(3)));
}

static inline void smg_vnni_keep_fractions(__m512i x, int32_t bits, uint8_t *to) {
    const __m128i bytes = _mm512_cvtepi32_epi8(x);
    if (bits == 4) {
        const __m128i pairs = _mm_maddubs_epi16(bytes, _mm_set1_epi16(16 << 8 | 1));
        _mm_storel_epi64((__m128i *)to, _mm_packus_epi16(pairs, pairs));
        return;
    }
    const __m128i fours = _mm_madd_epi16(_mm_maddubs_epi16(bytes, _mm_set1_epi16(4 << 8 | 1)), _mm_set1_epi32(16 << 16 | 1));
    const int32_t packed = _mm_cvtsi128_si32(_mm_cvtepi32_epi8(fours));
    memcpy(to, &packed, sizeof packed);
}

/* Move sixteen weights by their steps; `fraction` is NULL where they are their int8 alone. */
static inline void smg_vnni_move(int8_t *w, uint8_t *fraction, int32_t bits, __m512i steps) {
    const __m512i old = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)w));
    if (!fraction) {
        const __m512i moved = smg_vnni_clamp(_mm512_sub_epi32(old, steps), -127, 127);
        _mm_storeu_si128((__m128i *)w, _mm512_cvtepi32_epi8(moved));
        return;
    }
    const __m512i half = _mm512_set1_epi32((1 << bits) >> 1), below = smg_vnni_fractions(fraction, bits);
    const __m512i whole = _mm512_sub_epi32(_mm512_add_epi32(_mm512_slli_epi32(old, (unsigned)bits), below), half);
    const int32_t most = 127 * (1 << bits);
    const __m512i moved = _mm512_add_epi32(smg_vnni_clamp(_mm512_sub_epi32(whole, steps), -most, most), half);
    _mm_storeu_si128((__m128i *)w, _mm512_cvtepi32_epi8(_mm512_srai_epi32(moved, (unsigned)bits)));
    smg_vnni_keep_fractions(_mm512_and_si512(moved, _mm512_set1_epi32((1 << bits) - 1)), bits, fraction);
}
#endif

#endif
