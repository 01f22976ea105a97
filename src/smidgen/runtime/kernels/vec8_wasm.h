/* The words of vec8.h in WebAssembly's vectors of 128 bits, two to a vector of eight. */
#ifndef SMIDGEN_VEC8_WASM_H
#define SMIDGEN_VEC8_WASM_H

#if defined(__wasm_simd128__)
#include <wasm_simd128.h>

typedef struct {
    v128_t low, high;
} smg_vec8;
typedef v128_t smg_bytes; /* sixteen, or eight in its lower half */

/* Vectors of sums that a convolution holds in registers, of which an engine has sixteen for halves. */
enum { SMG_VEC8_WIDE = 4 };

/* The vector of f(lower halves) and f(upper halves). */
#define SMG_HALVES(f, a, b) ((smg_vec8){f((a).low, (b).low), f((a).high, (b).high)})

static inline smg_bytes smg_bytes_load8(const void *from) { return wasm_v128_load64_zero(from); }
static inline smg_bytes smg_bytes_load16(const void *from) { return wasm_v128_load(from); }
static inline void smg_bytes_store8(void *to, smg_bytes x) { wasm_v128_store64_lane(to, x, 0); }
static inline void smg_bytes_store16(void *to, smg_bytes x) { wasm_v128_store(to, x); }
static inline smg_bytes smg_bytes_of(int64_t eight) { return wasm_i64x2_make(eight, 0); }
static inline smg_bytes smg_bytes_all(int8_t x) { return wasm_i8x16_splat(x); }
static inline smg_bytes smg_bytes_low8(smg_bytes a, smg_bytes b) {
    return wasm_i8x16_shuffle(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
static inline smg_bytes smg_bytes_high8(smg_bytes a, smg_bytes b) {
    return wasm_i8x16_shuffle(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
static inline smg_bytes smg_bytes_low16(smg_bytes a, smg_bytes b) {
    return wasm_i16x8_shuffle(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
static inline smg_bytes smg_bytes_high16(smg_bytes a, smg_bytes b) {
    return wasm_i16x8_shuffle(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
static inline smg_bytes smg_bytes_low32(smg_bytes a, smg_bytes b) { return wasm_i32x4_shuffle(a, b, 0, 4, 1, 5); }
static inline smg_bytes smg_bytes_high32(smg_bytes a, smg_bytes b) { return wasm_i32x4_shuffle(a, b, 2, 6, 3, 7); }
static inline smg_bytes smg_bytes_low64(smg_bytes a, smg_bytes b) { return wasm_i64x2_shuffle(a, b, 0, 2); }
static inline smg_bytes smg_bytes_high64(smg_bytes a, smg_bytes b) { return wasm_i64x2_shuffle(a, b, 1, 3); }

/* A bit for each of sixteen bytes that lies strictly between the limits. */
static inline uint32_t smg_bytes_between(smg_bytes x, smg_bytes lo, smg_bytes hi) {
    return wasm_i8x16_bitmask(wasm_v128_and(wasm_i8x16_gt(x, lo), wasm_i8x16_lt(x, hi)));
}

static inline smg_vec8 smg_vec8_load(const void *from) {
    return (smg_vec8){wasm_v128_load(from), wasm_v128_load((const char *)from + 16)};
}
static inline void smg_vec8_store(void *to, smg_vec8 x) {
    wasm_v128_store(to, x.low);
    wasm_v128_store((char *)to + 16, x.high);
}
static inline smg_bytes smg_vec8_lower(smg_vec8 x) { return x.low; }
static inline smg_bytes smg_vec8_upper(smg_vec8 x) { return x.high; }
static inline smg_vec8 smg_vec8_all(int32_t x) { return (smg_vec8){wasm_i32x4_splat(x), wasm_i32x4_splat(x)}; }
static inline smg_vec8 smg_vec8_words(int16_t x) { return (smg_vec8){wasm_i16x8_splat(x), wasm_i16x8_splat(x)}; }
static inline smg_vec8 smg_vec8_wide(smg_bytes x) {
    return (smg_vec8){wasm_i16x8_extend_low_i8x16(x), wasm_i16x8_extend_high_i8x16(x)};
}
static inline smg_vec8 smg_vec8_widest(smg_bytes x) {
    const v128_t words = wasm_i16x8_extend_low_i8x16(x);
    return (smg_vec8){wasm_i32x4_extend_low_i16x8(words), wasm_i32x4_extend_high_i16x8(words)};
}
static inline smg_vec8 smg_vec8_add(smg_vec8 a, smg_vec8 b) { return SMG_HALVES(wasm_i32x4_add, a, b); }
static inline smg_vec8 smg_vec8_sub(smg_vec8 a, smg_vec8 b) { return SMG_HALVES(wasm_i32x4_sub, a, b); }
static inline smg_vec8 smg_vec8_sub_words(smg_vec8 a, smg_vec8 b) { return SMG_HALVES(wasm_i16x8_sub, a, b); }
static inline smg_vec8 smg_vec8_up(smg_vec8 x, int by) {
    return (smg_vec8){wasm_i32x4_shl(x.low, (uint32_t)by), wasm_i32x4_shl(x.high, (uint32_t)by)};
}

/* Two words in every lane. */
static inline smg_vec8 smg_vec8_pairs(const int16_t *from) {
    const v128_t two = wasm_v128_load32_splat(from);
    return (smg_vec8){two, two};
}

/* Products of twos of words, added to eight sums. */
static inline smg_vec8 smg_vec8_multiply(smg_vec8 sums, smg_vec8 w, smg_vec8 x) {
    return smg_vec8_add(sums, SMG_HALVES(wasm_i32x4_dot_i16x8, w, x));
}

static inline smg_vec8 smg_vec8_held(smg_vec8 x) { return x; }

/* smg_high_mul of four numbers. */
SMG_VEC8_PART v128_t smg_wasm_high_mul(v128_t x, v128_t multiplier) {
    const v128_t half = wasm_i64x2_splat(1 << 30);
    const v128_t low = wasm_u64x2_shr(wasm_i64x2_add(wasm_i64x2_extmul_low_i32x4(x, multiplier), half), 31);
    const v128_t high = wasm_u64x2_shr(wasm_i64x2_add(wasm_i64x2_extmul_high_i32x4(x, multiplier), half), 31);
    return wasm_i32x4_shuffle(low, high, 0, 2, 4, 6);
}

/* smg_high_mul of eight numbers. */
SMG_VEC8_PART smg_vec8 smg_vec8_high_mul(smg_vec8 x, smg_vec8 multiplier) {
    return SMG_HALVES(smg_wasm_high_mul, x, multiplier);
}

/* How four sums are scaled. No instruction shifts lanes by different numbers: what is above a result's 8 bits is cut
 * off, so that a product by `power` brings all lanes to one shift. */
typedef struct {
    v128_t multiplier, start[2];
    v128_t least, most, power;
} smg_wasm_scale;

typedef struct {
    smg_wasm_scale low, high;
    uint32_t less; /* of the first lane */
} smg_vec8_scale;

enum { SMG_WASM_DEEP = SMG_VEC8_SHIFT - 1 };

/* What is added to a product that is to be divided by 2^(31 + right): the zero point, and halves of both roundings. */
static inline int64_t smg_wasm_rounding(int32_t right, int32_t zero) {
    return ((int64_t)1 << 30) + (2 * (int64_t)zero + 1) * ((int64_t)1 << (right + 30));
}

static inline smg_wasm_scale smg_wasm_scale_of(v128_t multiplier, const int32_t *right, int32_t zero) {
    int64_t start[4];
    int32_t least[4], most[4], power[4];
    for (int32_t n = 0; n < 4; n++) {
        const int32_t less = right[n] - 1;
        start[n] = smg_wasm_rounding(right[n], zero);
        least[n] = -128 * (1 << less);
        most[n] = 128 * (1 << less) - 1;
        power[n] = 1 << (SMG_WASM_DEEP - less);
    }
    return (smg_wasm_scale){multiplier, {wasm_v128_load(start), wasm_v128_load(start + 2)},
                            wasm_v128_load(least), wasm_v128_load(most), wasm_v128_load(power)};
}

/* Of eight multipliers and shifts to the right, whichever channels they belong to. */
static inline smg_vec8_scale smg_vec8_scale_from(smg_vec8 multiplier, const int32_t *right, int32_t zero) {
    return (smg_vec8_scale){smg_wasm_scale_of(multiplier.low, right, zero),
                             smg_wasm_scale_of(multiplier.high, right + 4, zero), (uint32_t)right[0] - 1};
}

/* The upper halves of four products, to which all rounding was added. Halves are rounded away from zero: below it a
 * product is taken one less in the first rounding's unit, which is where the sign of a sum is. That is left out where
 * nothing below the zero point is asked for. */
SMG_VEC8_PART v128_t smg_wasm_upper(const smg_wasm_scale *q, v128_t x, int positive) {
    v128_t low = wasm_i64x2_add(wasm_i64x2_extmul_low_i32x4(x, q->multiplier), q->start[0]);
    v128_t high = wasm_i64x2_add(wasm_i64x2_extmul_high_i32x4(x, q->multiplier), q->start[1]);
    if (!positive) {
        const v128_t unit = wasm_v128_and(x, wasm_i32x4_splat(INT32_MIN));
        low = wasm_i64x2_sub(low, wasm_u64x2_extend_low_u32x4(unit));
        high = wasm_i64x2_sub(high, wasm_u64x2_extend_high_u32x4(unit));
    }
    return wasm_i32x4_shuffle(low, high, 1, 3, 5, 7);
}

SMG_VEC8_PART v128_t smg_wasm_scaled(const smg_wasm_scale *q, v128_t x, int positive) {
    const v128_t upper = smg_wasm_upper(q, x, positive);
    const v128_t within = wasm_i32x4_min(wasm_i32x4_max(upper, q->least), q->most);
    return wasm_i32x4_shr(wasm_i32x4_mul(within, q->power), SMG_WASM_DEEP);
}

/* Eight sums, scaled, with the zero point, as far as they fit 8 bits. */
SMG_VEC8_PART smg_vec8 smg_vec8_scaled(const smg_vec8_scale *q, smg_vec8 x, int positive) {
    return (smg_vec8){smg_wasm_scaled(&q->low, x.low, positive), smg_wasm_scaled(&q->high, x.high, positive)};
}

/* The same where all lanes have one scale, and results need not fit 8 bits. */
SMG_VEC8_PART smg_vec8 smg_vec8_scaled_alike(const smg_vec8_scale *q, smg_vec8 x) {
    return (smg_vec8){wasm_i32x4_shr(smg_wasm_upper(&q->low, x.low, 0), q->less),
                       wasm_i32x4_shr(smg_wasm_upper(&q->high, x.high, 0), q->less)};
}

/* Four times eight numbers in 8 bits, in order; what does not fit becomes the nearest that does. */
SMG_VEC8_PART smg_vec8 smg_vec8_narrow(smg_vec8 a, smg_vec8 b, smg_vec8 c, smg_vec8 d) {
    return (smg_vec8){wasm_i8x16_narrow_i16x8(wasm_i16x8_narrow_i32x4(a.low, a.high),
                                              wasm_i16x8_narrow_i32x4(b.low, b.high)),
                       wasm_i8x16_narrow_i16x8(wasm_i16x8_narrow_i32x4(c.low, c.high),
                                               wasm_i16x8_narrow_i32x4(d.low, d.high))};
}

SMG_VEC8_PART smg_vec8 smg_vec8_within(smg_vec8 x, smg_bytes lo, smg_bytes hi) {
    return (smg_vec8){wasm_i8x16_min(wasm_i8x16_max(x.low, lo), hi), wasm_i8x16_min(wasm_i8x16_max(x.high, lo), hi)};
}
#endif

#endif
