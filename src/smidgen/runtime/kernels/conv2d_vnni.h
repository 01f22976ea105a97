/* 2-D convolution in the words of AVX-512 with VNNI: up to eight pixels at a time against up to sixty-four channels'
 * weights.
 *
 * Weights are packed once a call, on the stack, as many as it holds. Input rows under a run of output pixels are laid out
 * raised, the zero point outside the map, so that every row of a window is words that follow each other; the weights
 * are zero where the last of these words looks beyond it. Windows that are no such rows are laid out one by one. */
#ifndef SMIDGEN_CONV2D_VNNI_H
#define SMIDGEN_CONV2D_VNNI_H

#include "smidgen.h"

#include "vnni.h"
#include "window.h"

#if defined(SMG_VNNI)
/* Vectors of sixteen channels at once, pixels at once, vectors of packed weights and bytes of rows that the stack holds,
 * and sets of sixteen channels whose weights are packed together. */
enum { SMG_VNNI_SETS = 4, SMG_VNNI_WIDE = 8, SMG_VNNI_WEIGHTS = 1024, SMG_VNNI_ROWS = 8192, SMG_VNNI_PACKED = 64 };

/* Bytes between pixels, at most: of windows that are laid out one by one, no more than their weights take. */
enum { SMG_VNNI_STEP = SMG_VNNI_WEIGHTS * 4 };

/* How windows lie: `rows` rows of `words` words of four inputs, `apart` bytes from each other, and pixels `step`. */
typedef struct {
    int32_t rows, words, length; /* inputs of a row */
    int32_t step, apart;
    int whole, joined; /* rows of the map lie as they are; those of all pixels are one */
} smg_vnni_shape;

/* Up to sixty-four output channels of one group, and what belongs to them. */
typedef struct {
    int32_t first, count, sets;
    __m512i start[SMG_VNNI_SETS];
    smg_vnni_scale scales[SMG_VNNI_SETS];
    const __m512i *w; /* [word][set] */
} smg_vnni_filters;

/* A run of output pixels: of row y from column x on, or, where rows are joined, of all. */
typedef struct {
    int32_t y, x, pixels;
} smg_vnni_run;

static inline smg_vnni_shape smg_vnni_shape_of(const smg_conv2d_s8_params *p, smg_map x) {
    const int32_t in = p->x_c / p->groups;
    const int whole = p->groups == 1 && p->dilation_w == 1 && p->stride_w * in <= SMG_VNNI_STEP;
    smg_vnni_shape s = {whole ? p->k_h : 1, 0, whole ? p->k_w * in : p->k_h * p->k_w * in, p->stride_w * in, 0, whole, 0};
    s.words = (s.length + 3) / 4;
    s.joined = whole && p->k_h * p->k_w * p->stride_h * p->stride_w == 1 && p->x_h == p->y_h && p->x_w == p->y_w &&
               p->pad_h + p->pad_w == 0 && x.rows >= p->x_h;
    if (!whole) s.step = s.words * 4;
    return s;
}

/* Bytes of one row under so many pixels. */
static inline int32_t smg_vnni_row_bytes(const smg_vnni_shape *s, int32_t pixels) {
    return (pixels - 1) * s->step + s->words * 4;
}

/* Pixels that a run has at most; 0 where not even one fits. */
static inline int32_t smg_vnni_run_pixels(const smg_vnni_shape *s) {
    const int32_t room = SMG_VNNI_ROWS / s->rows - s->words * 4;
    return room < 0 ? 0 : 1 + room / s->step;
}

/* The trained channels' weights over the frozen ones, of sixteen output channels from `first` on. */
static inline void smg_vnni_overlay(const smg_conv2d_s8_params *p, const smg_vnni_shape *s, smg_weights w,
                                    int32_t first, int32_t count, int8_t *to, int32_t step) {
    const int32_t taps = p->k_h * p->k_w, in = p->x_c / p->groups, across = s->whole ? p->k_w : taps;
    for (int32_t t = 0; t < taps; t++)
        for (int32_t i = 0; i < w.count; i++) {
            const int32_t at = t / across * s->words * 4 + t % across * in + w.channel[i];
            const int8_t *from = w.trained + (first * taps + t) * w.count + i;
            for (int32_t n = 0; n < count; n++) to[at / 4 * step + n * 4 + at % 4] = from[n * taps * w.count];
        }
}

