/* 2-D convolution in the words of AVX2: four pixels at a time against sixteen channels' weights, or eight against eight.
 *
 * Input rows under a run of output pixels are laid out in 16 bits, the zero point taken off, zeros outside the map, so
 * that every row of a window is twos that follow each other: a product of two and a sum are exact in 32 bits. Weights
 * are packed once a call, on the stack, as many as it holds. */
#ifndef SMIDGEN_CONV2D_AVX2_H
#define SMIDGEN_CONV2D_AVX2_H

#include "scale_avx2.h"
#include "twos_avx2.h"
#include "window.h"

#if defined(SMG_AVX2)
/* Vectors of packed weights, elements of rows, of a pixel's step and sets of filters that the stack holds. */
enum { SMG_AVX2_WEIGHTS = 2048, SMG_AVX2_ROWS = 8192, SMG_AVX2_STEP = 1024, SMG_AVX2_FILTERS = 64, SMG_AVX2_WIDE = 8 };

/* How windows lie: `rows` rows of `twos` twos of inputs, `apart` elements from each other, and pixels `step`. */
typedef struct {
    int32_t rows, twos, length; /* inputs of a row */
    int32_t step, apart;
    int joined; /* the map's rows are one */
} smg_avx2_shape;

/* Up to sixteen output channels, and what belongs to them. */
typedef struct {
    int32_t first, count, sets;
    __m256i start[2];
    smg_avx2_scale8 scales[2];
    const __m256i *w; /* [two][set] */
} smg_avx2_filters;

static inline smg_avx2_shape smg_avx2_shape_of(const smg_conv2d_s8_params *p, smg_map x) {
    smg_avx2_shape s = {p->k_h, (p->k_w * p->x_c + 1) / 2, p->k_w * p->x_c, p->stride_w * p->x_c, 0, 0};
    s.apart = SMG_AVX2_ROWS / s.rows;
    s.joined = p->k_h * p->k_w * p->stride_h * p->stride_w == 1 && p->x_h == p->y_h && p->x_w == p->y_w &&
               p->pad_h + p->pad_w == 0 && x.rows >= p->x_h;
    return s;
}

/* Eight rows of eight words, turned: words of all rows in the first, and so on. */
SMG_AVX2_PART void smg_avx2_turn(__m128i *x) {
    __m128i a[8], b[8];
    for (int32_t n = 0; n < 4; n++) {
        a[n] = _mm_unpacklo_epi16(x[2 * n], x[2 * n + 1]);
        a[n + 4] = _mm_unpackhi_epi16(x[2 * n], x[2 * n + 1]);
    }
    for (int32_t n = 0; n < 8; n += 2) { /* words 0-1 of rows 0-3, 2-3; of rows 4-7; and so on */
        b[n] = _mm_unpacklo_epi32(a[n], a[n + 1]);
        b[n + 1] = _mm_unpackhi_epi32(a[n], a[n + 1]);
    }
    for (int32_t n = 0; n < 8; n++) {
        const __m128i rows = b[n / 4 * 4 + n / 2 % 2], others = b[n / 4 * 4 + n / 2 % 2 + 2];
        x[n] = n % 2 ? _mm_unpackhi_epi64(rows, others) : _mm_unpacklo_epi64(rows, others);
    }
}

/* to[i / 2 * sets][channel][i % 2] = w[channel][i] for i < count, zeros after the last, of up to eight rows of weights
 * that are k apart. */
static inline void smg_avx2_pack(const int8_t *w, int32_t k, int32_t count, int32_t channels, __m256i *to, int32_t sets) {
    for (int32_t i = 0; i < count; i += 16) {
        const int32_t some = smg_min(16, count - i);
        __m128i rows[8];
        for (int32_t n = 0; n < 8; n++) {
            int8_t bytes[16] = {0};
            if (n < channels && some == 16)
                rows[n] = _mm_loadu_si128((const __m128i *)(w + n * k + i));
            else {
                if (n < channels)
                    for (int32_t t = 0; t < some; t++) bytes[t] = w[n * k + i + t];
                rows[n] = _mm_loadu_si128((const __m128i *)bytes);
            }
        }
        smg_avx2_turn(rows);
        for (int32_t n = 0; 2 * n < some; n++) to[(i / 2 + n) * sets] = _mm256_cvtepi8_epi16(rows[n]);
    }
}

