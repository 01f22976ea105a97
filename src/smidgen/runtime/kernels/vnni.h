/* What lanes.c does, in the words of AVX-512 with VNNI: sixteen lanes, four products a lane and instruction.
 *
 * That instruction multiplies unsigned by signed bytes. Inputs are taken 128 higher, which makes them unsigned, and
 * what that adds to a sum, (128 + zero point) times its weights, is taken off its bias: exact, as sums wrap.
 * -DSMG_NARROW leaves it to the kernels of AVX2 and AVX-VNNI, whose vectors are half as wide. */
#ifndef SMIDGEN_VNNI_H
#define SMIDGEN_VNNI_H

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && \
    defined(__AVX512VNNI__) && defined(__BMI2__) && !defined(SMG_NARROW)
#define SMG_VNNI 1
#include <immintrin.h>
#include <string.h>

#include "smidgen.h"

#include "arithmetic.h"
#include "working.h"

/* How sixteen sums become int8: as smg_requantizer has it. Where every channel is shifted to the right by at most
 * SMG_VNNI_SHIFT, as is usual, all rounding and the zero point are one number that is added to a product. */
typedef struct {
    __m512i even, odd; /* multipliers of even lanes, and of odd ones */
    __m512i even_start, odd_start, less;
    __m512i left, right, mask;
} smg_vnni_scale;

/* What scales of a layer share. */
typedef struct {
    __m512i zero, from, to; /* limits less the zero point */
    __m512i lo, hi;         /* limits in 8 bits */
    int how;
} smg_vnni_limits;

enum { SMG_VNNI_SHIFT = 23 };

/* How sums are scaled: by any shift; by usual ones; where also nothing below the zero point is asked for. */
enum { SMG_VNNI_ANY, SMG_VNNI_USUAL, SMG_VNNI_POSITIVE };

/* Loops of their own, for which compilers have all registers, and parts of them, in which they know some arguments. */
#define SMG_VNNI_LOOP static __attribute__((noinline)) void
#define SMG_VNNI_PART static inline __attribute__((always_inline))

static inline __mmask16 smg_vnni_first(int32_t count) { return (__mmask16)((1u << count) - 1u); }

static inline __mmask64 smg_vnni_bytes(int32_t count) {
    return count < 64 ? ((__mmask64)1 << count) - 1 : ~(__mmask64)0;
}

/* Whether all of `count` channels are shifted to the right, by no more than is usual. */
static inline int smg_vnni_simple(const int8_t *shift, int32_t count) {
    int simple = 1;
    for (int32_t n = 0; n < count; n++) simple &= shift[n] < 0 && shift[n] >= -SMG_VNNI_SHIFT;
    return simple;
}

static inline smg_vnni_limits smg_vnni_limit(const int8_t *shift, int32_t count, int32_t zero, int32_t lo, int32_t hi) {
    const smg_vnni_limits limits = {_mm512_set1_epi32(zero), _mm512_set1_epi32(lo - zero), _mm512_set1_epi32(hi - zero),
                                    _mm512_set1_epi8((int8_t)lo), _mm512_set1_epi8((int8_t)hi),
                                    !smg_vnni_simple(shift, count) ? SMG_VNNI_ANY
                                    : lo >= zero                   ? SMG_VNNI_POSITIVE
                                                                   : SMG_VNNI_USUAL};
    return limits;
}

/* What is added to eight products that are to be divided by 2^(31 + by): the zero point, and halves of both roundings. */
static inline __m512i smg_vnni_rounding(__m512i by, int32_t zero) {
    const __m512i right = _mm512_and_si512(by, _mm512_set1_epi64(255)), half = _mm512_set1_epi64(1 << 30);
    const __m512i whole = _mm512_sllv_epi64(_mm512_set1_epi64(2 * (int64_t)zero + 1), right);
    return _mm512_add_epi64(half, _mm512_slli_epi64(whole, 30));
}

