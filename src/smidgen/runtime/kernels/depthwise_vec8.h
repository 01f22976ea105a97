/* Depthwise convolution in vectors of eight: eight channels at once, two rows of a column in every lane.
 *
 * The input under a band of output rows is laid out once, widened, by twos of rows; what lies outside the map is the zero
 * point, whose share of a sum is taken off the bias. Windows that begin with the second row of two have weights of their
 * own, a row lower. */
#ifndef SMIDGEN_DEPTHWISE_VEC8_H
#define SMIDGEN_DEPTHWISE_VEC8_H

#include "vec8.h"
#include "window.h"

#if defined(SMG_VEC8)
/* Columns of two rows, and columns of weights of both kinds, that the stack holds; output pixels at once. */
enum { SMG_VEC8_STRIP = 1024, SMG_VEC8_TAPS = 64, SMG_VEC8_PIXELS = 4 };

/* Eight channels or fewer, and what belongs to them. */
typedef struct {
    int32_t width, twos, band; /* columns laid out, twos of rows of a window, output rows at once */
    int32_t count;
    smg_vec8_limits limits;
    smg_vec8_scale scale;
    smg_vec8 start;
    smg_vec8 w[2][SMG_VEC8_TAPS];                                /* [which row is the first][two][column] */
    smg_vec8 strip[SMG_VEC8_STRIP + SMG_VEC8_PIXELS * 16]; /* [two][column] */
} smg_vec8_block;

/* Where a block's input is: a map of c channels, of which its own begin at `first`. */
typedef struct {
    smg_map map;
    int32_t c, first;
} smg_vec8_source;

/* Twos of rows under so many output rows: the first may begin with its second row. */
static inline int32_t smg_vec8_twos(const smg_depthwise_s8_params *p, int32_t rows) {
    return ((rows - 1) * p->stride_h + p->k_h + 2) / 2;
}

/* What all blocks share; 0 where a layer is not one for this file. */
static inline int smg_vec8_begin(const smg_depthwise_s8_params *p, smg_vec8_block *of) {
    of->width = (p->y_w - 1) * p->stride_w + p->k_w;
    of->twos = (p->k_h + 2) / 2;
    of->band = 1;
    of->limits = smg_vec8_limit(p->y_zero, p->lo, p->hi);
    if (p->x_c != p->y_c || p->dilation_h != 1 || p->dilation_w != 1 || p->stride_w > 16 ||
        of->twos * p->k_w > SMG_VEC8_TAPS || smg_vec8_twos(p, 1) * of->width > SMG_VEC8_STRIP ||
        !smg_vec8_simple(p->shift, p->y_c))
        return 0;
    while (of->band < p->y_h && smg_vec8_twos(p, of->band + 1) * of->width <= SMG_VEC8_STRIP) of->band++;
    return 1;
}

/* to[pixel][lane] of `pixels` pixels that are x_c bytes apart. */
static inline void smg_vec8_copy_lanes(const int8_t *from, int32_t pixels, int32_t x_c, int8_t *to) {
    for (int32_t i = 0; i < pixels; i++, from += x_c, to += SMG_LANES)
        smg_bytes_store16(to, smg_bytes_load16(from));
}

/* Of eight channels, two numbers each. */
static inline smg_vec8 smg_vec8_two(smg_bytes a, smg_bytes b) { return smg_vec8_wide(smg_bytes_low8(a, b)); }

/* One tap's weights, trained ones over frozen ones; none above and below the window. */
static inline smg_bytes smg_vec8_tap(const smg_depthwise_s8_params *p, smg_weights w, int32_t first, int32_t count,
                                     int32_t i, int32_t j) {
    int64_t eight = 0;
    int8_t *lanes = (int8_t *)&eight;
    const int32_t t = i * p->k_w + j;
    if (i < 0 || i >= p->k_h) return smg_bytes_all(0);
    if (w.count == 0) return smg_bytes_some(w.data + t * p->y_c + first, count);
    for (int32_t n = 0; n < count; n++) lanes[n] = w.data[t * p->y_c + first + n];
    for (int32_t n = 0; n < w.count; n++)
        if (w.channel[n] >= first && w.channel[n] < first + count) lanes[w.channel[n] - first] = w.trained[t * w.count + n];
    return smg_bytes_of(eight);
}