static inline void smg_vnni_lay_out(const smg_conv2d_s8_params *p, const smg_vnni_shape *s, smg_weights w,
                                    const int32_t *b, smg_vnni_filters *f, __m512i *packed) {
    const int32_t k = s->rows * s->length, step = f->sets * 64, single = p->k_h * p->k_w == 1;
    f->w = packed;
    for (int32_t m = 0; m < f->sets; m++) {
        const int32_t n = f->first + m * SMG_LANES, count = smg_min(SMG_LANES, f->first + f->count - n);
        const __mmask16 some = smg_vnni_first(count);
        const smg_weights over = {0, w.count ? w.trained + n * w.count : 0, w.channel, single ? w.count : 0};
        int8_t *to = (int8_t *)(packed + m);
        for (int32_t i = 0; i < s->rows; i++)
            smg_vnni_pack(w.data + n * k + i * s->length, k, s->length, count, over, to + i * s->words * step, step);
        if (!single) smg_vnni_overlay(p, s, w, n, count, to, step);
        f->start[m] = smg_vnni_start(b + n, count, to, s->rows * s->words, step, p->x_zero);
        __m512i multiplier = _mm512_maskz_loadu_epi32(some, p->multiplier + n);
        __m512i shift = _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(some, p->shift + n));
        if (count <= SMG_LANES / 2) { /* so that two pixels share a vector */
            multiplier = _mm512_broadcast_i64x4(_mm512_castsi512_si256(multiplier));
            shift = _mm512_broadcast_i64x4(_mm512_castsi512_si256(shift));
        }
        f->scales[m] = smg_vnni_scale_of(multiplier, shift, p->y_zero);
    }
}

/* `taps` taps of row iy from column ix on, raised; the zero point outside the map. */
static inline void smg_vnni_lay_row(const smg_conv2d_s8_params *p, smg_map x, int32_t c, int32_t iy, int32_t ix,
                                    int32_t taps, uint8_t *to) {
    const int32_t in = p->x_c / p->groups;
    if (iy < 0 || iy >= p->x_h) {
        memset(to, p->x_zero + 128, (size_t)(taps * in));
        return;
    }
    const smg_taps inside = smg_taps_inside(ix, taps, p->dilation_w, p->x_w);
    const int8_t *from = smg_row(x, iy, p->x_w * p->x_c) + ix * p->x_c + c;
    if (inside.from) memset(to, p->x_zero + 128, (size_t)(inside.from * in));
    if (in == p->x_c && p->dilation_w == 1)
        smg_vnni_copy(from + inside.from * in, (inside.to - inside.from) * in, to + inside.from * in);
    else
        for (int32_t t = inside.from; t < inside.to; t++)
            smg_vnni_copy(from + t * p->dilation_w * p->x_c, in, to + t * in);
    if (inside.to < taps) memset(to + inside.to * in, p->x_zero + 128, (size_t)((taps - inside.to) * in));
}

/* All that a run of pixels looks at, of the input channels from c on. */
static inline void smg_vnni_lay_run(const smg_conv2d_s8_params *p, const smg_vnni_shape *s, smg_map x, int32_t c,
                                    smg_vnni_run run, uint8_t *to) {
    const int32_t iy = run.y * p->stride_h - p->pad_h, ix = run.x * p->stride_w - p->pad_w;
    if (s->joined) {
        smg_vnni_copy(x.data + (run.y * p->x_w + run.x) * p->x_c, run.pixels * p->x_c, to);
    } else if (s->whole) {
        for (int32_t i = 0; i < p->k_h; i++)
            smg_vnni_lay_row(p, x, c, iy + i * p->dilation_h, ix, (run.pixels - 1) * p->stride_w + p->k_w,
                             to + i * s->apart);
    } else {
        const int32_t row = p->k_w * (p->x_c / p->groups);
        for (int32_t n = 0; n < run.pixels; n++)
            for (int32_t i = 0; i < p->k_h; i++)
                smg_vnni_lay_row(p, x, c, iy + i * p->dilation_h, ix + n * p->stride_w, p->k_w,
                                 to + n * s->step + i * row);
    }
}

