/* What depthwise kernels lay out in the words of AVX-512 with VNNI: the weights of sixteen channels, and strips of maps.
 *
 * A strip holds the columns under a tile of output pixels, in four parts of four channels: of each column and channel
 * four rows' bytes beside each other. Kernels of more than four rows take as many such quads. Where pixels are some
 * columns apart, columns that neighbours look at lie beside each other, so that any four follow in memory. */
#ifndef SMIDGEN_STRIPS_VNNI_H
#define SMIDGEN_STRIPS_VNNI_H

#include "smidgen.h"

#include "vnni.h"
#include "window.h"

#if defined(SMG_VNNI)
/* Output pixels at once, columns in all parts of a strip, and columns of weights, that the stack holds. */
enum { SMG_VNNI_PIXELS = 4, SMG_VNNI_STRIP = 1024, SMG_VNNI_TAPS = 64 };

/* Columns of weights that registers hold, and output rows of a tile. */
enum { SMG_VNNI_FEW = 3, SMG_VNNI_TILE_ROWS = 8 };

/* Sixteen channels or fewer, and what belongs to them. */
typedef struct {
    int32_t quads, tile, rows, columns; /* output pixels and rows of a tile; columns under one of its rows */
    int32_t most;                       /* rows of a tile at most */
    int32_t phase, part;                /* columns under all of them: of one phase of the stride, of one part */
    int32_t at[SMG_VNNI_TAPS];          /* where in a strip each tap of a row begins */
    __mmask16 channels;
    smg_vnni_limits limits;
    __m512i start[SMG_VNNI_PARTS];
    smg_vnni_scale scales[SMG_VNNI_PARTS];
    __m512i w[SMG_VNNI_TAPS][SMG_VNNI_PARTS]; /* [quad][column] */
    __m128i strip[SMG_VNNI_STRIP + 8];        /* [quad][part][phase][row][column] */
    __m512i kept[SMG_VNNI_PARTS][SMG_VNNI_STRIP / SMG_VNNI_PARTS / SMG_VNNI_PIXELS]; /* parts that are summed up */
} smg_vnni_lanes;

/* A map of c channels, of which the block's begin at `first`, and rows of `width` columns. A gradient is as if zeros lay
 * between its rows and columns: it holds those whose numbers are multiples of these. */
typedef struct {
    smg_map map;
    int32_t c, first, width;
    int32_t every_row, every_column;
} smg_vnni_source;

/* Where a row or column is held of which every n-th is; -1: nowhere. The division only where there is one. */
static inline int32_t smg_vnni_held_at(int32_t at, int32_t every) {
    return every == 1 ? at : at % every == 0 ? at / every : -1;
}

/* to[pixel][lane] of `pixels` pixels that are x_c bytes apart. */
static inline void smg_vnni_copy_lanes(const int8_t *from, int32_t pixels, int32_t x_c, int32_t count, int8_t *to) {
    const __mmask16 channels = smg_vnni_first(count);
    for (int32_t i = 0; i < pixels; i++, from += x_c, to += SMG_LANES)
        _mm_storeu_si128((__m128i *)to, _mm_maskz_loadu_epi8(channels, from));
}

/* The next multiple of the pixels that are computed at once. */
static inline int32_t smg_vnni_fours(int32_t count) {
    return (count + SMG_VNNI_PIXELS - 1) / SMG_VNNI_PIXELS * SMG_VNNI_PIXELS;
}

/* Columns of each phase under so many output pixels. */
static inline int32_t smg_vnni_columns(const smg_depthwise_s8_params *p, int32_t pixels) {
    return smg_vnni_fours(smg_vnni_fours(pixels) + (p->k_w - 1) * p->dilation_w / p->stride_w);
}

