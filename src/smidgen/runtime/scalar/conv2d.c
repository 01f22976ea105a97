/* 2-D convolution: windows of four pixels, widened to words, against filter after filter.
 *
 * Windows of as many tiles as working memory holds are laid out and multiplied with every filter. Windows too long for
 * that are taken in pieces, and the sums of some channels are kept between them. */
#include "smidgen.h"

#include "arithmetic.h"
#include "tiles.h"
#include "window.h"
#include "working_scalar.h"

/* A layer, what one call computes of it, and its working memory. */
typedef struct {
    const smg_conv2d_s8_params *p;
    smg_map x, y;
    smg_weights w;
    const int32_t *b;
    int32_t in, out, k;           /* channels of a group, elements of a window */
    int32_t length, tiles, block; /* elements held at once, of so many tiles; channels whose sums are kept */
    int32_t *windows;             /* [tile][element][pixel] */
    smg_filter_element *filters;  /* [filter][element] */
    uint32_t *sums;               /* [filter][tile][pixel] */
} layer;

/* An output pixel. */
typedef struct {
    int32_t y, x;
} place;

static inline void next(place *at, int32_t width) {
    if (++at->x < width) return;
    at->x = 0;
    at->y++;
}

static inline layer lay_out(const smg_conv2d_s8_params *p, int32_t rows, void *scratch) {
    const int32_t in = p->x_c / p->groups, out = p->y_c / p->groups, k = p->k_h * p->k_w * in;
    const int32_t whole = (k + 3) & ~3, little = SMG_WINDOW_ROW_ROOM + SMG_WINDOW_ROW_DEEPER * k;
    const int32_t fit = (rows == 1 ? smg_min(little, SMG_WINDOW_ROOM) : SMG_WINDOW_ROOM) / (4 * SMG_TILE * whole);
    layer of = {p, {0, 0}, {0, 0}, {0, 0, 0, 0}, 0, in, out, k, whole, 1, SMG_CHANNELS, 0, 0, 0};
    if (fit) {
        of.tiles = smg_min(fit, (rows * p->y_w + SMG_TILE - 1) / SMG_TILE);
    } else {
        const int32_t most = SMG_WINDOW_ROOM / (4 * SMG_TILE), pieces = (k + most - 1) / most;
        of.length = ((k + pieces - 1) / pieces + 3) & ~3;
        of.block = SMG_KEPT_CHANNELS;
    }
    of.windows = scratch;
    of.filters = (smg_filter_element *)(of.windows + of.tiles * of.length * SMG_TILE);
    of.sums = (uint32_t *)(of.windows + of.tiles * of.length * SMG_TILE + of.length);
    return of;
}

static inline void clear(int32_t *to, int32_t count) {
    for (int32_t i = 0; i < count; i++) to[SMG_TILE * i] = 0;
}

/* Lay out elements [start, start + length) of the windows of one pixel, zeros outside the map. */
static void gather(const layer *of, place at, int32_t c, int32_t start, int32_t *to) {
    const smg_conv2d_s8_params *p = of->p;
    const int32_t taps = of->in == p->x_c && p->dilation_w == 1 ? p->k_w : 1, end = smg_min(of->length, of->k - start);
    const int32_t top = at.y * p->stride_h - p->pad_h, left = at.x * p->stride_w - p->pad_w;
    int32_t first = -start; /* where a run of taps begins */
    for (int32_t i = 0; i < p->k_h; i++) {
        const int32_t r = top + i * p->dilation_h, there = r >= 0 && r < p->x_h;
        for (int32_t j = 0; j < p->k_w; j += taps, first += taps * of->in) {
            if (first + taps * of->in <= 0 || first >= end) continue;
            const int32_t q = left + j * p->dilation_w;
            const smg_taps inside = smg_taps_inside(q, there ? taps : 0, 1, p->x_w);
            const int32_t all = smg_max(first, 0), last = smg_min(first + taps * of->in, end);
            const int32_t from = smg_min(smg_max(first + inside.from * of->in, 0), last);
            const int32_t behind = smg_max(smg_min(first + inside.to * of->in, end), from);
            clear(to + SMG_TILE * all, from - all);
            if (behind > from)
                smg_spread(smg_row(of->x, r, p->x_w * p->x_c) + q * p->x_c + c + from - first, behind - from, p->x_zero,
                           to + SMG_TILE * from);
            clear(to + SMG_TILE * behind, last - behind);
        }
    }
}

