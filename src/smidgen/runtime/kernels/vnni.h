/* What lanes.c does, in the words of AVX-512 with VNNI: sixteen lanes, four products a lane and instruction.
 *
 * That instruction multiplies unsigned by signed bytes. Inputs are taken 128 higher, which makes them unsigned, and
 * what that adds to a sum, (128 + zero point) times its weights, is taken off its bias: exact, as sums wrap. */
#ifndef SMIDGEN_VNNI_H
#define SMIDGEN_VNNI_H

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512VNNI__)
#define SMG_VNNI 1
#include <immintrin.h>
#include <string.h>

#include "arithmetic.h"
#include "working.h"

/* How sixteen sums become int8: as smg_requantizer has it. Where every channel is shifted to the right, as is usual,
 * all but the last bit of that shift comes first, and the last with the zero point, in 16 bits. */
typedef struct {
    __m512i multiplier, left, right, mask, lo, hi, zero;
    __m512i less, twice; /* right - 1; 2 zero + 1 in 16 bits */
    __m256i lowest, highest;
    __mmask16 channels;
    int32_t count;
    int lefts, rights;
} smg_vnni_scales;

static inline __mmask16 smg_vnni_first(int32_t count) { return (__mmask16)((1u << count) - 1u); }

static inline __mmask64 smg_vnni_bytes(int32_t count) {
    return count < 64 ? ((__mmask64)1 << count) - 1 : ~(__mmask64)0;
}

static inline smg_vnni_scales smg_vnni_scale_of(const int32_t *multiplier, const int8_t *shift, int32_t channels,
                                                int32_t zero, int32_t lo, int32_t hi) {
    const __m512i none = _mm512_setzero_si512(), one = _mm512_set1_epi32(1);
    smg_vnni_scales q;
    q.channels = smg_vnni_first(channels);
    const __m512i by = _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(q.channels, shift));
    q.multiplier = _mm512_maskz_loadu_epi32(q.channels, multiplier);
    q.left = _mm512_max_epi32(by, none);
    q.right = _mm512_max_epi32(_mm512_sub_epi32(none, by), none);
    q.mask = _mm512_sub_epi32(_mm512_sllv_epi32(one, q.right), one);
    q.less = _mm512_max_epi32(_mm512_sub_epi32(q.right, one), none);
    q.twice = _mm512_set1_epi16((int16_t)(2 * zero + 1));
    q.lowest = _mm256_set1_epi8((int8_t)lo);
    q.highest = _mm256_set1_epi8((int8_t)hi);
    q.count = channels;
    q.lefts = _mm512_cmpgt_epi32_mask(by, none) != 0;
    q.rights = _mm512_mask_cmplt_epi32_mask(q.channels, by, none) == q.channels;
    q.zero = _mm512_set1_epi32(zero);
    q.lo = _mm512_set1_epi32(lo - zero);
    q.hi = _mm512_set1_epi32(hi - zero);
    return q;
}

/* All of sixteen bytes, half of them, or some: a masked store takes several times as long. */
static inline void smg_vnni_store(int8_t *to, const smg_vnni_scales *q, __m128i x) {
    if (q->count == SMG_LANES)
        _mm_storeu_si128((__m128i *)to, x);
    else if (q->count == SMG_LANES / 2)
        _mm_storel_epi64((__m128i *)to, x);
    else
        _mm_mask_storeu_epi8(to, q->channels, x);
}

/* smg_high_mul of even and of odd lanes. */
static inline __m512i smg_vnni_high_mul(const smg_vnni_scales *q, __m512i x) {
    const __m512i nudge = _mm512_set1_epi64(1 << 30);
    const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(x, q->multiplier), nudge);
    const __m512i odd = _mm512_add_epi64(
        _mm512_mul_epi32(_mm512_srli_epi64(x, 32), _mm512_srli_epi64(q->multiplier, 32)), nudge);
    return _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 31), _mm512_slli_epi64(odd, 1));
}

