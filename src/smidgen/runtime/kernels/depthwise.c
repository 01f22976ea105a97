/* Depthwise convolution: each input channel has its own filters.
 *
 * For sixteen channels and a tile of neighbouring output columns, row after row: the strip of an input row that the
 * tile looks at is widened once, kept while it is needed where there is room, and the taps slide over it. */
#include "smidgen.h"

#include "arithmetic.h"
#include "depthwise3_vnni.h"
#include "depthwise_vec8.h"
#include "lanes.h"
#include "window.h"
#include "working.h"

/* Up to sixteen output channels, `times` of them an input channel, and working memory. */
typedef struct {
    int32_t first, count, times;
    int32_t tile, columns, kept; /* output pixels, columns of a strip, strips */
    int32_t *w;                  /* [k_h][k_w][lane], widened */
    int32_t *strips;             /* [kept][column][lane], widened, the zero point taken off */
    uint32_t *acc;               /* [pixel][lane] */
    int8_t *copy;                /* [pixel][lane] of the whole map, where the output takes the input's place */
} block;

/* Where the block's input is: a map of c channels, of which its own begin at `first`. */
typedef struct {
    smg_map map;
    int32_t c, first;
} source;

static inline block lay_out(const smg_depthwise_s8_params *p, int32_t rows, void *scratch) {
    block of = {0, 0, p->y_c / p->x_c, 1, 0, 1, scratch, 0, 0, 0};
    /* Where windows share no columns, the strip holds the taps of one pixel and nothing else. */
    if (p->dilation_w == 1 && p->stride_w <= p->k_w)
        of.tile = smg_min(rows > 1 ? SMG_DEPTHWISE_TILE : SMG_DEPTHWISE_ROW_TILE, p->y_w);
    of.columns = (of.tile - 1) * p->stride_w + p->k_w;
    if (rows > 1 && p->dilation_h == 1 && of.columns <= SMG_DEPTHWISE_KEPT / (4 * SMG_LANES) / p->k_h) of.kept = p->k_h;
    of.strips = of.w + p->k_h * p->k_w * SMG_LANES;
    of.acc = (uint32_t *)(of.strips + of.kept * of.columns * SMG_LANES);
    of.copy = (int8_t *)(of.acc + (of.tile + of.tile % 2) * SMG_LANES); /* sums become int8 by twos */
    return of;
}

static inline void widen_weights(const smg_depthwise_s8_params *p, smg_weights w, const block *of) {
    for (int32_t t = 0; t < p->k_h * p->k_w; t++) {
        int32_t *to = of->w + t * SMG_LANES;
        for (int32_t n = 0; n < SMG_LANES; n++) to[n] = n < of->count ? w.data[t * p->y_c + of->first + n] : 0;
        for (int32_t i = 0; i < w.count; i++) {
            const int32_t n = w.channel[i] - of->first;
            if (n >= 0 && n < of->count) to[n] = w.trained[t * w.count + i];
        }
    }
}

static inline void clear(int32_t *to, int32_t count) {
    for (int32_t i = 0; i < count; i++) to[i] = 0;
}

/* The block's channels of `columns` input pixels that lie `step` apart, the zero point taken off. */
static inline void widen_columns(const int8_t *x, int32_t first, int32_t step, int32_t columns, int32_t zero,
                                 const block *of, int32_t *to) {
    if (of->times == 1 && of->count == SMG_LANES) {
        smg_lanes_widen_columns(x + first, step, columns, zero, to);
        return;
    }
    clear(to, columns * SMG_LANES);
    for (int32_t q = 0; q < columns; q++, x += step, to += SMG_LANES)
        if (of->times == 1)
            for (int32_t n = 0; n < of->count; n++) to[n] = x[first + n] - zero;
        else
            for (int32_t n = 0; n < of->count; n++) to[n] = x[(first + n) / of->times] - zero;
}

/* The columns of one input row under a tile that begins at output column ox; zeros outside the map. */
static inline void widen_strip(const smg_depthwise_s8_params *p, const source *x, int32_t r, int32_t ox,
                               const block *of, int32_t *strip) {
    const int32_t left = ox * p->stride_w - p->pad_w;
    const smg_taps inside = smg_taps_inside(left, of->columns, p->dilation_w, p->x_w);
    const int8_t *from = smg_row(x->map, r, p->x_w * x->c) + (left + inside.from * p->dilation_w) * x->c;
    clear(strip, inside.from * SMG_LANES);
    widen_columns(from, x->first, p->dilation_w * x->c, inside.to - inside.from, p->x_zero, of,
                  strip + inside.from * SMG_LANES);
    clear(strip + inside.to * SMG_LANES, (of->columns - inside.to) * SMG_LANES);
}

/* Add up `pixels` output pixels of row oy from column ox on. Input rows before `held` are in their strips already;
 * gives the first that is not. */
static inline int32_t accumulate(const smg_depthwise_s8_params *p, const source *x, const block *of, int32_t oy,
                                 int32_t ox, int32_t pixels, int32_t held) {
    const int32_t top = oy * p->stride_h - p->pad_h;
    const smg_taps rows = smg_taps_inside(top, p->k_h, p->dilation_h, p->x_h);
    for (int32_t i = rows.from; i < rows.to; i++) {
        const int32_t r = top + i * p->dilation_h;
        int32_t *strip = of->strips + r % of->kept * of->columns * SMG_LANES;
        if (r >= held || of->kept == 1) {
            widen_strip(p, x, r, ox, of, strip);
            held = r + 1;
        }
        smg_lanes_slide(of->acc, pixels, strip, p->stride_w, of->w + i * p->k_w * SMG_LANES, p->k_w);
    }
    return held;
}