/* The same of `pixels` pixels from `at` on; those past the last are as the first of their tile. */
static void gather_tiles(const layer *of, place at, int32_t pixels, int32_t c, int32_t start) {
    for (int32_t n = 0; n < pixels; n++, next(&at, of->p->y_w))
        gather(of, at, c, start, of->windows + n / SMG_TILE * of->length * SMG_TILE + n % SMG_TILE);
}

/* Lay out elements [start, start + length) of one filter, trained channels over the frozen ones, zeros behind. */
static void widen(const layer *of, int32_t n, int32_t start, smg_filter_element *to) {
    const int32_t taps = of->p->k_h * of->p->k_w, end = smg_min(of->length, of->k - start);
    const int8_t *w = of->w.data + n * of->k + start, *trained = of->w.trained + n * taps * of->w.count;
    for (int32_t i = 0; i < end; i++) to[i] = w[i];
    for (int32_t i = end; i < of->length; i++) to[i] = 0;
    for (int32_t i = 0; i < of->w.count; i++) {
        for (int32_t t = 0, at = of->w.channel[i] - start; t < taps && at < end; t++, at += of->in)
            if (at >= 0) to[at] = trained[t * of->w.count + i];
    }
}

/* Sums of one channel become int8. */
static void scale(const layer *of, int32_t n, place at, int32_t pixels, const uint32_t *sums) {
    const smg_conv2d_s8_params *p = of->p;
    const int32_t multiplier = p->multiplier[n], left = smg_max(p->shift[n], 0), right = smg_max(-p->shift[n], 0);
    while (pixels) {
        const int32_t run = smg_min(pixels, p->y_w - at.x);
        int8_t *to = smg_row(of->y, at.y, p->y_w * p->y_c) + at.x * p->y_c + n;
        for (int32_t i = 0; i < run; i++, to += p->y_c) {
            const int32_t scaled = smg_high_mul(smg_shift_left((int32_t)sums[i], left), multiplier);
            *to = smg_to_int8(smg_shift_right(scaled, right), p->y_zero, p->lo, p->hi);
        }
        at.y++;
        at.x = 0;
        pixels -= run;
        sums += run;
    }
}

/* `pixels` pixels of channels [n, n + count), whose windows are laid out where they are held whole. */
static void filter(const layer *of, place at, int32_t pixels, int32_t n, int32_t count, int32_t c) {
    const int32_t apart = of->tiles * SMG_TILE, tiles = (pixels + SMG_TILE - 1) / SMG_TILE;
    for (int32_t f = 0; f < count; f++)
        for (int32_t i = 0; i < tiles * SMG_TILE; i++) of->sums[f * apart + i] = (uint32_t)of->b[n + f];
    for (int32_t start = 0; start < of->k; start += of->length) {
        if (of->length < of->k) gather_tiles(of, at, pixels, c, start);
        for (int32_t f = 0; f < count; f += SMG_FILTERS) {
            for (int32_t i = 0; i < SMG_FILTERS; i++)
                widen(of, n + smg_min(f + i, count - 1), start, of->filters + i * of->length);
            smg_multiply_tiles(of->sums + f * apart, apart, of->windows, of->filters, of->length, tiles);
        }
    }
    for (int32_t f = 0; f < count; f++) scale(of, n + f, at, pixels, of->sums + f * apart);
}

void smg_conv2d_s8(const smg_conv2d_s8_params *p, const smg_map *x, const smg_weights *w, const int32_t *b,
                   const smg_map *y, int32_t y0, int32_t y1, void *scratch) {
    layer of = lay_out(p, y1 - y0, scratch);
    of.x = *x;
    of.y = *y;
    of.w = *w;
    of.b = b;
    place at = {y0, 0};
    for (int32_t left = (y1 - y0) * p->y_w, pixels; left > 0; left -= pixels) {
        pixels = smg_min(left, of.tiles * SMG_TILE);
        for (int32_t g = 0; g < p->groups; g++) {
            if (of.length >= of.k) gather_tiles(&of, at, pixels, g * of.in, 0);
            for (int32_t n = g * of.out; n < (g + 1) * of.out; n += of.block)
                filter(&of, at, pixels, n, smg_min(of.block, (g + 1) * of.out - n), g * of.in);
        }
        for (int32_t i = 0; i < pixels; i++) next(&at, p->y_w);
    }
}