/* The trained channels' weights over the frozen ones, of eight output channels from `first` on. */
static inline void smg_avx2_overlay(const smg_conv2d_s8_params *p, const smg_avx2_shape *s, smg_weights w,
                                    int32_t first, int32_t count, __m256i *to, int32_t sets) {
    const int32_t taps = p->k_h * p->k_w;
    for (int32_t t = 0; t < taps; t++)
        for (int32_t i = 0; i < w.count; i++) {
            const int32_t at = t / p->k_w * s->twos * 2 + t % p->k_w * p->x_c + w.channel[i];
            const int8_t *from = w.trained + (first * taps + t) * w.count + i;
            int16_t *lanes = (int16_t *)(to + at / 2 * sets) + at % 2;
            for (int32_t n = 0; n < count; n++) lanes[2 * n] = from[n * taps * w.count];
        }
}

static inline void smg_avx2_lay_filters(const smg_conv2d_s8_params *p, const smg_avx2_shape *s, smg_weights w,
                                        const int32_t *b, smg_avx2_filters *f, __m256i *packed) {
    const int32_t k = s->rows * s->length;
    f->w = packed;
    for (int32_t m = 0; m < f->sets; m++) {
        const int32_t n = f->first + m * SMG_AVX2_LANES, count = smg_min(SMG_AVX2_LANES, f->first + f->count - n);
        for (int32_t i = 0; i < s->rows; i++)
            smg_avx2_pack(w.data + n * k + i * s->length, k, s->length, count, packed + i * s->twos * f->sets + m, f->sets);
        smg_avx2_overlay(p, s, w, n, count, packed + m, f->sets);
        f->start[m] = smg_avx2_some(b + n, count);
        f->scales[m] = smg_avx2_scale_of(p->multiplier + n, p->shift + n, count, p->y_zero);
    }
}

/* `count` elements in 16 bits, the zero point taken off; up to 15 more are written. */
static inline void smg_avx2_widen(const int8_t *from, int32_t count, int32_t zero, int16_t *to) {
    const __m256i zeros = _mm256_set1_epi16((int16_t)zero);
    int32_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const __m256i x = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(from + i)));
        _mm256_storeu_si256((__m256i *)(to + i), _mm256_sub_epi16(x, zeros));
    }
    for (; i < count; i++) to[i] = (int16_t)(from[i] - zero);
}

/* `taps` columns of row iy from column ix on. */
static inline void smg_avx2_lay_row(const smg_conv2d_s8_params *p, smg_map x, int32_t iy, int32_t ix, int32_t taps,
                                    int16_t *to) {
    const int32_t c = p->x_c;
    if (iy < 0 || iy >= p->x_h) {
        memset(to, 0, (size_t)(taps * c) * sizeof *to);
        return;
    }
    const smg_taps inside = smg_taps_inside(ix, taps, 1, p->x_w);
    const int8_t *from = smg_row(x, iy, p->x_w * c) + ix * c;
    memset(to, 0, (size_t)(inside.from * c) * sizeof *to);
    smg_avx2_widen(from + inside.from * c, (inside.to - inside.from) * c, p->x_zero, to + inside.from * c);
    memset(to + inside.to * c, 0, (size_t)((taps - inside.to) * c) * sizeof *to);
}

/* All that so many pixels from (oy, ox) on look at. */
static inline void smg_avx2_lay_run(const smg_conv2d_s8_params *p, const smg_avx2_shape *s, smg_map x, int32_t oy,
                                    int32_t ox, int32_t pixels, int16_t *to) {
    if (s->joined) {
        smg_avx2_widen(x.data + (oy * p->x_w + ox) * p->x_c, pixels * p->x_c, p->x_zero, to);
        return;
    }
    for (int32_t i = 0; i < p->k_h; i++)
        smg_avx2_lay_row(p, x, oy * p->stride_h - p->pad_h + i * p->dilation_h, ox * p->stride_w - p->pad_w,
                         (pixels - 1) * p->stride_w + p->k_w, to + i * s->apart);
}