/* The block's input: in the map, or, where the output is about to take its place, in a copy. */
static inline source find(const smg_depthwise_s8_params *p, smg_map x, smg_map y, const block *of) {
    const source there = {x, p->x_c, of->first}, copied = {{of->copy, p->x_h}, SMG_LANES, 0};
    if (x.data != y.data) return there;
    const int8_t *from = x.data + of->first;
    int8_t *to = of->copy;
#if defined(SMG_VNNI)
    smg_vnni_copy_lanes(from, p->x_h * p->x_w, p->x_c, of->count, to);
    return copied;
#elif defined(SMG_VEC8)
    if (of->count == SMG_LANES) {
        smg_vec8_copy_lanes(from, p->x_h * p->x_w, p->x_c, to);
        return copied;
    }
#endif
    for (int32_t i = 0; i < p->x_h * p->x_w; i++, from += p->x_c, to += SMG_LANES)
        if (of->count == SMG_LANES)
            for (int32_t n = 0; n < SMG_LANES; n++) to[n] = from[n];
        else
            for (int32_t n = 0; n < of->count; n++) to[n] = from[n];
    return copied;
}

#if defined(SMG_VNNI)
/* The whole kernel; 0 where windows are too large for it. */
static inline int in_sixteens(const smg_depthwise_s8_params *p, smg_map x, smg_weights w, const int32_t *b, smg_map y,
                              int32_t y0, int32_t y1, block of) {
    smg_vnni_lanes lanes;
    if (!smg_vnni_fits(p)) return 0;
    lanes.limits = smg_vnni_limit(p->shift, p->y_c, p->y_zero, p->lo, p->hi);
    smg_vnni_begin(p, y1 - y0, &lanes);
    for (; of.first < p->y_c; of.first += SMG_LANES) {
        of.count = smg_min(SMG_LANES, p->y_c - of.first);
        const source from = find(p, x, y, &of);
        const smg_vnni_source there = {from.map, from.c, from.first, p->x_w, 1, 1};
        smg_vnni_begin_block(p, w, b, of.first, of.count, &lanes);
        if (smg_vnni_is_three(p, &lanes.limits))
            smg_vnni_depthwise_three(p, &there, &lanes, y, of.first, y0, y1);
        else
            smg_vnni_depthwise(p, &there, &lanes, y, of.first, y0, y1);
    }
    return 1;
}
#endif

#if defined(SMG_VEC8)
/* The same, in eights. */
static inline int in_eights(const smg_depthwise_s8_params *p, smg_map x, smg_weights w, const int32_t *b, smg_map y,
                            int32_t y0, int32_t y1, block of) {
    smg_vec8_block eight;
    if (!smg_vec8_begin(p, &eight)) return 0;
    for (; of.first < p->y_c; of.first += SMG_LANES) {
        of.count = smg_min(SMG_LANES, p->y_c - of.first);
        const source in_place = {x, p->x_c, of.first}; /* all of it is laid out before any output is */
        const source from = y1 - y0 <= eight.band ? in_place : find(p, x, y, &of);
        const smg_vec8_source there = {from.map, from.c, from.first};
        smg_vec8_depthwise(p, there, w, b, y, of.first, of.count, y0, y1, &eight);
    }
    return 1;
}
#endif

void smg_depthwise_s8(const smg_depthwise_s8_params *p, const smg_map *x, const smg_weights *w, const int32_t *b,
                      const smg_map *y, int32_t y0, int32_t y1, void *scratch) {
    block of = lay_out(p, y1 - y0, scratch);
    smg_requantizer q;
    q.zero = p->y_zero;
    q.lo = p->lo;
    q.hi = p->hi;
#if defined(SMG_VNNI)
    if (in_sixteens(p, *x, *w, b, *y, y0, y1, of)) return;
#elif defined(SMG_VEC8)
    if (in_eights(p, *x, *w, b, *y, y0, y1, of)) return;
#endif
    for (; of.first < p->y_c; of.first += SMG_LANES) {
        of.count = smg_min(SMG_LANES, p->y_c - of.first);
        const source from = find(p, *x, *y, &of);
        smg_lanes_scales(&q, b + of.first, p->multiplier + of.first, p->shift + of.first, of.count);
        widen_weights(p, *w, &of);
        for (int32_t ox = 0; ox < p->y_w; ox += of.tile) {
            const int32_t pixels = smg_min(of.tile, p->y_w - ox);
            for (int32_t oy = y0, held = 0; oy < y1; oy++) {
                int8_t *to = smg_row(*y, oy, p->y_w * p->y_c) + ox * p->y_c + of.first;
                smg_lanes_start(&q, of.acc, pixels);
                held = accumulate(p, &from, &of, oy, ox, pixels, held);
                smg_lanes_requantize(&q, of.acc, pixels, of.count, to, p->y_c);
            }
        }
    }
}
