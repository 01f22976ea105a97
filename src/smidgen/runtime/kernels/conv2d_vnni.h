/* 2-D convolution in the words of AVX-512 with VNNI: six pixels at a time against up to sixty-four channels' weights.
 *
 * Weights are packed once a call, on the stack, and each window is laid out as raised bytes. */
#ifndef SMIDGEN_CONV2D_VNNI_H
#define SMIDGEN_CONV2D_VNNI_H

#include "smidgen.h"

#include "vnni.h"
#include "window.h"

#if defined(SMG_VNNI)
/* Pixels at once, vectors of sixteen channels at once, and vectors of packed weights that the stack holds. */
enum { SMG_VNNI_PIXELS = 6, SMG_VNNI_SETS = 4, SMG_VNNI_WEIGHTS = 1024 };

/* Up to sixty-four output channels of one group, and what belongs to them. */
typedef struct {
    int32_t first, count, sets, words; /* output channels, vectors of them, words of four weights a channel */
    int32_t c;                         /* the first input channel */
    __m512i start[SMG_VNNI_SETS];
    smg_vnni_scales scales[SMG_VNNI_SETS];
    const __m512i *w; /* [word][set] */
} smg_vnni_filters;

/* The trained channels' weights over the frozen ones, of sixteen output channels from `first` on. */
static inline void smg_vnni_overlay(const smg_conv2d_s8_params *p, smg_weights w, int32_t first, int32_t count,
                                    int8_t *to, int32_t step) {
    const int32_t taps = p->k_h * p->k_w, in = p->x_c / p->groups;
    for (int32_t t = 0; t < taps; t++)
        for (int32_t i = 0; i < w.count; i++) {
            const int32_t at = t * in + w.channel[i];
            const int8_t *from = w.trained + (first * taps + t) * w.count + i;
            for (int32_t n = 0; n < count; n++) to[at / 4 * step + n * 4 + at % 4] = from[n * taps * w.count];
        }
}

static inline void smg_vnni_lay_out(const smg_conv2d_s8_params *p, smg_weights w, const int32_t *b,
                                    smg_vnni_filters *f, __m512i *packed) {
    const int32_t k = p->k_h * p->k_w * (p->x_c / p->groups), step = f->sets * 64;
    f->w = packed;
    for (int32_t s = 0; s < f->sets; s++) {
        const int32_t n = f->first + s * SMG_LANES, count = smg_min(SMG_LANES, f->first + f->count - n);
        int8_t *to = (int8_t *)(packed + s);
        smg_vnni_pack(w.data + n * k, k, count, to, step);
        smg_vnni_overlay(p, w, n, count, to, step);
        f->start[s] = smg_vnni_start(b + n, count, to, f->words, step, p->x_zero);
        f->scales[s] = smg_vnni_scale_of(p->multiplier + n, p->shift + n, count, p->y_zero, p->lo, p->hi);
    }
}

/* One row of a window from column ix on, raised; the zero point outside the map. */
static inline void smg_vnni_window_row(const smg_conv2d_s8_params *p, smg_map x, int32_t c, int32_t iy, int32_t ix,
                                       uint8_t *to) {
    const int32_t in = p->x_c / p->groups;
    if (iy < 0 || iy >= p->x_h) {
        memset(to, p->x_zero + 128, (size_t)(p->k_w * in));
        return;
    }
    const smg_taps inside = smg_taps_inside(ix, p->k_w, p->dilation_w, p->x_w);
    const int8_t *from = smg_row(x, iy, p->x_w * p->x_c) + ix * p->x_c + c;
    if (inside.from) memset(to, p->x_zero + 128, (size_t)(inside.from * in));
    if (in == p->x_c && p->dilation_w == 1)
        smg_vnni_copy(from + inside.from * in, (inside.to - inside.from) * in, to + inside.from * in);
    else
        for (int32_t t = inside.from; t < inside.to; t++)
            smg_vnni_copy(from + t * p->dilation_w * p->x_c, in, to + t * in);
    if (inside.to < p->k_w) memset(to + inside.to * in, p->x_zero + 128, (size_t)((p->k_w - inside.to) * in));
}

static inline void smg_vnni_window(const smg_conv2d_s8_params *p, smg_map x, int32_t c, int32_t oy, int32_t ox,
                                   uint8_t *to) {
    const int32_t row = p->k_w * (p->x_c / p->groups), iy = oy * p->stride_h - p->pad_h;
    const int32_t ix = ox * p->stride_w - p->pad_w, whole = p->groups == 1 && p->dilation_h * p->dilation_w == 1;
    if (whole && row <= 64 && iy >= 0 && iy + p->k_h <= p->x_h && ix >= 0 && ix + p->k_w <= p->x_w)
        for (int32_t i = 0; i < p->k_h; i++)
            smg_vnni_copy(smg_row(x, iy + i, p->x_w * p->x_c) + ix * p->x_c, row, to + i * row);
    else
        for (int32_t i = 0; i < p->k_h; i++) smg_vnni_window_row(p, x, c, iy + i * p->dilation_h, ix, to + i * row);
}