/* Two inputs in every lane. */
SMG_AVX2_PART __m256i smg_avx2_inputs(const int16_t *from) {
    int32_t two;
    memcpy(&two, from, sizeof two);
    return _mm256_set1_epi32(two);
}

/* sums[pixel][set] of eight vectors; the compiler knows how many sets. */
SMG_AVX2_PART void smg_avx2_sums(const smg_avx2_filters *f, const smg_avx2_shape *s, int32_t sets, const int16_t *x,
                                 __m256i *acc) {
    const int32_t all = SMG_AVX2_WIDE / sets;
    const __m256i *w = f->w;
    __m256i sums[SMG_AVX2_WIDE];
    for (int32_t n = 0; n < SMG_AVX2_WIDE; n++) sums[n] = f->start[n % sets];
    for (int32_t r = 0; r < s->rows; r++, x += s->apart) {
        const int16_t *near = x, *far = x + 4 * s->step;
        for (int32_t i = 0; i < s->twos; i++, w += sets, near += 2, far += 2) {
            const __m256i some = smg_avx2_held(w[0]), others = sets == 2 ? smg_avx2_held(w[1]) : some;
            for (int32_t n = 0; n < all; n++) {
                const __m256i v = smg_avx2_inputs(n < 4 ? near + n * s->step : far + (n - 4) * s->step);
                for (int32_t m = 0; m < sets; m++)
                    sums[n * sets + m] = smg_avx2_add(sums[n * sets + m], v, m ? others : some);
            }
        }
    }
    for (int32_t n = 0; n < SMG_AVX2_WIDE; n++) acc[n] = sums[n];
}

/* Two pixels of up to sixteen channels that are stored. */
SMG_AVX2_PART void smg_avx2_store_two(int8_t *y, __m256i x, int32_t count, int32_t pixels, int32_t y_c) {
    for (int32_t n = 0; n < 2 && n < pixels; n++, y += y_c) {
        const __m128i one = n ? _mm256_extracti128_si256(x, 1) : _mm256_castsi256_si128(x);
        if (count == 2 * SMG_AVX2_LANES) {
            _mm_storeu_si128((__m128i *)y, one);
        } else {
            smg_avx2_store8(y, one, SMG_AVX2_LANES);
            smg_avx2_store8(y + SMG_AVX2_LANES, _mm_unpackhi_epi64(one, one), count - SMG_AVX2_LANES);
        }
    }
}

/* All pixels of a run for one set of filters. */
SMG_AVX2_PART void smg_avx2_blocks(const smg_avx2_filters *f, const smg_avx2_shape *s, const smg_avx2_limits *limits,
                                   int32_t sets, int positive, const int16_t *x, int32_t pixels, int8_t *y, int32_t y_c) {
    const int32_t all = SMG_AVX2_WIDE / sets, half = all / 2;
    for (int32_t n = 0; n < pixels; n += all, x += all * s->step, y += all * y_c) {
        __m256i acc[SMG_AVX2_WIDE];
        smg_avx2_sums(f, s, sets, x, acc);
        for (int32_t k = 0; k < SMG_AVX2_WIDE; k++) acc[k] = smg_avx2_scaled(f->scales + k % sets, acc[k], positive);
        for (int32_t k = 0; k < 2 && n + k * half < pixels; k++) {
            const __m256i out = smg_avx2_bytes(limits, acc[4 * k], acc[4 * k + 1], acc[4 * k + 2], acc[4 * k + 3]);
            if (sets == 1)
                smg_avx2_store_four(y + k * half * y_c, out, f->count, pixels - n - k * half, y_c);
            else
                smg_avx2_store_two(y + k * half * y_c, out, f->count, pixels - n - k * half, y_c);
        }
    }
}