/* Output rows of a tile of so many pixels a row for which there is room; 0 where there is none. */
static inline int32_t smg_vnni_rows(const smg_depthwise_s8_params *p, int32_t pixels) {
    const int32_t columns = p->stride_w * smg_vnni_columns(p, pixels), quads = (p->k_h + 3) / 4;
    return smg_min(SMG_VNNI_STRIP / (quads * SMG_VNNI_PARTS * columns), SMG_VNNI_TILE_ROWS);
}

/* Output pixels of a tile's row: all, or as many as there is room for. */
static inline int32_t smg_vnni_tile_pixels(const smg_depthwise_s8_params *p) {
    int32_t pixels = smg_vnni_fours(p->y_w);
    while (pixels > SMG_VNNI_PIXELS && smg_vnni_rows(p, pixels) == 0) pixels = smg_vnni_fours(pixels / 2);
    return smg_min(pixels, p->y_w);
}

/* Whether a kernel of this size is taken at all. */
static inline int smg_vnni_fits(const smg_depthwise_s8_params *p) {
    return p->x_c == p->y_c && (p->k_h + 3) / 4 * p->k_w <= SMG_VNNI_TAPS && p->stride_w <= SMG_VNNI_STRIP / 8 &&
           smg_vnni_rows(p, smg_vnni_tile_pixels(p)) > 0;
}

/* One tap's weights of the block's channels in every quarter, trained ones over frozen ones. */
static inline __m512i smg_vnni_tap(const smg_depthwise_s8_params *p, smg_weights w, int32_t first, __mmask16 channels,
                                   int32_t from, int32_t to, int32_t t) {
    const __m128i frozen = _mm_maskz_loadu_epi8(channels, w.data + t * p->y_c + first);
    int8_t lanes[SMG_LANES];
    if (from == to) return _mm512_broadcast_i32x4(frozen);
    _mm_storeu_si128((__m128i *)lanes, frozen);
    for (int32_t i = from; i < to; i++) lanes[w.channel[i] - first] = w.trained[t * w.count + i];
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)lanes));
}

/* A gradient's weights are turned around. */
static inline void smg_vnni_lay_weights(const smg_depthwise_s8_params *p, smg_weights w, int32_t first, int32_t count,
                                        int turned, smg_vnni_lanes *of) {
    int32_t from = 0, to;
    while (from < w.count && w.channel[from] < first) from++;
    for (to = from; to < w.count && w.channel[to] < first + count;) to++;
    for (int32_t quad = 0; quad < of->quads; quad++)
        for (int32_t j = 0; j < p->k_w; j++) {
            __m512i rows[4];
            for (int32_t i = 0; i < 4; i++) {
                const int32_t t = (quad * 4 + i) * p->k_w + j, tap = turned ? p->k_h * p->k_w - 1 - t : t;
                rows[i] = quad * 4 + i < p->k_h ? smg_vnni_tap(p, w, first, of->channels, from, to, tap)
                                                : _mm512_setzero_si512();
            }
            smg_vnni_interleave(rows, of->w[quad * p->k_w + j]);
        }
}

/* What all blocks of channels share, to compute so many rows. */
static inline void smg_vnni_begin(const smg_depthwise_s8_params *p, int32_t rows, smg_vnni_lanes *of) {
    of->quads = (p->k_h + 3) / 4;
    of->tile = smg_vnni_tile_pixels(p);
    of->columns = smg_vnni_columns(p, of->tile);
    of->most = smg_min(smg_vnni_rows(p, of->tile), rows);
    /* Parts whose addresses differ by almost a page, 256 columns, stand in each other's way. */
    while (of->most > 1 && (p->stride_w * of->most * of->columns + 32) % 256 < 64) of->most--;
    of->phase = of->most * of->columns;
    of->part = p->stride_w * of->phase;
    for (int32_t t = 0; t < p->k_w; t++)
        of->at[t] = t * p->dilation_w % p->stride_w * of->phase + t * p->dilation_w / p->stride_w;
}

