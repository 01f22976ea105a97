/* Sixteen channels at a time: the inner loops of convolutions.
 *
 * They stand alone so that a compiler sees nothing but them: inlined into their callers, gcc unrolls the loops over
 * lanes before it thinks of vectors. All sums wrap at 32 bits, as in the contract. */
#include "lanes.h"

#include "arithmetic.h"
#include "avx2.h"

void smg_lanes_widen(const int8_t *restrict x, int32_t count, int32_t zero, int16_t *restrict to) {
    for (int32_t i = 0; i < count; i++) to[i] = (int16_t)(x[i] - zero);
}

void smg_lanes_widen_columns(const int8_t *restrict x, int32_t step, int32_t columns, int32_t zero,
                             int32_t *restrict to) {
    for (int32_t q = 0; q < columns; q++)
        for (int32_t n = 0; n < SMG_LANES; n++) to[q * SMG_LANES + n] = x[q * step + n] - zero;
}

void smg_lanes_pack(const int8_t *restrict w, int32_t k, int32_t channels, int32_t length, int16_t *restrict to) {
    const int8_t *rows[SMG_LANES];
    for (int32_t n = 0; n < SMG_LANES; n++) rows[n] = w + smg_min(n, channels - 1) * k;
    for (int32_t i = 0; i < length; i++)
        for (int32_t n = 0; n < SMG_LANES; n++) to[i * SMG_LANES + n] = rows[n][i];
}

void smg_lanes_start(const smg_requantizer *restrict q, uint32_t *restrict acc, int32_t pixels) {
    for (int32_t p = 0; p < pixels; p++)
        for (int32_t n = 0; n < SMG_LANES; n++) acc[p * SMG_LANES + n] = (uint32_t)q->bias[n];
}

static inline void multiply(uint32_t *restrict acc, const int16_t *restrict x, int32_t apart,
                            const int16_t *restrict w, int32_t length) {
#if defined(__AVX2__)
    smg_avx2_multiply(acc, x, apart, w, length);
#else
    uint32_t *restrict a = acc, *restrict b = acc + SMG_LANES;
    uint32_t *restrict c = acc + 2 * SMG_LANES, *restrict d = acc + 3 * SMG_LANES;
    for (int32_t i = 0; i < length; i++) {
        const int32_t xa = x[i], xb = x[apart + i], xc = x[2 * apart + i], xd = x[3 * apart + i];
        for (int32_t n = 0; n < SMG_LANES; n++) {
            const int32_t v = w[i * SMG_LANES + n];
            a[n] += (uint32_t)(xa * v);
            b[n] += (uint32_t)(xb * v);
            c[n] += (uint32_t)(xc * v);
            d[n] += (uint32_t)(xd * v);
        }
    }
#endif
}

void smg_lanes_multiply(uint32_t *restrict acc, int32_t pixels, const int16_t *restrict x, int32_t apart,
                        const int16_t *restrict w, int32_t length) {
    for (int32_t p = 0; p < pixels; p += SMG_PIXELS) multiply(acc + p * SMG_LANES, x + p * apart, apart, w, length);
}

static inline void add_taps(uint32_t *restrict acc, const int32_t *restrict x, const int32_t *restrict w,
                            int32_t taps) {
    for (int32_t n = 0; n < SMG_LANES; n++) {
        uint32_t sum = acc[n];
        for (int32_t t = 0; t < taps; t++) sum += (uint32_t)(x[t * SMG_LANES + n] * w[t * SMG_LANES + n]);
        acc[n] = sum;
    }
}

void smg_lanes_slide(uint32_t *restrict acc, int32_t pixels, const int32_t *restrict x, int32_t stride,
                     const int32_t *restrict w, int32_t taps) {
    for (int32_t p = 0; p < pixels; p++, acc += SMG_LANES, x += stride * SMG_LANES) {
        if (taps == 3) { /* the common sizes by name: their sums stay in registers */
            add_taps(acc, x, w, 3);
        } else if (taps == 5) {
            add_taps(acc, x, w, 5);
        } else if (taps == 7) {
            add_taps(acc, x, w, 7);
        } else {
            for (int32_t t = 0; t < taps; t++) add_taps(acc, x + t * SMG_LANES, w + t * SMG_LANES, 1);
        }
    }
}

void smg_lanes_scales(smg_requantizer *restrict q, const int32_t *restrict bias, const int32_t *restrict multiplier,
                      const int8_t *restrict shift, int32_t channels) {
    for (int32_t n = 0; n < SMG_LANES; n++) q->bias[n] = bias[smg_min(n, channels - 1)];
    q->lefts = 0;
    for (int32_t n = 0; n < SMG_PAIR; n++) {
        const int32_t c = smg_min(n % SMG_LANES, channels - 1);
        q->multiplier[n] = multiplier[c];
        q->left[n] = smg_max(shift[c], 0);
        q->right[n] = smg_max(-shift[c], 0);
        q->mask[n] = (int32_t)(((uint32_t)1 << q->right[n]) - 1);
        q->lefts |= q->left[n];
    }
}

/* Bytes that are copied as one. */
typedef struct {
    int8_t lane[SMG_LANES / 2];
} half;

static inline void store(const int8_t *from, int32_t channels, int8_t *to) {
    int32_t n = 0;
    if (channels >= SMG_LANES / 2) {
        *(half *)to = *(const half *)from;
        n = SMG_LANES / 2;
    }
    if (channels == SMG_LANES) {
        *(half *)(to + n) = *(const half *)(from + n);
        return;
    }
    for (; n < channels; n++) to[n] = from[n];
}

/* Two pixels at once, or one at a time in vectors of sixteen lanes. */
static inline void requantize(const smg_requantizer *restrict q, const uint32_t *restrict acc, int32_t pixels,
                              int32_t channels, int8_t *restrict y, int32_t step, int lefts) {
#if defined(__AVX2__)
    for (int32_t p = 0; p < pixels; p++, acc += SMG_LANES, y += step) {
        int8_t out[SMG_LANES];
        smg_avx2_requantize(q, acc, lefts, out);
        store(out, channels, y);
    }
#else
    int32_t scaled[SMG_PAIR];
    int8_t out[SMG_PAIR];
    for (int32_t p = 0; p < pixels; p += 2, acc += SMG_PAIR, y += 2 * step) {
        for (int32_t n = 0; n < SMG_PAIR; n++) {
            const int32_t total = (int32_t)acc[n];
            scaled[n] = smg_high_mul(lefts ? smg_shift_left(total, q->left[n]) : total, q->multiplier[n]);
        }
        for (int32_t n = 0; n < SMG_PAIR; n++) {
            const int32_t value = smg_shift_right_masked(scaled[n], q->right[n], q->mask[n]);
            out[n] = smg_to_int8(value, q->zero, q->lo, q->hi);
        }
        store(out, channels, y);
        if (p + 1 < pixels) store(out + SMG_LANES, channels, y + step);
    }
#endif
}

void smg_lanes_requantize(const smg_requantizer *restrict q, const uint32_t *restrict acc, int32_t pixels,
                          int32_t channels, int8_t *restrict y, int32_t step) {
    if (q->lefts)
        requantize(q, acc, pixels, channels, y, step, 1);
    else
        requantize(q, acc, pixels, channels, y, step, 0);
}