/* Sixteen sums as int8 at `to`, whatever their shifts: smg_shift_right_masked, smg_to_int8. */
static inline void smg_vnni_requantize(const smg_vnni_scales *q, __m512i x, int8_t *to) {
    const __m512i high = smg_vnni_high_mul(q, q->lefts ? _mm512_sllv_epi32(x, q->left) : x);
    const __m512i limit = _mm512_sub_epi32(_mm512_srli_epi32(q->mask, 1), _mm512_srai_epi32(high, 31));
    const __mmask16 up = _mm512_cmpgt_epi32_mask(_mm512_and_si512(high, q->mask), limit);
    const __m512i down = _mm512_srav_epi32(high, q->right);
    const __m512i steps = _mm512_mask_sub_epi32(down, up, down, _mm512_set1_epi32(-1));
    const __m512i limited = _mm512_min_epi32(_mm512_max_epi32(steps, q->lo), q->hi);
    smg_vnni_store(to, q, _mm512_cvtepi32_epi8(_mm512_add_epi32(limited, q->zero)));
}

/* All but the last bit of a shift to the right, halves away from zero: one less where x < 0, then the floor. A product
 * of smg_high_mul is at most 2^31 - 2 in size, so nothing is lost. */
static inline __m512i smg_vnni_shift(const smg_vnni_scales *q, __m512i x) {
    const __m512i high = smg_vnni_high_mul(q, x);
    return _mm512_srav_epi32(_mm512_add_epi32(high, _mm512_srai_epi32(high, 31)), q->less);
}

/* Two times sixteen sums of the same channels. What does not fit 16 bits, or 8, does not fit the limits either. */
static inline void smg_vnni_requantize_two(const smg_vnni_scales *q, __m512i a, __m512i b, int8_t *to_a, int8_t *to_b) {
    if (!q->rights) {
        smg_vnni_requantize(q, a, to_a);
        smg_vnni_requantize(q, b, to_b);
        return;
    }
    const __m512i both = _mm512_packs_epi32(smg_vnni_shift(q, a), smg_vnni_shift(q, b));
    const __m512i whole = _mm512_srai_epi16(_mm512_adds_epi16(both, q->twice), 1);
    const __m256i small = _mm256_max_epi8(_mm512_cvtsepi16_epi8(whole), q->lowest);
    const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    const __m256i out = _mm256_permutevar8x32_epi32(_mm256_min_epi8(small, q->highest), order);
    smg_vnni_store(to_a, q, _mm256_castsi256_si128(out));
    smg_vnni_store(to_b, q, _mm256_extracti128_si256(out, 1));
}

/* The 128 by which inputs are raised, in every byte. */
static inline __m512i smg_vnni_raise(void) { return _mm512_set1_epi8(-128); }

/* `count` raised bytes; up to 63 more are written. */
static inline void smg_vnni_copy(const int8_t *from, int32_t count, uint8_t *to) {
    for (int32_t i = 0; i < count; i += 64)
        _mm512_storeu_si512(to + i, _mm512_xor_si512(smg_vnni_raise(),
                                                     _mm512_maskz_loadu_epi8(smg_vnni_bytes(count - i), from + i)));
}

/* Of up to sixteen channels, the raised bytes of four rows side by side in every lane: first words to one quarter, then
 * bytes within it. */
static inline __m512i smg_vnni_quad(const int8_t *const *rows, const int32_t *at, __mmask16 channels) {
    const __m512i words = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i bytes = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    __m512i x = _mm512_castsi128_si512(_mm_maskz_loadu_epi8(channels, rows[0] + at[0]));
    x = _mm512_inserti32x4(x, _mm_maskz_loadu_epi8(channels, rows[1] + at[1]), 1);
    x = _mm512_inserti32x4(x, _mm_maskz_loadu_epi8(channels, rows[2] + at[2]), 2);
    x = _mm512_inserti32x4(x, _mm_maskz_loadu_epi8(channels, rows[3] + at[3]), 3);
    return _mm512_xor_si512(smg_vnni_raise(), _mm512_shuffle_epi8(_mm512_permutexvar_epi32(words, x), bytes));
}