/* Up to sixty-four bytes of which `count` are stored: a masked store takes several times as long. */
SMG_VNNI_PART void smg_vnni_store(int8_t *to, __m512i x, int32_t count) {
    if (count == 64) {
        _mm512_storeu_si512(to, x);
        return;
    }
    if (count & 32) {
        _mm256_storeu_si256((__m256i *)to, _mm512_castsi512_si256(x));
        x = _mm512_shuffle_i32x4(x, x, 0xee);
        to += 32;
    }
    if (count & 16) {
        _mm_storeu_si128((__m128i *)to, _mm512_castsi512_si128(x));
        x = _mm512_shuffle_i32x4(x, x, 0x39);
        to += 16;
    }
    if ((count & 15) == 8)
        _mm_storel_epi64((__m128i *)to, _mm512_castsi512_si128(x));
    else if (count & 15)
        _mm_mask_storeu_epi8(to, smg_vnni_first(count & 15), _mm512_castsi512_si128(x));
}

/* Four times up to sixteen channels, of pixels that are y_c apart; few channels are all there are, or stored by twos. */
SMG_VNNI_PART void smg_vnni_store_four(int8_t *y, __m512i x, int32_t count, int32_t pixels, int32_t y_c) {
    const __m512i lower = _mm512_setr_epi64(0, 2, 4, 6, 0, 2, 4, 6);
    if (pixels >= 4 && count == SMG_LANES && y_c == SMG_LANES) {
        _mm512_storeu_si512(y, x);
        return;
    }
    if (pixels >= 4 && count == SMG_LANES / 2 && y_c == SMG_LANES / 2) {
        _mm256_storeu_si256((__m256i *)y, _mm512_castsi512_si256(_mm512_permutexvar_epi64(lower, x)));
        return;
    }
    for (int32_t k = 0; k < 4 && k < pixels; k++, y += y_c, x = _mm512_shuffle_i32x4(x, x, 0x39))
        smg_vnni_store(y, x, count);
}

/* Sums of `pixels` pixels as int8: the sets of one pixel side by side, or several pixels at once where sets are few. */
SMG_VNNI_PART void smg_vnni_finish(const smg_vnni_filters *f, const smg_vnni_limits *limits, int32_t sets, int how,
                                   const __m512i *sums, int32_t pixels, int8_t *y, int32_t y_c) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const int32_t at_once = sets == 1 ? 4 : sets == 2 ? 2 : 1, count = f->count;
    const smg_vnni_limits within = *limits;
    const smg_vnni_scale q0 = f->scales[0], q1 = f->scales[sets > 1 ? 1 : 0], q2 = f->scales[sets > 2 ? 2 : 0];
    const smg_vnni_scale q3 = f->scales[sets - 1];
    for (int32_t n = 0; n < pixels; n += at_once, sums += sets == 3 ? 3 : 4, y += at_once * y_c) {
        const __m512i a = smg_vnni_scaled(&q0, &within, sums[0], how);
        const __m512i b = smg_vnni_scaled(&q1, &within, sums[1], how);
        const __m512i c = smg_vnni_scaled(&q2, &within, sums[2], how);
        const __m512i d = sets == 3 ? c : smg_vnni_scaled(&q3, &within, sums[3], how);
        const __m512i out = _mm512_permutexvar_epi32(order, smg_vnni_within(&within, smg_vnni_bytes_of(a, b, c, d)));
        if (sets == 1) {
            smg_vnni_store_four(y, out, count, pixels - n, y_c);
        } else {
            smg_vnni_store(y, out, count);
            if (sets == 2 && n + 1 < pixels) smg_vnni_store(y + y_c, _mm512_shuffle_i32x4(out, out, 0xee), count);
        }
    }
}