/* Lay out the weights of a block; sums begin with what raised inputs add to them, taken off. */
static inline void smg_vnni_begin_sums(const smg_depthwise_s8_params *p, smg_weights w, int32_t first, int32_t count,
                                       int turned, smg_vnni_lanes *of) {
    const __m512i ones = _mm512_set1_epi8(1), raised = _mm512_set1_epi32(-(128 + p->x_zero));
    of->channels = smg_vnni_first(count);
    smg_vnni_lay_weights(p, w, first, count, turned, of);
    for (int32_t k = 0; k < SMG_VNNI_PARTS; k++) {
        __m512i total = _mm512_setzero_si512();
        for (int32_t t = 0; t < of->quads * p->k_w; t++) total = _mm512_dpbusd_epi32(total, ones, of->w[t][k]);
        of->start[k] = _mm512_mullo_epi32(total, raised);
    }
}

/* Four numbers from `from` on, of channels that are there, in every quarter. */
static inline __m512i smg_vnni_four_words(const int32_t *from, __mmask16 channels, int32_t k) {
    return _mm512_broadcast_i32x4(_mm_maskz_loadu_epi32((__mmask8)(channels >> 4 * k & 15), from + 4 * k));
}

/* The same, then biases and scales. */
static inline void smg_vnni_begin_block(const smg_depthwise_s8_params *p, smg_weights w, const int32_t *b,
                                        int32_t first, int32_t count, smg_vnni_lanes *of) {
    smg_vnni_begin_sums(p, w, first, count, 0, of);
    for (int32_t k = 0; k < SMG_VNNI_PARTS; k++) {
        const __mmask8 some = (__mmask8)(of->channels >> 4 * k & 15);
        const __m128i shift = _mm_cvtepi8_epi32(_mm_maskz_loadu_epi8(some, p->shift + first + 4 * k));
        of->scales[k] = smg_vnni_scale_of(smg_vnni_four_words(p->multiplier + first, of->channels, k),
                                          _mm512_broadcast_i32x4(shift), p->y_zero);
        of->start[k] = _mm512_add_epi32(of->start[k], smg_vnni_four_words(b + first, of->channels, k));
    }
}

/* The block's channels of four columns `step` bytes apart, or together, raised. */
SMG_VNNI_PART __m512i smg_vnni_four(const int8_t *from, int32_t step, int together) {
    __m512i x;
    if (together) return _mm512_xor_si512(smg_vnni_raise(), _mm512_loadu_si512(from));
    x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)from));
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(from + step)), 1);
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(from + 2 * step)), 2);
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(from + 3 * step)), 3);
    return _mm512_xor_si512(smg_vnni_raise(), x);
}

/* Fours of columns, interleaved, that are inside the map: at `at` in each of `live` rows. */
SMG_VNNI_PART void smg_vnni_lay_inside(const int8_t *const *rows, int32_t live, int32_t at, int32_t step, int together,
                                       int32_t fours, __m128i *strip, int32_t width) {
    for (int32_t n = 0; n < fours; n++, at += 4 * step, strip += SMG_VNNI_PIXELS) {
        const __m512i none = _mm512_setzero_si512();
        __m512i four[4], parts[SMG_VNNI_PARTS];
        for (int32_t i = 0; i < 4; i++) four[i] = i < live ? smg_vnni_four(rows[i] + at, step, together) : none;
        smg_vnni_interleave(four, parts);
        for (int32_t k = 0; k < SMG_VNNI_PARTS; k++) _mm512_storeu_si512(strip + k * width, parts[k]);
    }
}

SMG_VNNI_LOOP smg_vnni_lay_fours(const int8_t *const *rows, int32_t live, int32_t at, int32_t step, int together,
                                 int32_t fours, __m128i *strip, int32_t width) {
    if (live == 3 && together)
        smg_vnni_lay_inside(rows, 3, at, SMG_LANES, 1, fours, strip, width);
    else if (live == 3)
        smg_vnni_lay_inside(rows, 3, at, step, 0, fours, strip, width);
    else if (live == 4)
        smg_vnni_lay_inside(rows, 4, at, step, together, fours, strip, width);
    else
        smg_vnni_lay_inside(rows, live, at, step, together, fours, strip, width);
}

