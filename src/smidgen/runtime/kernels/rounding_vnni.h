/* The passage from sums to an int8 gradient in the words of AVX-512: sixty-four elements at once. */
#ifndef SMIDGEN_ROUNDING_VNNI_H
#define SMIDGEN_ROUNDING_VNNI_H

#include "random_vnni.h"
#include "rounding.h"

#if defined(SMG_VNNI)
/* One gradient tensor in the making, and the bits that occur in it. */
typedef struct {
    __m128i lift, deep, raise, shift;
    __m512i most, least, centre, key, peak;
} smg_vnni_rounder;

static inline smg_vnni_rounder smg_vnni_rounder_of(const smg_rounding *r) {
    const int32_t most = r->raise ? 1 << 20 : INT32_MAX;
    const smg_vnni_rounder all = {_mm_cvtsi32_si128(r->lift), _mm_cvtsi32_si128(r->deep), _mm_cvtsi32_si128(r->raise),
                                  _mm_cvtsi32_si128(r->shift), _mm512_set1_epi32(most), _mm512_set1_epi32(-most),
                                  _mm512_set1_epi32(r->centre), _mm512_set1_epi32((int32_t)r->key),
                                  _mm512_setzero_si512()};
    return all;
}

static inline void smg_vnni_end_rounding(const smg_vnni_rounder *all, smg_rounding *r) {
    r->peak_bits |= (uint32_t)_mm512_reduce_or_epi32(all->peak);
}

/* Sixteen sums, of which those not kept are 0, scaled and rounded at random by bytes in 32 bits each. */
SMG_VNNI_PART __m512i smg_vnni_round(smg_vnni_rounder *all, __m512i sum, smg_vnni_factor factor, __mmask16 keep,
                                     __m512i octets) {
    const __m512i high = smg_vnni_high_mul(_mm512_sll_epi32(sum, all->lift), factor);
    const __m512i deep = _mm512_maskz_sra_epi32(keep, high, all->deep);
    const __m512i limited = _mm512_min_epi32(_mm512_max_epi32(deep, all->least), all->most);
    const __m512i random = _mm512_srai_epi32(_mm512_sll_epi32(octets, all->shift), 8);
    const __m512i moved = _mm512_add_epi32(_mm512_sll_epi32(limited, all->raise), all->centre);
    const __m512i u = _mm512_sra_epi32(_mm512_add_epi32(moved, random), all->shift);
    all->peak = _mm512_or_si512(all->peak, _mm512_xor_si512(u, _mm512_srai_epi32(u, 31)));
    return u;
}

/* Four times sixteen gradients in 8 bits, in every quarter first four of the first. */
SMG_VNNI_PART __m512i smg_vnni_gradients(__m512i a, __m512i b, __m512i c, __m512i d) {
    return _mm512_max_epi8(smg_vnni_bytes_of(a, b, c, d), _mm512_set1_epi8(-127));
}

/* Sixty-four sums in parts: part k holds of each quarter's sixteen elements four from 4 k on, as the gradients that come
 * of them lie. `words` are their random words and `keep` their bits in the gradients' order. */
SMG_VNNI_PART __m512i smg_vnni_round_parts(smg_vnni_rounder *all, const __m512i *sums, const smg_vnni_factor *factors,
                                           uint64_t keep, __m512i words) {
    const __m512i of = _mm512_broadcast_i32x4(_mm_setr_epi8(0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, 3, -1, -1, -1));
    const __m512i next = _mm512_broadcast_i32x4(_mm_setr_epi8(4, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0));
    __m512i u[4], from = of;
    for (int32_t k = 0; k < 4; k++, from = _mm512_add_epi8(from, next)) {
        const __mmask16 some = (__mmask16)_pext_u64(keep, (uint64_t)0x000F000F000F000F << 4 * k);
        u[k] = smg_vnni_round(all, sums[k], factors[k], some, _mm512_shuffle_epi8(words, from));
    }
    return smg_vnni_gradients(u[0], u[1], u[2], u[3]);
}

/* smg_round_sums where the first element's random byte and bit of the mask are the first of a word and a byte. */
static inline void smg_vnni_round_sums(smg_rounding *r, const int32_t *sums, int32_t count, int32_t c, int32_t index,
                                       const uint8_t *mask, int8_t *to) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    smg_vnni_rounder all = smg_vnni_rounder_of(r);
    for (int32_t i = 0; i < count; i += 64) {
        const __mmask64 some = smg_vnni_bytes(count - i);
        uint64_t bits = ~(uint64_t)0;
        if (mask) memcpy(&bits, mask + (index + i) / 8, (size_t)(smg_min(64, count - i) + 7) / 8);
        bits &= some;
        const __m512i words = smg_vnni_words(all.key, _mm512_add_epi32(_mm512_set1_epi32((index + i) / 4), smg_vnni_counted()));
        __m128i octets[4];
        __m512i u[4];
        _mm512_storeu_si512(octets, words);
        for (int32_t k = 0; k < 4; k++) {
            const __mmask16 part = (__mmask16)(some >> 16 * k);
            const __m512i one = _mm512_set1_epi32(r->multiplier[0]);
            const __m512i multiplier =
                r->factors > 1 ? _mm512_maskz_loadu_epi32(part, r->multiplier + c + i + 16 * k) : one;
            u[k] = smg_vnni_round(&all, _mm512_maskz_loadu_epi32(part, sums + i + 16 * k),
                                  smg_vnni_factor_of(multiplier), (__mmask16)(bits >> 16 * k),
                                  _mm512_cvtepu8_epi32(octets[k]));
        }
        const __m512i out = _mm512_permutexvar_epi32(order, smg_vnni_gradients(u[0], u[1], u[2], u[3]));
        if (count - i >= 64)
            _mm512_storeu_si512(to + i, out);
        else
            _mm512_mask_storeu_epi8(to + i, some, out);
    }
    smg_vnni_end_rounding(&all, r);
}
#endif

#endif
