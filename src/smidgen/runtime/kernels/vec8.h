/* Eight numbers of 32 bits, or sixteen of 16, as a vector of AVX2 or as two of WebAssembly: what their kernels share.
 *
 * Neither has an exact product of bytes. Numbers are widened to 16 bits, of which one instruction multiplies eight or
 * sixteen and adds them by twos. Where every channel is shifted to the right by at most SMG_VEC8_SHIFT, as is usual,
 * all rounding and the zero point are one number that is added to a product. */
#ifndef SMIDGEN_VEC8_H
#define SMIDGEN_VEC8_H

#include "vnni.h"

#if (defined(__AVX2__) && defined(__x86_64__) && !defined(SMG_VNNI)) || defined(__wasm_simd128__)
#define SMG_VEC8 1

#include "smidgen.h"

#include "arithmetic.h"
#include "working.h"

enum { SMG_VEC8_SHIFT = 23, SMG_VEC8_LANES = 8 };

/* Loops of their own, for which compilers have all registers, and parts of them, in which they know some arguments. */
#define SMG_VEC8_LOOP static __attribute__((noinline)) void
#define SMG_VEC8_PART static inline __attribute__((always_inline))

#include "vec8_avx2.h"
#include "vec8_wasm.h"

/* What scales of a layer share. */
typedef struct {
    smg_bytes lo, hi; /* limits in 8 bits */
    int positive;     /* nothing below the zero point is asked for */
} smg_vec8_limits;

static inline smg_vec8_limits smg_vec8_limit(int32_t zero, int32_t lo, int32_t hi) {
    const smg_vec8_limits limits = {smg_bytes_all((int8_t)lo), smg_bytes_all((int8_t)hi), lo >= zero};
    return limits;
}

/* Whether all of `count` channels are shifted to the right, by no more than is usual. */
static inline int smg_vec8_simple(const int8_t *shift, int32_t count) {
    int simple = 1;
    for (int32_t n = 0; n < count; n++) simple &= shift[n] < 0 && shift[n] >= -SMG_VEC8_SHIFT;
    return simple;
}

/* Eight numbers, or `count` and zeros. */
static inline smg_vec8 smg_vec8_some(const int32_t *from, int32_t count) {
    int32_t lanes[SMG_VEC8_LANES];
    for (int32_t n = 0; n < SMG_VEC8_LANES; n++) lanes[n] = n < count ? from[n] : 0;
    return smg_vec8_load(lanes);
}

/* Eight bytes, or `count` and zeros. */
static inline smg_bytes smg_bytes_some(const int8_t *from, int32_t count) {
    int64_t eight = 0;
    if (count == SMG_VEC8_LANES) return smg_bytes_load8(from);
    for (int32_t n = count - 1; n >= 0; n--) eight = (int64_t)((uint64_t)eight << 8 | (uint8_t)from[n]);
    return smg_bytes_of(eight);
}

/* Of up to eight channels; one that is not there is shifted by 1. */
static inline smg_vec8_scale smg_vec8_scale_of(const int32_t *multiplier, const int8_t *shift, int32_t count,
                                               int32_t zero) {
    int32_t right[SMG_VEC8_LANES];
    for (int32_t n = 0; n < SMG_VEC8_LANES; n++) right[n] = n < count ? smg_max(-shift[n], 1) : 1;
    return smg_vec8_scale_from(smg_vec8_some(multiplier, count), right, zero);
}

/* Of one multiplier and shift; a shift that is not usual is not asked for. */
static inline smg_vec8_scale smg_vec8_scale_all(int32_t multiplier, int32_t shift, int32_t zero) {
    int32_t right[SMG_VEC8_LANES];
    for (int32_t n = 0; n < SMG_VEC8_LANES; n++) right[n] = smg_max(-shift, 1);
    return smg_vec8_scale_from(smg_vec8_all(multiplier), right, zero);
}

/* Four times eight numbers in 8 bits, in order: what does not fit 16 bits, or 8, does not fit the limits either. */
SMG_VEC8_PART smg_vec8 smg_vec8_bytes(const smg_vec8_limits *limits, smg_vec8 a, smg_vec8 b, smg_vec8 c,
                                         smg_vec8 d) {
    return smg_vec8_within(smg_vec8_narrow(a, b, c, d), limits->lo, limits->hi);
}

/* Up to eight of these bytes. */
SMG_VEC8_PART void smg_vec8_store8(int8_t *to, smg_bytes x, int32_t count) {
    int8_t lanes[2 * SMG_VEC8_LANES];
    if (count == SMG_VEC8_LANES) {
        smg_bytes_store8(to, x);
        return;
    }
    smg_bytes_store16(lanes, x);
    for (int32_t n = 0; n < count; n++) to[n] = lanes[n];
}

/* Of `pixels` pixels, at most four, that are y_c apart, up to eight channels each. */
SMG_VEC8_PART void smg_vec8_store_four(int8_t *y, smg_vec8 x, int32_t count, int32_t pixels, int32_t y_c) {
    const smg_bytes low = smg_vec8_lower(x), high = smg_vec8_upper(x);
    if (pixels >= 4 && count == SMG_VEC8_LANES && y_c == SMG_VEC8_LANES) {
        smg_vec8_store(y, x);
        return;
    }
    smg_vec8_store8(y, low, count);
    if (pixels > 1) smg_vec8_store8(y + y_c, smg_bytes_high64(low, low), count);
    if (pixels > 2) smg_vec8_store8(y + 2 * y_c, high, count);
    if (pixels > 3) smg_vec8_store8(y + 3 * y_c, smg_bytes_high64(high, high), count);
}
#endif

#endif