/* acc[pixel][set] of six windows and `sets` vectors of channels, which the compiler knows. */
static inline void smg_vnni_multiply(const smg_vnni_filters *f, int32_t sets, const uint8_t *windows, __m512i *acc) {
    __m512i sums[SMG_VNNI_PIXELS][SMG_VNNI_SETS];
    const __m512i *w = f->w;
    for (int32_t n = 0; n < SMG_VNNI_PIXELS; n++)
        for (int32_t s = 0; s < sets; s++) sums[n][s] = f->start[s];
    for (int32_t i = 0; i < f->words; i++, w += sets)
        for (int32_t n = 0; n < SMG_VNNI_PIXELS; n++) {
            int32_t four;
            memcpy(&four, windows + (n * f->words + i) * 4, sizeof four);
            const __m512i x = _mm512_set1_epi32(four);
            for (int32_t s = 0; s < sets; s++) sums[n][s] = _mm512_dpbusd_epi32(sums[n][s], x, w[s]);
        }
    for (int32_t n = 0; n < SMG_VNNI_PIXELS; n++)
        for (int32_t s = 0; s < sets; s++) acc[n * SMG_VNNI_SETS + s] = sums[n][s];
}

static inline void smg_vnni_sums(const smg_vnni_filters *f, const uint8_t *windows, __m512i *acc) {
    if (f->sets == 1) smg_vnni_multiply(f, 1, windows, acc);
    if (f->sets == 2) smg_vnni_multiply(f, 2, windows, acc);
    if (f->sets == 3) smg_vnni_multiply(f, 3, windows, acc);
    if (f->sets == 4) smg_vnni_multiply(f, 4, windows, acc);
}

/* All pixels of rows [y0, y1) for one set of filters. */
static inline void smg_vnni_filter(const smg_conv2d_s8_params *p, smg_map x, const smg_vnni_filters *f, smg_map y,
                                   int32_t y0, int32_t y1, uint8_t *windows) {
    __m512i acc[SMG_VNNI_PIXELS * SMG_VNNI_SETS];
    int8_t *to[SMG_VNNI_PIXELS];
    int32_t oy = y0, ox = 0, pixels;
    /* Where a window is a pixel, windows follow each other as pixels do. */
    const int joined = p->k_h * p->k_w * p->stride_h * p->stride_w * p->groups == 1 && p->x_c % 4 == 0 &&
                       p->x_h == p->y_h && p->x_w == p->y_w && p->pad_h + p->pad_w == 0 && x.rows >= p->x_h;
    for (int32_t left = (y1 - y0) * p->y_w; left > 0; left -= pixels) {
        pixels = smg_min(SMG_VNNI_PIXELS, left);
        if (joined) smg_vnni_copy(x.data + (oy * p->x_w + ox) * p->x_c, pixels * p->x_c, windows);
        for (int32_t n = 0; n < pixels; n++) {
            if (!joined) smg_vnni_window(p, x, f->c, oy, ox, windows + n * f->words * 4);
            to[n] = smg_row(y, oy, p->y_w * p->y_c) + ox * p->y_c + f->first;
            if (++ox == p->y_w) ox = 0, oy++;
        }
        smg_vnni_sums(f, windows, acc);
        for (int32_t s = 0; s < f->sets; s++) {
            const smg_vnni_scales q = f->scales[s];
            const __m512i *from = acc + s;
            int32_t n = 0;
            for (; n + 1 < pixels; n += 2, from += 2 * SMG_VNNI_SETS)
                smg_vnni_requantize_two(&q, from[0], from[SMG_VNNI_SETS], to[n] + s * SMG_LANES,
                                        to[n + 1] + s * SMG_LANES);
            if (n < pixels) smg_vnni_requantize(&q, *from, to[n] + s * SMG_LANES);
        }
    }
}

/* The whole kernel; 0 where the weights of sixteen channels are more than the stack holds. */
static inline int smg_conv2d_vnni(const smg_conv2d_s8_params *p, smg_map x, smg_weights w, const int32_t *b, smg_map y,
                                  int32_t y0, int32_t y1) {
    const int32_t in = p->x_c / p->groups, out = p->y_c / p->groups, words = (p->k_h * p->k_w * in + 3) / 4;
    const int32_t sets = smg_min(SMG_VNNI_SETS, SMG_VNNI_WEIGHTS / words);
    __m512i packed[SMG_VNNI_WEIGHTS];
    uint8_t windows[SMG_VNNI_PIXELS * SMG_VNNI_WEIGHTS * 4 + 64];
    smg_vnni_filters f;
    if (sets == 0) return 0;
    memset(windows, 0, (size_t)(SMG_VNNI_PIXELS * words * 4));
    for (int32_t g = 0; g < p->groups; g++)
        for (int32_t n = 0; n < out; n += f.count) {
            f.first = g * out + n;
            f.count = smg_min(sets * SMG_LANES, out - n);
            f.sets = (f.count + SMG_LANES - 1) / SMG_LANES;
            f.words = words;
            f.c = g * in;
            smg_vnni_lay_out(p, w, b, &f, packed);
            smg_vnni_filter(p, x, &f, y, y0, y1, windows);
        }
    return 1;
}
#endif

#endif