/* Sums of eight pixels of eight channels, which follow each other, as int8: two pixels in a vector. */
SMG_VNNI_PART void smg_vnni_finish_eight(const smg_vnni_filters *f, const smg_vnni_limits *limits, int how,
                                         const __m512i *sums, int8_t *y) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i part[4];
    for (int32_t k = 0; k < 4; k++) {
        const __m512i both = _mm512_inserti64x4(sums[2 * k], _mm512_castsi512_si256(sums[2 * k + 1]), 1);
        part[k] = smg_vnni_scaled(f->scales, limits, both, how);
    }
    const __m512i out = smg_vnni_within(limits, smg_vnni_bytes_of(part[0], part[1], part[2], part[3]));
    _mm512_storeu_si512(y, _mm512_permutexvar_epi32(order, out));
}

/* acc[pixel][set] of `all` pixels against `sets` vectors of channels, both of which the compiler knows. */
SMG_VNNI_PART void smg_vnni_multiply(const smg_vnni_filters *f, const smg_vnni_shape *s, int32_t sets, int32_t all,
                                     const uint8_t *x, __m512i *acc) {
    __m512i sums[SMG_VNNI_WIDE][SMG_VNNI_SETS];
    const __m512i *w = f->w;
    for (int32_t n = 0; n < all; n++)
        for (int32_t m = 0; m < sets; m++) sums[n][m] = f->start[m];
    for (int32_t r = 0; r < s->rows; r++, x += s->apart) {
        const uint8_t *near = x, *far = x + 4 * s->step;
        for (int32_t i = 0; i < s->words; i++, w += sets, near += 4, far += 4)
            for (int32_t n = 0; n < all; n++) {
                int32_t four;
                memcpy(&four, n < 4 ? near + n * s->step : far + (n - 4) * s->step, sizeof four);
                const __m512i v = _mm512_set1_epi32(four);
                for (int32_t m = 0; m < sets; m++) sums[n][m] = _mm512_dpbusd_epi32(sums[n][m], v, w[m]);
            }
    }
    for (int32_t n = 0; n < all; n++)
        for (int32_t m = 0; m < sets; m++) acc[n * sets + m] = sums[n][m];
}

/* All pixels of a run for one set of filters, `all` at a time against `sets` vectors of channels. */
SMG_VNNI_PART void smg_vnni_blocks(const smg_vnni_filters *f, const smg_vnni_shape *s, const smg_vnni_limits *limits,
                                   int32_t sets, int32_t all, const uint8_t *x, int32_t pixels, int8_t *y, int32_t y_c) {
    __m512i acc[SMG_VNNI_WIDE * SMG_VNNI_SETS];
    for (int32_t n = 0; n < pixels; n += all, x += all * s->step, y += all * y_c) {
        const int32_t left = smg_min(all, pixels - n);
        smg_vnni_multiply(f, s, sets, all, x, acc);
        if (sets == 1 && left == 8 && f->count == 8 && y_c == 8 && limits->how != SMG_VNNI_ANY)
            smg_vnni_finish_eight(f, limits, SMG_VNNI_USUAL, acc, y);
        else if (limits->how == SMG_VNNI_POSITIVE)
            smg_vnni_finish(f, limits, sets, SMG_VNNI_POSITIVE, acc, left, y, y_c);
        else if (limits->how == SMG_VNNI_USUAL)
            smg_vnni_finish(f, limits, sets, SMG_VNNI_USUAL, acc, left, y, y_c);
        else
            smg_vnni_finish(f, limits, sets, SMG_VNNI_ANY, acc, left, y, y_c);
    }
}

#define SMG_VNNI_BLOCKS(sets, all)                                                                                      \
    SMG_VNNI_LOOP smg_vnni_blocks_##sets(const smg_vnni_filters *f, const smg_vnni_shape *s,                            \
                                         const smg_vnni_limits *limits, const uint8_t *x, int32_t pixels, int8_t *y,    \
                                         int32_t y_c) {                                                                 \
        smg_vnni_blocks(f, s, limits, sets, all, x, pixels, y, y_c);                                                    \
    }