static inline void smg_vec8_begin_block(const smg_depthwise_s8_params *p, smg_weights w, const int32_t *b, int32_t first,
                                        int32_t count, smg_vec8_block *of) {
    const smg_vec8 zeros = smg_vec8_words((int16_t)p->x_zero);
    smg_vec8 total = smg_vec8_all(0);
    of->count = count;
    of->scale = smg_vec8_scale_of(p->multiplier + first, p->shift + first, count, p->y_zero);
    for (int32_t two = 0; two < of->twos; two++)
        for (int32_t j = 0; j < p->k_w; j++) {
            const smg_bytes before = smg_vec8_tap(p, w, first, count, 2 * two - 1, j);
            const smg_bytes here = smg_vec8_tap(p, w, first, count, 2 * two, j);
            const smg_bytes after = smg_vec8_tap(p, w, first, count, 2 * two + 1, j);
            of->w[0][two * p->k_w + j] = smg_vec8_two(here, after);
            of->w[1][two * p->k_w + j] = smg_vec8_two(before, here);
            total = smg_vec8_multiply(total, of->w[0][two * p->k_w + j], zeros);
        }
    of->start = smg_vec8_sub(smg_vec8_some(b + first, count), total);
}

/* Columns of two rows from `left` on; a row that is 0 lies outside the map. */
SMG_VEC8_PART void smg_vec8_lay_two(const int8_t *a, const int8_t *b, int32_t left, int32_t x_w, int32_t c,
                                    int32_t count, smg_bytes zero, int32_t width, smg_vec8 *to) {
    for (int32_t n = 0, at = left; n < width; n++, at++) {
        const int inside = at >= 0 && at < x_w;
        to[n] = smg_vec8_two(inside && a ? smg_bytes_some(a + at * c, count) : zero,
                             inside && b ? smg_bytes_some(b + at * c, count) : zero);
    }
}

SMG_VEC8_LOOP smg_vec8_lay_whole(const int8_t *a, const int8_t *b, int32_t c, int32_t columns, smg_vec8 *to) {
    for (int32_t n = 0; n < columns; n++, a += c, b += c)
        to[n] = smg_vec8_two(smg_bytes_load8(a), smg_bytes_load8(b));
}

SMG_VEC8_LOOP smg_vec8_lay_some(const smg_depthwise_s8_params *p, const int8_t *a, const int8_t *b, int32_t left,
                                int32_t c, int32_t count, int32_t width, smg_vec8 *to) {
    smg_vec8_lay_two(a, b, left, p->x_w, c, count, smg_bytes_all((int8_t)p->x_zero), width, to);
}

/* The input under a band of output rows from oy on. */
static inline void smg_vec8_lay_band(const smg_depthwise_s8_params *p, const smg_vec8_source *x, int32_t oy,
                                     int32_t rows, smg_vec8_block *of) {
    const int32_t top = oy * p->stride_h - p->pad_h, twos = smg_vec8_twos(p, rows);
    const int32_t before = smg_min(p->pad_w, of->width), whole = smg_min(p->x_w, of->width - before);
    for (int32_t i = 0; i < twos; i++) {
        const int8_t *row[2];
        smg_vec8 *to = of->strip + i * of->width;
        for (int32_t k = 0; k < 2; k++) {
            const int32_t r = top + 2 * i + k;
            const int needed = 2 * i + k < (rows - 1) * p->stride_h + p->k_h;
            row[k] = needed && r >= 0 && r < p->x_h ? smg_row(x->map, r, p->x_w * x->c) + x->first : 0;
        }
        if (!row[0] || !row[1] || of->count < SMG_VEC8_LANES) {
            smg_vec8_lay_some(p, row[0], row[1], -p->pad_w, x->c, of->count, of->width, to);
            continue;
        }
        smg_vec8_lay_some(p, 0, 0, 0, x->c, of->count, before, to);
        smg_vec8_lay_whole(row[0], row[1], x->c, whole, to + before);
        smg_vec8_lay_some(p, 0, 0, 0, x->c, of->count, of->width - before - whole, to + before + whole);
    }
}