/* Of sixteen multipliers and shifts, whichever channels they belong to. */
static inline smg_vnni_scale smg_vnni_scale_of(__m512i multiplier, __m512i shift, int32_t zero) {
    const __m512i none = _mm512_setzero_si512(), one = _mm512_set1_epi32(1);
    smg_vnni_scale q;
    q.even = multiplier;
    q.odd = _mm512_srli_epi64(multiplier, 32);
    q.left = _mm512_max_epi32(shift, none);
    q.right = _mm512_max_epi32(_mm512_sub_epi32(none, shift), none);
    q.mask = _mm512_sub_epi32(_mm512_sllv_epi32(one, q.right), one);
    q.less = _mm512_max_epi32(_mm512_sub_epi32(q.right, one), none);
    q.even_start = smg_vnni_rounding(q.right, zero);
    q.odd_start = smg_vnni_rounding(_mm512_srli_epi64(q.right, 32), zero);
    return q;
}

/* The upper halves of even and of odd lanes' products, in order. */
static inline __m512i smg_vnni_upper(__m512i even, __m512i odd) {
    return _mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB);
}

/* Sixteen sums, scaled and limited, with the zero point, whatever the shifts: smg_high_mul, smg_shift_right_masked, smg_to_int8. */
SMG_VNNI_PART __m512i smg_vnni_scaled_any(const smg_vnni_scale *q, const smg_vnni_limits *limits, __m512i x) {
    const __m512i nudge = _mm512_set1_epi64(1 << 30), moved = _mm512_sllv_epi32(x, q->left);
    const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(moved, q->even), nudge);
    const __m512i odd = _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(moved, 32), q->odd), nudge);
    const __m512i high = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 31), _mm512_slli_epi64(odd, 1));
    const __m512i limit = _mm512_sub_epi32(_mm512_srli_epi32(q->mask, 1), _mm512_srai_epi32(high, 31));
    const __mmask16 up = _mm512_cmpgt_epi32_mask(_mm512_and_si512(high, q->mask), limit);
    const __m512i down = _mm512_srav_epi32(high, q->right);
    const __m512i steps = _mm512_mask_sub_epi32(down, up, down, _mm512_set1_epi32(-1));
    return _mm512_add_epi32(_mm512_min_epi32(_mm512_max_epi32(steps, limits->from), limits->to), limits->zero);
}

/* Sixteen sums, scaled, with the zero point. Halves are rounded away from zero: below it a product is taken one less
 * in the first rounding's unit. That is left out where nothing below the zero point is asked for. */
SMG_VNNI_PART __m512i smg_vnni_scaled(const smg_vnni_scale *q, const smg_vnni_limits *limits, __m512i x, int how) {
    if (how == SMG_VNNI_ANY) return smg_vnni_scaled_any(q, limits, x);
    const __m512i unit = _mm512_set1_epi64((int64_t)1 << 31), high = _mm512_srli_epi64(x, 32);
    __m512i even = _mm512_mul_epi32(x, q->even), odd = _mm512_mul_epi32(high, q->odd);
    if (how == SMG_VNNI_USUAL) { /* the unit is where the sign of a sum is */
        even = _mm512_sub_epi64(even, _mm512_and_si512(x, unit));
        odd = _mm512_sub_epi64(odd, _mm512_and_si512(high, unit));
    }
    even = _mm512_add_epi64(even, q->even_start);
    odd = _mm512_add_epi64(odd, q->odd_start);
    return _mm512_srav_epi32(smg_vnni_upper(even, odd), q->less);
}

/* Four times sixteen numbers in 8 bits, in every quarter first four of the first. */
SMG_VNNI_PART __m512i smg_vnni_bytes_of(__m512i a, __m512i b, __m512i c, __m512i d) {
    return _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
}

