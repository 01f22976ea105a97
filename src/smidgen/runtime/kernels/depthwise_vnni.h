/* Depthwise convolution in the words of AVX-512 with VNNI: of sixteen channels, four taps of a column at once.
 *
 * A strip holds the columns under one output row: of each, four rows' bytes beside each other in every lane. Kernels of
 * more than four rows take as many such quads a column. */
#ifndef SMIDGEN_DEPTHWISE_VNNI_H
#define SMIDGEN_DEPTHWISE_VNNI_H

#include "smidgen.h"

#include "vnni.h"
#include "window.h"

#if defined(SMG_VNNI)
/* Vectors of a strip and of weights that the stack holds. */
enum { SMG_VNNI_STRIP = 512, SMG_VNNI_TAPS = 64 };

/* Sixteen channels or fewer, and what belongs to them. */
typedef struct {
    int32_t quads, tile; /* vectors a column, output pixels a strip */
    __mmask16 channels;
    __m512i start;
    smg_vnni_scales scales;
    __m512i w[SMG_VNNI_TAPS]; /* [column][quad] */
    __m512i strip[SMG_VNNI_STRIP];
} smg_vnni_lanes;

/* to[pixel][lane] of `pixels` pixels that are x_c bytes apart. */
static inline void smg_vnni_copy_lanes(const int8_t *from, int32_t pixels, int32_t x_c, int32_t count, int8_t *to) {
    const __mmask16 channels = smg_vnni_first(count);
    for (int32_t i = 0; i < pixels; i++, from += x_c, to += SMG_LANES)
        _mm_storeu_si128((__m128i *)to, _mm_maskz_loadu_epi8(channels, from));
}

/* Columns of the input under so many output pixels. */
static inline int32_t smg_vnni_columns(const smg_depthwise_s8_params *p, int32_t pixels) {
    return (pixels - 1) * p->stride_w + (p->k_w - 1) * p->dilation_w + 1;
}

/* Whether a kernel of this size is taken at all. */
static inline int smg_vnni_fits(const smg_depthwise_s8_params *p) {
    const int32_t quads = (p->k_h + 3) / 4;
    return p->x_c == p->y_c && quads * p->k_w <= SMG_VNNI_TAPS && quads * smg_vnni_columns(p, 1) <= SMG_VNNI_STRIP;
}

/* Lay out weights, given as [tap][lane] in 32 bits, and set up the rest. */
static inline void smg_vnni_begin(const smg_depthwise_s8_params *p, const int32_t *w, const int32_t *b, int32_t first,
                                  int32_t count, smg_vnni_lanes *of) {
    __m512i total = _mm512_setzero_si512();
    const __m512i low = _mm512_set1_epi32(255);
    of->quads = (p->k_h + 3) / 4;
    of->tile = smg_min(p->y_w, 1 + (SMG_VNNI_STRIP / of->quads - smg_vnni_columns(p, 1)) / p->stride_w);
    of->channels = smg_vnni_first(count);
    of->scales = smg_vnni_scale_of(p->multiplier + first, p->shift + first, count, p->y_zero, p->lo, p->hi);
    for (int32_t n = 0; n < of->quads * p->k_w; n++) of->w[n] = _mm512_setzero_si512();
    for (int32_t i = 0; i < p->k_h; i++)
        for (int32_t j = 0; j < p->k_w; j++, w += SMG_LANES) {
            const __m512i tap = _mm512_loadu_si512(w);
            __m512i *to = of->w + j * of->quads + i / 4;
            *to = _mm512_or_si512(*to, _mm512_slli_epi32(_mm512_and_si512(tap, low), (unsigned)(i % 4 * 8)));
            total = _mm512_add_epi32(total, tap);
        }
    of->start = _mm512_sub_epi32(_mm512_maskz_loadu_epi32(of->channels, b + first),
                                 _mm512_mullo_epi32(total, _mm512_set1_epi32(128 + p->x_zero)));
}