SMG_VNNI_BLOCKS(1, 8)
SMG_VNNI_BLOCKS(2, 8)
SMG_VNNI_BLOCKS(3, 8)
SMG_VNNI_BLOCKS(4, 6)

static inline void smg_vnni_run_filters(const smg_vnni_filters *f, const smg_vnni_shape *s,
                                        const smg_vnni_limits *limits, const uint8_t *x, int32_t pixels, int8_t *y,
                                        int32_t y_c) {
    if (f->sets == 1) smg_vnni_blocks_1(f, s, limits, x, pixels, y, y_c);
    if (f->sets == 2) smg_vnni_blocks_2(f, s, limits, x, pixels, y, y_c);
    if (f->sets == 3) smg_vnni_blocks_3(f, s, limits, x, pixels, y, y_c);
    if (f->sets == 4) smg_vnni_blocks_4(f, s, limits, x, pixels, y, y_c);
}

/* Rows [y0, y1) of the filters given, which are of one group. */
static inline void smg_vnni_convolve(const smg_conv2d_s8_params *p, const smg_vnni_shape *s, smg_map x, int32_t c,
                                     const smg_vnni_filters *f, int32_t count, smg_map y, int32_t y0, int32_t y1,
                                     uint8_t *rows) {
    const smg_vnni_limits limits =
        smg_vnni_limit(p->shift + f->first, f[count - 1].first + f[count - 1].count - f->first, p->y_zero, p->lo, p->hi);
    const int32_t most = smg_vnni_run_pixels(s);
    smg_vnni_run run = {y0, 0, 0};
    while (run.y < y1) {
        run.pixels = smg_min(most, s->joined ? (y1 - run.y) * p->y_w - run.x : p->y_w - run.x);
        int8_t *to = smg_row(y, run.y, p->y_w * p->y_c) + run.x * p->y_c;
        smg_vnni_lay_run(p, s, x, c, run, rows);
        for (int32_t i = 0; i < count; i++)
            smg_vnni_run_filters(f + i, s, &limits, rows, run.pixels, to + f[i].first, p->y_c);
        run.x += run.pixels;
        run.y += run.x / p->y_w;
        run.x %= p->y_w;
    }
}

/* The whole kernel; 0 where the weights of sixteen channels, or one window, are more than the stack holds. */
static inline int smg_conv2d_vnni(const smg_conv2d_s8_params *p, smg_map x, smg_weights w, const int32_t *b, smg_map y,
                                  int32_t y0, int32_t y1) {
    const int32_t in = p->x_c / p->groups, out = p->y_c / p->groups;
    smg_vnni_shape s = smg_vnni_shape_of(p, x);
    const int32_t most = smg_min(SMG_VNNI_WEIGHTS / (s.rows * s.words), SMG_VNNI_PACKED); /* sets packed at once */
    __m512i packed[SMG_VNNI_WEIGHTS];
    /* Pixels past a run are computed, too, on whatever lies there. */
    uint8_t rows[SMG_VNNI_ROWS + (SMG_VNNI_WIDE - 1) * SMG_VNNI_STEP + 64];
    smg_vnni_filters f[SMG_VNNI_PACKED / 2];
    if (most == 0 || smg_vnni_run_pixels(&s) == 0) return 0;
    s.apart = SMG_VNNI_ROWS / s.rows;
    for (int32_t g = 0; g < p->groups; g++)
        for (int32_t n = 0; n < out;) {
            int32_t count = 0, sets = 0;
            for (; n < out && sets < most; count++) {
                f[count].first = g * out + n;
                f[count].sets = smg_min(smg_min(SMG_VNNI_SETS, most - sets), (out - n + SMG_LANES - 1) / SMG_LANES);
                f[count].count = smg_min(f[count].sets * SMG_LANES, out - n);
                smg_vnni_lay_out(p, &s, w, b, f + count, packed + sets * s.rows * s.words);
                n += f[count].count;
                sets += f[count].sets;
            }
            smg_vnni_convolve(p, &s, x, g * in, f, count, y, y0, y1, rows);
        }
    return 1;
}
#endif

#endif
