/* 2-D convolution: windows of four pixels, widened to words, against filter after filter.
 *
 * Windows of as many tiles as working memory holds are laid out and multiplied with every filter. Windows too long for
 * that are taken in pieces, and the sums of some channels are kept between them. */
#include "smidgen.h"

#include "arithmetic.h"
#include "copying.h"
#include "filters.h"
#include "scaling.h"
#include "strips.h"
#include "tiles.h"
#include "window.h"
#include "working_scalar.h"

/* A layer, what one call computes of it, and its working memory. */
typedef struct {
    const smg_conv2d_s8_params *p;
    smg_map x, y;
    int8_t *to; /* the first row computed, number `first` */
    int32_t first;
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

static inline layer lay_out(const smg_conv2d_s8_params *p, int32_t rows, void *scratch) {
    const int32_t one = p->groups == 1, in = one ? p->x_c : p->x_c / p->groups, k = p->k_h * p->k_w * in;
    const int32_t out = one ? p->y_c : p->y_c / p->groups;
    const int32_t whole = (k + 3) & ~3, little = SMG_WINDOW_ROW_ROOM + SMG_WINDOW_ROW_DEEPER * k;
    const int32_t fit = (rows == 1 ? smg_min(little, SMG_WINDOW_ROOM) : SMG_WINDOW_ROOM) / (4 * SMG_TILE * whole);
    layer of = {p, {0, 0}, {0, 0}, 0, 0, {0, 0, 0, 0}, 0, in, out, k, whole, 1, SMG_CHANNELS, 0, 0, 0};
    of.tiles = (rows * p->y_w + SMG_TILE - 1) / SMG_TILE;
    if (fit >= smg_min(2, of.tiles)) {
        of.tiles = smg_min(fit, of.tiles);
    } else {
        of.tiles = smg_min(SMG_PIECE_TILES, of.tiles);
        const int32_t most = SMG_PIECE_ROOM / (4 * SMG_TILE) / of.tiles, pieces = (k + most - 1) / most;
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

/* Neighbouring taps of windows: elements [first, first + length) of a piece, those of input row r from column q on. */
typedef struct {
    const int8_t *row; /* 0: outside the map */
    int32_t first, length, taps;
} run;

/* One pixel's, cut off at the borders of the map, where zeros are, and of the piece. */
static void gather_border(const layer *of, const run *part, int32_t q, int32_t end, int32_t *to) {
    const smg_taps inside = smg_taps_inside(q, part->row ? part->taps : 0, 1, of->p->x_w);
    const int32_t start = smg_max(part->first, 0), last = smg_min(part->first + part->length, end);
    const int32_t from = smg_min(smg_max(part->first + inside.from * of->in, 0), last);
    const int32_t behind = smg_max(smg_min(part->first + inside.to * of->in, end), from);
    clear(to + SMG_TILE * start, from - start);
    if (behind > from)
        smg_spread(part->row + q * of->p->x_c + from - part->first, behind - from, of->p->x_zero, to + SMG_TILE * from);
    clear(to + SMG_TILE * behind, last - behind);
}

/* Those of `pixels` pixels of one row, from pixel n of the tiles on; four at once where all are inside. */
static void gather_run(const layer *of, const run *part, int32_t q, int32_t n, int32_t pixels, int32_t end) {
    const smg_conv2d_s8_params *p = of->p;
    const int32_t last = p->x_w - part->taps, apart = of->length * SMG_TILE, step = p->stride_w * p->x_c;
    const int32_t whole = part->row && part->first >= 0 && part->first + part->length <= end;
    int32_t *to = of->windows + n / SMG_TILE * apart + n % SMG_TILE;
    for (int32_t done = 0, some; done < pixels; done += some, q += some * p->stride_w) {
        some = 1;
        if (!whole || q < 0 || q > last) {
            gather_border(of, part, q, end, to);
        } else if ((n + done) % SMG_TILE == 0 && pixels - done >= SMG_TILE && q + 3 * p->stride_w <= last) {
            smg_spread_four(part->row + q * p->x_c, step, part->length, p->x_zero, to + SMG_TILE * part->first);
            some = SMG_TILE;
        } else {
            smg_spread(part->row + q * p->x_c, part->length, p->x_zero, to + SMG_TILE * part->first);
        }
        to += some == SMG_TILE ? apart : (n + done) % SMG_TILE == SMG_TILE - 1 ? apart - SMG_TILE + 1 : 1;
    }
}

/* Lay out elements [start, start + length) of the windows of `pixels` pixels from `at` on, zeros outside the map. */
static void gather(const layer *of, place at, int32_t pixels, int32_t c, int32_t start) {
    const smg_conv2d_s8_params *p = of->p;
    const int32_t taps = of->in == p->x_c && p->dilation_w == 1 ? p->k_w : 1, end = smg_min(of->length, of->k - start);
    for (int32_t n = 0, some; n < pixels; n += some, at.y++, at.x = 0) {
        run part = {0, -start, taps * of->in, taps};
        some = smg_min(pixels - n, p->y_w - at.x);
        for (int32_t i = 0; i < p->k_h; i++) {
            const int32_t r = at.y * p->stride_h - p->pad_h + i * p->dilation_h, there = r >= 0 && r < p->x_h;
            part.row = there ? smg_row(of->x, r, p->x_w * p->x_c) + c : 0;
            for (int32_t j = 0; j < p->k_w; j += taps, part.first += part.length)
                if (part.first + part.length > 0 && part.first < end)
                    gather_run(of, &part, at.x * p->stride_w - p->pad_w + j * p->dilation_w, n, some, end);
        }
    }
}

/* Lay out elements [start, start + length) of one filter, trained channels over the frozen ones, zeros behind. */
static void widen(const layer *of, int32_t n, int32_t start, smg_filter_element *to) {
    const int32_t taps = of->p->k_h * of->p->k_w, end = smg_min(of->length, of->k - start);
    const int8_t *w = of->w.data + n * of->k + start, *trained = of->w.trained + n * taps * of->w.count;
#if defined(__thumb__)
    const int32_t words = (uintptr_t)w % 4 ? 0 : end & ~3;
    if (words) smg_widen_thumb(to, w, words);
    for (int32_t i = words; i < end; i++) to[i] = w[i];
#else
    smg_copy(to, w, end);
#endif
    for (int32_t i = end; i < of->length; i++) to[i] = 0;
    for (int32_t i = 0; i < of->w.count; i++) {
        for (int32_t t = 0, at = of->w.channel[i] - start; t < taps && at < end; t++, at += of->in)
            if (at >= 0) to[at] = trained[t * of->w.count + i];
    }
}

/* Sums of one channel become int8. */
static void scale(const layer *of, int32_t n, place at, int32_t pixels, const uint32_t *sums) {
    const smg_conv2d_s8_params *p = of->p;
    const smg_scaling scaling =
        smg_scaling_of(p->multiplier[n], p->shift[n], of->b[n], of->k, p->y_zero, p->lo, p->hi);
    for (int32_t some; pixels; pixels -= some, sums += some, at.y++, at.x = 0) {
        int8_t *row = at.y == of->first ? of->to : smg_row(of->y, at.y, p->y_w * p->y_c);
        some = of->y.rows >= p->y_h ? pixels : smg_min(pixels, p->y_w - at.x);
        smg_scale_sums(row + at.x * p->y_c + n, p->y_c, sums, some, &scaling);
    }
}

/* Elements from `start` on of windows and of filters n, n + 1, …, of which there are `count`, to their sums, the first
 * to biases. Bytes are left where they lie if they are as they are to be. */
static void multiply(const layer *of, int32_t n, int32_t count, int32_t start, int32_t tiles, uint32_t *sums) {
    const int32_t whole = start + of->length <= of->k && !of->w.count;
    const int32_t there = SMG_FILTERS > 1 && whole && count >= SMG_FILTERS;
    for (int32_t f = 0; f < SMG_FILTERS && !there; f++)
        widen(of, n + smg_min(f, count - 1), start, of->filters + f * of->length);
#if defined(__thumb__)
    const uint32_t bias = (uint32_t)of->b[n], four[SMG_TILE] = {bias, bias, bias, bias};
    smg_filtering job = {sums, start ? sums : four, start ? 4 * SMG_TILE : 0, of->windows, of->filters,
                         of->filters + of->length, tiles};
    smg_filter_tiles(&job);
#else
    int32_t bias[SMG_FILTERS];
    for (int32_t f = 0; f < SMG_FILTERS; f++) bias[f] = of->b[n + smg_min(f, count - 1)];
    smg_multiply_tiles(sums, of->tiles * SMG_TILE, of->windows, there ? of->w.data + n * of->k + start : of->filters,
                       there ? of->k : of->length, of->length, tiles, start ? 0 : bias);
#endif
}

/* `pixels` pixels of channels [n, n + count), whose windows are laid out where they are held whole. */
static void filter(const layer *of, place at, int32_t pixels, int32_t n, int32_t count, int32_t c) {
    const int32_t apart = of->tiles * SMG_TILE, tiles = (pixels + SMG_TILE - 1) / SMG_TILE;
    for (int32_t start = 0; start < of->k; start += of->length) {
        if (of->length < of->k) gather(of, at, pixels, c, start);
        for (int32_t f = 0; f < count; f += SMG_FILTERS) {
            multiply(of, n + f, count - f, start, tiles, of->sums + f * apart);
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
    of.first = y0;
    of.to = smg_row(*y, y0, p->y_w * p->y_c);
    place at = {y0, 0};
    for (int32_t left = (y1 - y0) * p->y_w, pixels; left > 0; left -= pixels) {
        pixels = smg_min(left, of.tiles * SMG_TILE);
        for (int32_t g = 0; g < p->groups; g++) {
            if (of.length >= of.k) gather(&of, at, pixels, g * of.in, 0);
            for (int32_t n = g * of.out; n < (g + 1) * of.out; n += of.block)
                filter(&of, at, pixels, n, smg_min(of.block, (g + 1) * of.out - n), g * of.in);
        }
        for (at.x += pixels; at.x >= p->y_w; at.x -= p->y_w) at.y++;
    }
}
