/* Depthwise convolution in the words of AVX-512 with VNNI: sixteen channels of four neighbouring output pixels at once,
 * four taps of a column each instruction. */
#ifndef SMIDGEN_DEPTHWISE_VNNI_H
#define SMIDGEN_DEPTHWISE_VNNI_H

#include "strips_vnni.h"

#if defined(SMG_VNNI)
/* `pixels` times up to sixteen channels, of pixels that are y_c apart. */
static inline void smg_vnni_put(__m512i x, int32_t pixels, int32_t y_c, __mmask16 channels, int8_t *y) {
    for (int32_t q = 0; q < pixels; q++, y += y_c, x = _mm512_shuffle_i32x4(x, x, 0x39))
        if (channels == 0xffff)
            _mm_storeu_si128((__m128i *)y, _mm512_castsi512_si128(x));
        else if (channels == 0xff)
            _mm_storel_epi64((__m128i *)y, _mm512_castsi512_si128(x));
        else
            _mm_mask_storeu_epi8(y, channels, _mm512_castsi512_si128(x));
}

/* Four times sixteen channels. */
SMG_VNNI_PART void smg_vnni_put_four(__m512i x, int32_t y_c, int8_t *y) {
    _mm_storeu_si128((__m128i *)y, _mm512_castsi512_si128(x));
    _mm_storeu_si128((__m128i *)(y + y_c), _mm512_extracti32x4_epi32(x, 1));
    _mm_storeu_si128((__m128i *)(y + 2 * y_c), _mm512_extracti32x4_epi32(x, 2));
    _mm_storeu_si128((__m128i *)(y + 3 * y_c), _mm512_extracti32x4_epi32(x, 3));
}

/* What one or two parts of sixteen channels begin with and are scaled by, and their weights where these are few. */
typedef struct {
    __m512i start[2];
    smg_vnni_scale scales[2];
    __m512i w[SMG_VNNI_FEW][2];
} smg_vnni_held;

/* Four columns, the first of which is tap t of four neighbouring pixels: from aligned ones, where taps are neighbours. */
SMG_VNNI_PART __m512i smg_vnni_tap_columns(const smg_vnni_lanes *of, const __m128i *x, int32_t t, int near) {
    if (!near) return _mm512_loadu_si512(x + of->at[t]);
    const __m512i a = _mm512_loadu_si512(x + t / 4 * 4), b = _mm512_loadu_si512(x + t / 4 * 4 + 4);
    return t % 4 == 0   ? a
           : t % 4 == 1 ? _mm512_alignr_epi64(b, a, 2)
           : t % 4 == 2 ? _mm512_alignr_epi64(b, a, 4)
                        : _mm512_alignr_epi64(b, a, 6);
}

/* Four pixels of one part. The compiler knows `taps` and `quads`. */
SMG_VNNI_PART __m512i smg_vnni_sum(const smg_vnni_lanes *of, const smg_vnni_held *held, const __m128i *x, int32_t k,
                                   int32_t part, int32_t taps, int32_t quads, int near) {
    __m512i sum = held->start[part];
    for (int32_t quad = 0; quad < quads; quad++)
        for (int32_t t = 0; t < taps; t++)
            sum = _mm512_dpbusd_epi32(
                sum, smg_vnni_tap_columns(of, x + (quad * SMG_VNNI_PARTS + k + part) * of->part, t, near),
                quads * taps <= SMG_VNNI_FEW ? held->w[quad * taps + t][part] : of->w[quad * taps + t][k + part]);
    return sum;
}

/* The same, scaled; the compiler knows how. */
SMG_VNNI_PART __m512i smg_vnni_scaled_sum(const smg_vnni_lanes *of, const smg_vnni_held *held, const __m128i *x,
                                          int32_t k, int32_t part, int32_t taps, int32_t quads, int near, int how) {
    return smg_vnni_scaled(held->scales + part, &of->limits, smg_vnni_sum(of, held, x, k, part, taps, quads, near), how);
}

/* `parts` parts from k on of all pixels laid out: they are kept, in 16 bits where there are two, and done with the last. */
SMG_VNNI_PART void smg_vnni_slide(const smg_depthwise_s8_params *p, smg_vnni_lanes *of, int32_t pixels, int32_t k,
                                  int32_t parts, int32_t taps, int32_t quads, int near, int how, int8_t *const *y) {
    smg_vnni_held held;
    int32_t at = 0;
    for (int32_t i = 0; i < parts; i++) {
        held.start[i] = of->start[k + i];
        held.scales[i] = of->scales[k + i];
        for (int32_t t = 0; t < SMG_VNNI_FEW; t++) held.w[t][i] = of->w[t][k + i];
    }
    for (int32_t row = 0; row < of->rows; row++) {
        const __m128i *x = of->strip + row * of->columns;
        int8_t *to = y[row];
        for (int32_t n = 0; n < pixels; n += SMG_VNNI_PIXELS, x += SMG_VNNI_PIXELS, at++) {
            const __m512i some = smg_vnni_scaled_sum(of, &held, x, k, 0, taps, quads, near, how);
            const __m512i both =
                parts == 2 ? _mm512_packs_epi32(some, smg_vnni_scaled_sum(of, &held, x, k, 1, taps, quads, near, how)) : some;
            if (k + parts < SMG_VNNI_PARTS) {
                of->kept[k][at] = both;
                continue;
            }
            const __m512i all = parts == 2 ? _mm512_packs_epi16(of->kept[0][at], both)
                                           : smg_vnni_bytes_of(of->kept[0][at], of->kept[1][at], of->kept[2][at], both);
            const __m512i out = smg_vnni_within(&of->limits, all);
            if (pixels - n >= SMG_VNNI_PIXELS && of->channels == 0xffff)
                smg_vnni_put_four(out, p->y_c, to);
            else
                smg_vnni_put(out, smg_min(SMG_VNNI_PIXELS, pixels - n), p->y_c, of->channels, to);
            to += SMG_VNNI_PIXELS * p->y_c;
        }
    }
}