/* Four columns of four rows of which some lie outside the map, and hold the zero point there. */
static inline void smg_vnni_lay_edge(const smg_depthwise_s8_params *p, const smg_vnni_source *x, int32_t column,
                                     const int8_t *const *rows, __mmask16 channels, __m128i *strip, int32_t width) {
    const __m128i zero = _mm_set1_epi8((int8_t)p->x_zero);
    __mmask16 some[4];
    int32_t at[4];
    __m512i four[4], parts[SMG_VNNI_PARTS];
    for (int32_t q = 0; q < 4; q++, column += p->stride_w) {
        const int32_t held = column >= 0 && column < p->x_w ? smg_vnni_held_at(column, x->every_column) : -1;
        at[q] = held >= 0 ? held * x->c : 0;
        some[q] = held >= 0 ? channels : 0;
    }
    for (int32_t i = 0; i < 4; i++) {
        four[i] = _mm512_broadcast_i32x4(zero);
        if (rows[i]) {
            four[i] = _mm512_castsi128_si512(_mm_mask_loadu_epi8(zero, some[0], rows[i] + at[0]));
            four[i] = _mm512_inserti32x4(four[i], _mm_mask_loadu_epi8(zero, some[1], rows[i] + at[1]), 1);
            four[i] = _mm512_inserti32x4(four[i], _mm_mask_loadu_epi8(zero, some[2], rows[i] + at[2]), 2);
            four[i] = _mm512_inserti32x4(four[i], _mm_mask_loadu_epi8(zero, some[3], rows[i] + at[3]), 3);
        }
        four[i] = _mm512_xor_si512(smg_vnni_raise(), four[i]);
    }
    smg_vnni_interleave(four, parts);
    for (int32_t k = 0; k < SMG_VNNI_PARTS; k++) _mm512_storeu_si512(strip + k * width, parts[k]);
}

/* One quad of the columns under a row of a tile, whose first is `left`, of the input rows from `top` on. */
SMG_VNNI_LOOP smg_vnni_lay_strip(const smg_depthwise_s8_params *p, const smg_vnni_source *x, int32_t top, int32_t left,
                                 int32_t quad, int32_t row, smg_vnni_lanes *of) {
    const int32_t step = p->stride_w * x->c, live = smg_min(4, p->k_h - quad * 4);
    const int8_t *rows[4];
    int whole = (of->channels == 0xffff || x->c == SMG_LANES) && x->every_column == 1;
    for (int32_t i = 0; i < 4; i++) {
        const int32_t r = top + (quad * 4 + i) * p->dilation_h;
        const int32_t at = i < live && r >= 0 && r < p->x_h ? smg_vnni_held_at(r, x->every_row) : -1;
        rows[i] = at >= 0 ? smg_row(x->map, at, x->width * x->c) + x->first : 0;
        whole &= i >= live || rows[i] != 0;
    }
    for (int32_t phase = 0; phase < p->stride_w; phase++) {
        __m128i *strip = of->strip + quad * SMG_VNNI_PARTS * of->part + phase * of->phase + row * of->columns;
        for (int32_t n = 0, fours; n < of->columns; n += 4 * fours, strip += 4 * fours) {
            const int32_t column = left + phase + n * p->stride_w, room = p->x_w - 1 - column - 3 * p->stride_w;
            fours = whole && column >= 0 && room >= 0 ? smg_min(1 + room / (4 * p->stride_w), (of->columns - n) / 4) : 0;
            if (fours) {
                smg_vnni_lay_fours(rows, live, column * x->c, step, step == SMG_LANES && x->c == SMG_LANES, fours,
                                   strip, of->part);
                continue;
            }
            smg_vnni_lay_edge(p, x, column, rows, of->channels, strip, of->part);
            fours = 1;
        }
    }
}
#endif

#endif