#define SMG_AVX2_BLOCKS(name, sets, positive)                                                                           \
    SMG_AVX2_LOOP smg_avx2_blocks_##name(const smg_avx2_filters *f, const smg_avx2_shape *s,                            \
                                         const smg_avx2_limits *limits, const int16_t *x, int32_t pixels, int8_t *y,    \
                                         int32_t y_c) {                                                                 \
        smg_avx2_blocks(f, s, limits, sets, positive, x, pixels, y, y_c);                                               \
    }
SMG_AVX2_BLOCKS(one, 1, 1)
SMG_AVX2_BLOCKS(two, 2, 1)
SMG_AVX2_BLOCKS(one_usual, 1, 0)
SMG_AVX2_BLOCKS(two_usual, 2, 0)

/* Rows [y0, y1) of the filters given. */
static inline void smg_avx2_convolve(const smg_conv2d_s8_params *p, const smg_avx2_shape *s, smg_map x,
                                     const smg_avx2_filters *f, int32_t count, smg_map y, int32_t y0, int32_t y1,
                                     int16_t *rows) {
    const smg_avx2_limits limits = smg_avx2_limit(p->y_zero, p->lo, p->hi);
    const int32_t most = 1 + (s->apart - 2 * s->twos) / s->step;
    for (int32_t oy = y0, ox = 0, pixels; oy < y1; oy += (ox + pixels) / p->y_w, ox = (ox + pixels) % p->y_w) {
        int8_t *to = smg_row(y, oy, p->y_w * p->y_c) + ox * p->y_c;
        pixels = smg_min(most, s->joined ? (y1 - oy) * p->y_w - ox : p->y_w - ox);
        smg_avx2_lay_run(p, s, x, oy, ox, pixels, rows);
        for (int32_t i = 0; i < count; i++)
            if (f[i].sets == 1)
                (limits.positive ? smg_avx2_blocks_one : smg_avx2_blocks_one_usual)(f + i, s, &limits, rows, pixels,
                                                                                    to + f[i].first, p->y_c);
            else
                (limits.positive ? smg_avx2_blocks_two : smg_avx2_blocks_two_usual)(f + i, s, &limits, rows, pixels,
                                                                                    to + f[i].first, p->y_c);
    }
}

/* The whole kernel; 0 where windows are no rows, shifts unusual, or weights more than the stack holds. */
static inline int smg_conv2d_avx2(const smg_conv2d_s8_params *p, smg_map x, smg_weights w, const int32_t *b, smg_map y,
                                  int32_t y0, int32_t y1) {
    const smg_avx2_shape s = smg_avx2_shape_of(p, x);
    const int32_t each = s.rows * s.twos;
    __m256i packed[SMG_AVX2_WEIGHTS];
    int16_t rows[SMG_AVX2_ROWS + SMG_AVX2_WIDE * SMG_AVX2_STEP + 16]; /* pixels past a run are computed, too */
    smg_avx2_filters f[SMG_AVX2_FILTERS];
    if (p->groups != 1 || p->dilation_w != 1 || s.step > SMG_AVX2_STEP || 2 * s.twos > s.apart ||
        2 * each > SMG_AVX2_WEIGHTS || !smg_avx2_simple(p->shift, p->y_c))
        return 0;
    for (int32_t n = 0; n < p->y_c;) {
        int32_t count = 0, used = 0;
        for (; n < p->y_c && count < SMG_AVX2_FILTERS && used + 2 * each <= SMG_AVX2_WEIGHTS; count++) {
            f[count].first = n;
            f[count].count = smg_min(2 * SMG_AVX2_LANES, p->y_c - n);
            f[count].sets = f[count].count > SMG_AVX2_LANES ? 2 : 1;
            smg_avx2_lay_filters(p, &s, w, b, f + count, packed + used);
            n += f[count].count;
            used += f[count].sets * each;
        }
        smg_avx2_convolve(p, &s, x, f, count, y, y0, y1, rows);
    }
    return 1;
}
#endif

#endif