/* Four vectors of sixteen words each, of which every quarter is turned: the first words of all four, and so on. */
static inline void smg_vnni_turn(__m512i *a, __m512i *b, __m512i *c, __m512i *d) {
    const __m512i ab = _mm512_unpacklo_epi32(*a, *b), ba = _mm512_unpackhi_epi32(*a, *b);
    const __m512i cd = _mm512_unpacklo_epi32(*c, *d), dc = _mm512_unpackhi_epi32(*c, *d);
    *a = _mm512_unpacklo_epi64(ab, cd);
    *b = _mm512_unpackhi_epi64(ab, cd);
    *c = _mm512_unpacklo_epi64(ba, dc);
    *d = _mm512_unpackhi_epi64(ba, dc);
}

/* Four vectors of four quarters each, turned likewise. */
static inline void smg_vnni_turn_quarters(__m512i *a, __m512i *b, __m512i *c, __m512i *d) {
    const __m512i ab = _mm512_shuffle_i32x4(*a, *b, 0x44), ba = _mm512_shuffle_i32x4(*a, *b, 0xee);
    const __m512i cd = _mm512_shuffle_i32x4(*c, *d, 0x44), dc = _mm512_shuffle_i32x4(*c, *d, 0xee);
    *a = _mm512_shuffle_i32x4(ab, cd, 0x88);
    *b = _mm512_shuffle_i32x4(ab, cd, 0xdd);
    *c = _mm512_shuffle_i32x4(ba, dc, 0x88);
    *d = _mm512_shuffle_i32x4(ba, dc, 0xdd);
}

/* to[i / 4 * step][lane][i % 4] = w[lane][i] for i < k, zeros after the last, of `channels` rows of k weights: sixteen
 * rows of sixteen words of four weights are turned at once. `step` is in bytes. */
static inline void smg_vnni_pack(const int8_t *w, int32_t k, int32_t channels, int8_t *to, int32_t step) {
    __m512i rows[SMG_LANES];
    for (int32_t i = 0; i < k; i += 64) {
        const __mmask64 some = smg_vnni_bytes(k - i);
        for (int32_t n = 0; n < SMG_LANES; n++)
            rows[n] = n < channels ? _mm512_maskz_loadu_epi8(some, w + n * k + i) : _mm512_setzero_si512();
        for (int32_t n = 0; n < SMG_LANES; n += 4) smg_vnni_turn(rows + n, rows + n + 1, rows + n + 2, rows + n + 3);
        for (int32_t n = 0; n < 4; n++) smg_vnni_turn_quarters(rows + n, rows + n + 4, rows + n + 8, rows + n + 12);
        /* Word 4 q + n of all rows is now in rows[4 q + n]. */
        const int32_t words = smg_min(SMG_LANES, (k - i + 3) / 4);
        for (int32_t n = 0; n < words; n++) _mm512_storeu_si512(to + (i / 4 + n) * step, rows[n]);
    }
}

/* Where sums of sixteen channels start: their bias, less what raised inputs add to it. */
static inline __m512i smg_vnni_start(const int32_t *bias, int32_t channels, const int8_t *packed, int32_t words,
                                     int32_t step, int32_t zero) {
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i total = _mm512_setzero_si512();
    for (int32_t i = 0; i < words; i++)
        total = _mm512_dpbusd_epi32(total, ones, _mm512_loadu_si512(packed + i * step));
    return _mm512_sub_epi32(_mm512_maskz_loadu_epi32(smg_vnni_first(channels), bias),
                            _mm512_mullo_epi32(total, _mm512_set1_epi32(128 + zero)));
}
#endif

#endif