/* What does not fit 16 bits, or 8, does not fit the limits either. */
SMG_VNNI_PART __m512i smg_vnni_within(const smg_vnni_limits *limits, __m512i x) {
    return _mm512_min_epi8(_mm512_max_epi8(x, limits->lo), limits->hi);
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

/* Parts of four elements that a quarter of a vector has. */
enum { SMG_VNNI_PARTS = 4 };

/* Sixteen bytes of each of four rows, as four parts of four: their rows' bytes side by side. */
SMG_VNNI_PART void smg_vnni_interleave(const __m512i *rows, __m512i *parts) {
    const __m512i low = _mm512_unpacklo_epi8(rows[0], rows[1]), high = _mm512_unpackhi_epi8(rows[0], rows[1]);
    const __m512i low2 = _mm512_unpacklo_epi8(rows[2], rows[3]), high2 = _mm512_unpackhi_epi8(rows[2], rows[3]);
    parts[0] = _mm512_unpacklo_epi16(low, low2);
    parts[1] = _mm512_unpackhi_epi16(low, low2);
    parts[2] = _mm512_unpacklo_epi16(high, high2);
    parts[3] = _mm512_unpackhi_epi16(high, high2);
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

/* Of sixty-four channels from `first` on, those that are trained, and which of all trained ones is the first of them. */
typedef struct {
    uint64_t channels;
    int32_t first;
} smg_vnni_trained;

static inline smg_vnni_trained smg_vnni_trained_of(smg_weights w, int32_t first) {
    smg_vnni_trained some = {0, 0};
    while (some.first < w.count && w.channel[some.first] < first) some.first++;
    for (int32_t i = some.first; i < w.count && w.channel[i] < first + 64; i++)
        some.channels |= (uint64_t)1 << (w.channel[i] - first);
    return some;
}

/* Trained weights, which follow each other at `from`, over frozen ones. */
static inline __m512i smg_vnni_retrain(__m512i frozen, uint64_t channels, const int8_t *from) {
#if defined(__AVX512VBMI2__)
    return _mm512_mask_expandloadu_epi8(frozen, channels, from);
#else
    int8_t lanes[64];
    _mm512_storeu_si512(lanes, frozen);
    for (; channels; channels &= channels - 1) lanes[_tzcnt_u64(channels)] = *from++;
    return _mm512_loadu_si512(lanes);
#endif
}

/* to[i / 4 * step][lane][i % 4] = w[lane][i] for i < count, zeros after the last, of `channels` rows of weights that are k
 * apart: sixteen rows of sixteen words of four weights are turned at once. `step` is in bytes. Trained weights of a row
 * of `over` lie over them. */
static inline void smg_vnni_pack(const int8_t *w, int32_t k, int32_t count, int32_t channels, smg_weights over,
                                 int8_t *to, int32_t step) {
    __m512i rows[SMG_LANES];
    for (int32_t i = 0; i < count; i += 64) {
        const __mmask64 some = smg_vnni_bytes(count - i);
        for (int32_t n = 0; n < SMG_LANES; n++)
            rows[n] = n < channels ? _mm512_maskz_loadu_epi8(some, w + n * k + i) : _mm512_setzero_si512();
        if (over.count) {
            const smg_vnni_trained trained = smg_vnni_trained_of(over, i);
            for (int32_t n = 0; n < channels && trained.channels; n++)
                rows[n] = smg_vnni_retrain(rows[n], trained.channels, over.trained + n * over.count + trained.first);
        }
        for (int32_t n = 0; n < SMG_LANES; n += 4) smg_vnni_turn(rows + n, rows + n + 1, rows + n + 2, rows + n + 3);
        for (int32_t n = 0; n < 4; n++) smg_vnni_turn_quarters(rows + n, rows + n + 4, rows + n + 8, rows + n + 12);
        /* Word 4 q + n of all rows is now in rows[4 q + n]. */
        const int32_t words = smg_min(SMG_LANES, (count - i + 3) / 4);
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