/* A row of output pixels, of which the compiler knows the window, whose first row is the two's first or second. */
SMG_VEC8_PART void smg_vec8_slide(const smg_depthwise_s8_params *p, const smg_vec8_block *of, const smg_vec8 *strip,
                                  const smg_vec8 *w, int32_t twos, int32_t taps, int32_t stride, int positive, int8_t *y) {
    const smg_vec8_scale scale = of->scale;
    for (int32_t ox = 0; ox < p->y_w; ox += SMG_VEC8_PIXELS, y += SMG_VEC8_PIXELS * p->y_c) {
        smg_vec8 a = of->start, b = a, c = a, d = a;
        for (int32_t i = 0; i < twos; i++) {
            const smg_vec8 *x = strip + i * of->width + ox * stride;
            for (int32_t j = 0; j < taps; j++) {
                const smg_vec8 tap = smg_vec8_held(w[i * taps + j]);
                a = smg_vec8_multiply(a, tap, x[j]);
                b = smg_vec8_multiply(b, tap, x[j + stride]);
                c = smg_vec8_multiply(c, tap, x[j + 2 * stride]);
                d = smg_vec8_multiply(d, tap, x[j + 3 * stride]);
            }
        }
        a = smg_vec8_scaled(&scale, a, positive);
        b = smg_vec8_scaled(&scale, b, positive);
        c = smg_vec8_scaled(&scale, c, positive);
        d = smg_vec8_scaled(&scale, d, positive);
        smg_vec8_store_four(y, smg_vec8_bytes(&of->limits, a, b, c, d), of->count, p->y_w - ox, p->y_c);
    }
}

#define SMG_VEC8_SLIDE(name, twos, taps, stride, positive)                                                              \
    SMG_VEC8_LOOP smg_vec8_slide_##name(const smg_depthwise_s8_params *p, const smg_vec8_block *of,                     \
                                        const smg_vec8 *strip, const smg_vec8 *w, int8_t *y) {                          \
        smg_vec8_slide(p, of, strip, w, twos, taps, stride, positive, y);                                               \
    }
SMG_VEC8_SLIDE(3, 2, 3, 1, 1)
SMG_VEC8_SLIDE(3_by_two, 2, 3, 2, 1)
SMG_VEC8_SLIDE(5, 3, 5, p->stride_w, 1)
SMG_VEC8_SLIDE(7, 4, 7, p->stride_w, 1)
SMG_VEC8_SLIDE(positive, of->twos, p->k_w, p->stride_w, 1)
SMG_VEC8_SLIDE(usual, of->twos, p->k_w, p->stride_w, 0)

/* The common sizes by name. */
static inline void smg_vec8_slide_row(const smg_depthwise_s8_params *p, const smg_vec8_block *of, const smg_vec8 *strip,
                                      const smg_vec8 *w, int8_t *y) {
    if (!of->limits.positive)
        smg_vec8_slide_usual(p, of, strip, w, y);
    else if (of->twos == 2 && p->k_w == 3 && p->stride_w <= 2)
        (p->stride_w == 1 ? smg_vec8_slide_3 : smg_vec8_slide_3_by_two)(p, of, strip, w, y);
    else if (of->twos == 3 && p->k_w == 5)
        smg_vec8_slide_5(p, of, strip, w, y);
    else if (of->twos == 4 && p->k_w == 7)
        smg_vec8_slide_7(p, of, strip, w, y);
    else
        smg_vec8_slide_positive(p, of, strip, w, y);
}

/* Rows [y0, y1) of up to sixteen channels. */
static inline void smg_vec8_depthwise(const smg_depthwise_s8_params *p, smg_vec8_source x, smg_weights w,
                                      const int32_t *b, smg_map y, int32_t first, int32_t count, int32_t y0, int32_t y1,
                                      smg_vec8_block *of) {
    for (int32_t n = 0; n < count; n += SMG_VEC8_LANES, x.first += SMG_VEC8_LANES) {
        smg_vec8_begin_block(p, w, b, first + n, smg_min(SMG_VEC8_LANES, count - n), of);
        for (int32_t oy = y0; oy < y1; oy += of->band) {
            const int32_t rows = smg_min(of->band, y1 - oy);
            smg_vec8_lay_band(p, &x, oy, rows, of);
            for (int32_t row = 0; row < rows; row++) {
                const int32_t top = row * p->stride_h;
                smg_vec8_slide_row(p, of, of->strip + top / 2 * of->width, of->w[top % 2],
                                   smg_row(y, oy + row, p->y_w * p->y_c) + first + n);
            }
        }
    }
}
#endif

#endif