/* One quad of the columns [left, left + columns) of the rows under it; the zero point outside the map. */
static inline void smg_vnni_lay_strip(const smg_depthwise_s8_params *p, smg_map x, int32_t x_c, int32_t first,
                                      int32_t top, int32_t left, int32_t columns, int32_t quad, smg_vnni_lanes *of) {
    const __m512i outside = _mm512_set1_epi8((int8_t)(p->x_zero ^ -128));
    const int32_t from = smg_min(smg_max(-left, 0), columns), to = smg_max(smg_min(p->x_w - left, columns), from);
    int8_t none[SMG_LANES];
    const int8_t *rows[4];
    int32_t at[4], step[4];
    memset(none, p->x_zero, sizeof none);
    for (int32_t i = 0; i < 4; i++) {
        const int32_t tap = quad * 4 + i, r = top + tap * p->dilation_h, inside = tap < p->k_h && r >= 0 && r < p->x_h;
        rows[i] = inside ? smg_row(x, r, p->x_w * x_c) + first : none;
        at[i] = inside ? (left + from) * x_c : 0;
        step[i] = inside ? x_c : 0;
    }
    __m512i *strip = of->strip + quad;
    for (int32_t c = 0; c < from; c++, strip += of->quads) *strip = outside;
    for (int32_t c = from; c < to; c++, strip += of->quads) {
        *strip = smg_vnni_quad(rows, at, of->channels);
        for (int32_t i = 0; i < 4; i++) at[i] += step[i];
    }
    for (int32_t c = to; c < columns; c++, strip += of->quads) *strip = outside;
}

/* The sums of one output pixel; the compiler knows how many taps follow each other, where `taps` is not 0. */
static inline __m512i smg_vnni_sum(const smg_depthwise_s8_params *p, const smg_vnni_lanes *of, const __m512i *x,
                                   int32_t taps, int32_t quads) {
    __m512i sum = of->start;
    if (taps)
        for (int32_t t = 0; t < taps * quads; t++) sum = _mm512_dpbusd_epi32(sum, x[t], of->w[t]);
    else
        for (int32_t t = 0; t < p->k_w; t++)
            for (int32_t k = 0; k < quads; k++)
                sum = _mm512_dpbusd_epi32(sum, x[t * p->dilation_w * quads + k], of->w[t * quads + k]);
    return sum;
}

/* `pixels` output pixels of a strip, which are y_c apart. */
static inline void smg_vnni_slide(const smg_depthwise_s8_params *p, const smg_vnni_lanes *of, int32_t pixels,
                                  int32_t taps, int32_t quads, int8_t *y) {
    const smg_vnni_scales q = of->scales;
    const int32_t step = p->stride_w * quads, y_c = p->y_c;
    const __m512i *x = of->strip;
    int32_t n = 0;
    for (; n + 1 < pixels; n += 2, x += 2 * step, y += 2 * y_c)
        smg_vnni_requantize_two(&q, smg_vnni_sum(p, of, x, taps, quads), smg_vnni_sum(p, of, x + step, taps, quads), y,
                                y + y_c);
    if (n < pixels) smg_vnni_requantize(&q, smg_vnni_sum(p, of, x, taps, quads), y);
}

/* Rows [y0, y1) of one block of channels, which begin at `first` of the x_c channels of x, and at y's first. */
static inline void smg_vnni_depthwise(const smg_depthwise_s8_params *p, smg_map x, int32_t x_c, int32_t first,
                                      smg_vnni_lanes *of, smg_map y, int32_t y_first, int32_t y0, int32_t y1) {
    const int32_t near = p->dilation_w == 1, taps = near ? p->k_w : 0;
    for (int32_t oy = y0; oy < y1; oy++)
        for (int32_t ox = 0, pixels; ox < p->y_w; ox += pixels) {
            int8_t *to = smg_row(y, oy, p->y_w * p->y_c) + ox * p->y_c + y_first;
            pixels = smg_min(of->tile, p->y_w - ox);
            for (int32_t quad = 0; quad < of->quads; quad++)
                smg_vnni_lay_strip(p, x, x_c, first, oy * p->stride_h - p->pad_h, ox * p->stride_w - p->pad_w,
                                   smg_vnni_columns(p, pixels), quad, of);
            if (taps == 3 && of->quads == 1)
                smg_vnni_slide(p, of, pixels, 3, 1, to);
            else if (taps == 5 && of->quads == 2)
                smg_vnni_slide(p, of, pixels, 5, 2, to);
            else if (taps == 7 && of->quads == 2)
                smg_vnni_slide(p, of, pixels, 7, 2, to);
            else
                smg_vnni_slide(p, of, pixels, 0, of->quads, to);
        }
}
#endif

#endif