/* All parts, two at a time where registers hold the weights of two. */
SMG_VNNI_PART void smg_vnni_parts(const smg_depthwise_s8_params *p, smg_vnni_lanes *of, int32_t pixels, int32_t taps,
                                  int32_t quads, int near, int how, int8_t *const *y) {
    const int32_t parts = quads * taps <= SMG_VNNI_FEW ? 2 : 1;
    smg_vnni_slide(p, of, pixels, 0, parts, taps, quads, near, how, y);
    if (parts == 1) smg_vnni_slide(p, of, pixels, 1, 1, taps, quads, near, how, y);
    smg_vnni_slide(p, of, pixels, 2, parts, taps, quads, near, how, y);
    if (parts == 1) smg_vnni_slide(p, of, pixels, 3, 1, taps, quads, near, how, y);
}

#define SMG_VNNI_TILE(name, taps, quads, near, how)                                                                     \
    SMG_VNNI_LOOP smg_vnni_tile_##name(const smg_depthwise_s8_params *p, smg_vnni_lanes *of, int32_t pixels,            \
                                       int8_t *const *y) {                                                              \
        smg_vnni_parts(p, of, pixels, taps, quads, near, how, y);                                                       \
    }
SMG_VNNI_TILE(3, 3, 1, 1, SMG_VNNI_POSITIVE)
SMG_VNNI_TILE(5, 5, 2, 1, SMG_VNNI_POSITIVE)
SMG_VNNI_TILE(7, 7, 2, 1, SMG_VNNI_POSITIVE)
SMG_VNNI_TILE(3_far, 3, 1, 0, SMG_VNNI_POSITIVE)
SMG_VNNI_TILE(5_far, 5, 2, 0, SMG_VNNI_POSITIVE)
SMG_VNNI_TILE(7_far, 7, 2, 0, SMG_VNNI_POSITIVE)
SMG_VNNI_TILE(3_usual, 3, 1, 0, SMG_VNNI_USUAL)
SMG_VNNI_TILE(usual, p->k_w, of->quads, 0, SMG_VNNI_USUAL)
SMG_VNNI_TILE(any, p->k_w, of->quads, 0, SMG_VNNI_ANY)

/* The common sizes by name. */
static inline void smg_vnni_tile(const smg_depthwise_s8_params *p, smg_vnni_lanes *of, int32_t pixels,
                                 int8_t *const *y) {
    const int32_t size = (p->k_w == 3 && of->quads == 1) || ((p->k_w == 5 || p->k_w == 7) && of->quads == 2) ? p->k_w : 0;
    const int near = p->stride_w == 1 && p->dilation_w == 1, positive = of->limits.how == SMG_VNNI_POSITIVE;
    if (of->limits.how == SMG_VNNI_ANY)
        smg_vnni_tile_any(p, of, pixels, y);
    else if (size == 3)
        (!positive ? smg_vnni_tile_3_usual : near ? smg_vnni_tile_3 : smg_vnni_tile_3_far)(p, of, pixels, y);
    else if (size == 0 || !positive)
        smg_vnni_tile_usual(p, of, pixels, y);
    else if (size == 5)
        (near ? smg_vnni_tile_5 : smg_vnni_tile_5_far)(p, of, pixels, y);
    else
        (near ? smg_vnni_tile_7 : smg_vnni_tile_7_far)(p, of, pixels, y);
}

/* `pixels` pixels of so many rows from (oy, ox) on, of the block's channels, which begin at y's channel `first`. */
static inline void smg_vnni_compute(const smg_depthwise_s8_params *p, const smg_vnni_source *x, smg_vnni_lanes *of,
                                    smg_map y, int32_t first, int32_t oy, int32_t ox, int32_t pixels) {
    int8_t *to[SMG_VNNI_TILE_ROWS];
    const int32_t top = oy * p->stride_h - p->pad_h, left = ox * p->stride_w - p->pad_w;
    for (int32_t row = 0; row < of->rows; row++) {
        to[row] = smg_row(y, oy + row, p->y_w * p->y_c) + ox * p->y_c + first;
        for (int32_t quad = 0; quad < of->quads; quad++)
            smg_vnni_lay_strip(p, x, top + row * p->stride_h, left, quad, row, of);
    }
    smg_vnni_tile(p, of, pixels, to);
}

/* Rows [y0, y1) of one block of channels. */
static inline void smg_vnni_depthwise(const smg_depthwise_s8_params *p, const smg_vnni_source *x, smg_vnni_lanes *of,
                                      smg_map y, int32_t first, int32_t y0, int32_t y1) {
    for (int32_t oy = y0; oy < y1; oy += of->rows) {
        of->rows = smg_min(of->most, y1 - oy);
        for (int32_t ox = 0; ox < p->y_w; ox += of->tile)
            smg_vnni_compute(p, x, of, y, first, oy, ox, smg_min(of->tile, p->y_w - ox));
    }
}
#endif

#endif
