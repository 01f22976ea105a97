/* 2-D convolution: four pixels at a time against sixteen channels' weights, the window taken in pieces.
 *
 * A piece is a row of the kernel where that is short, else (part of) one tap, so that working memory does not grow
 * with the window; the sums of a tile of pixels are kept between pieces. */
#include "smidgen.h"

#include "arithmetic.h"
#include "conv2d_vec8.h"
#include "conv2d_vnni.h"
#include "lanes.h"
#include "window.h"
#include "working.h"

/* Up to sixteen output channels of one group, and what belongs to them. */
typedef struct {
    smg_weights w;
    const int32_t *b;
    int32_t first, count; /* output channels */
    int32_t c, in;        /* input channels [c, c + in) */
} filters;

/* Of each window: `taps` taps from (i, j) on, of each of them `channels` input channels from c on. */
typedef struct {
    int32_t i, j, taps, c, channels;
} piece;

/* An output pixel. */
typedef struct {
    int32_t y, x;
} place;

/* `by` pixels on, at most to the start of the next row. */
static inline place advance(place at, int32_t by, int32_t width) {
    const int32_t x = at.x + by;
    const place after = {at.y + (x == width), x == width ? 0 : x};
    return after;
}

static inline void clear(int16_t *to, int32_t count) {
    for (int32_t i = 0; i < count; i++) to[i] = 0;
}

/* Lay out `taps` taps of input row iy from column ix on, the zero point taken off, zeros outside the map. */
static inline void gather(const smg_conv2d_s8_params *p, smg_map x, const filters *f, const piece *part, int32_t iy,
                          int32_t ix, int32_t taps, int16_t *to) {
    const int32_t channels = part->channels;
    if (iy < 0 || iy >= p->x_h) {
        clear(to, taps * channels);
        return;
    }
    const smg_taps inside = smg_taps_inside(ix, taps, p->dilation_w, p->x_w);
    const int8_t *from = smg_row(x, iy, p->x_w * p->x_c) + f->c + part->c + ix * p->x_c;
    clear(to, inside.from * channels);
    if (channels == p->x_c && p->dilation_w == 1)
        smg_lanes_widen(from + inside.from * channels, (inside.to - inside.from) * channels, p->x_zero,
                        to + inside.from * channels);
    else
        for (int32_t t = inside.from; t < inside.to; t++)
            smg_lanes_widen(from + t * p->dilation_w * p->x_c, channels, p->x_zero, to + t * channels);
    clear(to + inside.to * channels, (taps - inside.to) * channels);
}

/* Working memory: the sums of a tile, pieces of windows, packed weights. */
typedef struct {
    uint32_t *acc;
    int16_t *windows;
    int32_t room; /* elements of `windows` */
    int16_t *w;
    int32_t tile; /* pixels */
} work;

/* Windows that were laid out: how many, and how far from each other. */
typedef struct {
    int32_t pixels, apart;
} laid;

/* How many of the next `pixels` pixels' kernel rows overlap in one strip that fits; 0 where that gives no four. */
static inline int32_t strip_pixels(const smg_conv2d_s8_params *p, const piece *part, place at, int32_t pixels,
                                   int32_t room) {
    if (part->taps != p->k_w || p->dilation_w != 1 || p->stride_w > p->k_w) return 0;
    const int32_t fit = (room / part->channels - p->k_w) / p->stride_w + 1;
    const int32_t most = smg_min(smg_min(pixels, p->y_w - at.x), fit);
    return most - most % SMG_PIXELS;
}

/* Lay out a piece of the windows of some of the next `pixels` pixels. */
static inline laid gather_some(const smg_conv2d_s8_params *p, smg_map x, const filters *f, const piece *part, place at,
                               int32_t pixels, const work *in) {
    const int32_t down = part->i * p->dilation_h - p->pad_h, right = part->j * p->dilation_w - p->pad_w;
    const int32_t strip = strip_pixels(p, part, at, pixels, in->room), length = part->taps * part->channels;
    if (strip) {
        const laid done = {strip, p->stride_w * part->channels};
        gather(p, x, f, part, at.y * p->stride_h + down, at.x * p->stride_w + right,
               (strip - 1) * p->stride_w + p->k_w, in->windows);
        return done;
    }
    const laid done = {smg_min(SMG_PIXELS, pixels), length};
    for (int32_t n = 0; n < done.pixels; n++, at = advance(at, 1, p->y_w))
        gather(p, x, f, part, at.y * p->stride_h + down, at.x * p->stride_w + right, part->taps,
               in->windows + n * length);
    clear(in->windows + done.pixels * length, (SMG_PIXELS - done.pixels) * length);
    return done;
}

/* Add a piece of the windows of `pixels` pixels from `at` on to their sums. */
static inline void accumulate(const smg_conv2d_s8_params *p, smg_map x, const filters *f, const piece *part, place at,
                              int32_t pixels, const work *in, const int16_t *w) {
    for (int32_t n = 0; n < pixels;) {
        const laid some = gather_some(p, x, f, part, at, pixels - n, in);
        smg_lanes_multiply(in->acc + n * SMG_LANES, some.pixels, in->windows, some.apart, w,
                           part->taps * part->channels);
        n += some.pixels;
        for (int32_t left = some.pixels, step; left > 0; left -= step) {
            step = smg_min(left, p->y_w - at.x);
            at = advance(at, step, p->y_w);
        }
    }
}

/* Lay out elements [start, start + length) of each filter side by side, trained channels over the frozen ones. */
static inline void pack(const smg_conv2d_s8_params *p, const filters *f, int32_t start, int32_t length, int16_t *to) {
    const int32_t taps = p->k_h * p->k_w, row = taps * f->w.count;
    smg_lanes_pack(f->w.data + start, taps * f->in, f->count, length, to);
    for (int32_t i = 0; i < f->w.count; i++) {
        for (int32_t t = start / f->in; t * f->in < start + length; t++) {
            const int32_t at = t * f->in + f->w.channel[i] - start;
            if (at < 0 || at >= length) continue;
            for (int32_t n = 0; n < f->count; n++)
                to[at * SMG_LANES + n] = f->w.trained[n * row + t * f->w.count + i];
        }
    }
}

/* Add the windows of `pixels` pixels from `at` on to their sums. */
static inline void convolve(const smg_conv2d_s8_params *p, smg_map x, const filters *f, place at, int32_t pixels,
                            const work *in) {
    const int32_t k = p->k_h * p->k_w * f->in;
    const int32_t taps = p->dilation_w == 1 && p->k_w * f->in <= SMG_CONV_DEPTH ? p->k_w : 1;
    const int32_t channels = smg_min(f->in, SMG_CONV_DEPTH);
    for (int32_t i = 0; i < p->k_h; i++) {
        for (int32_t j = 0; j < p->k_w; j += taps) {
            for (int32_t c = 0; c < f->in; c += channels) {
                const piece part = {i, j, taps, c, smg_min(channels, f->in - c)};
                const int32_t start = (i * p->k_w + j) * f->in + c;
                if (k > SMG_CONV_DEPTH) pack(p, f, start, taps * part.channels, in->w);
                accumulate(p, x, f, &part, at, pixels, in, k > SMG_CONV_DEPTH ? in->w : in->w + start * SMG_LANES);
            }
        }
    }
}

/* All pixels of rows [y0, y1) for one set of filters. */
static void filter(const smg_conv2d_s8_params *p, smg_map x, const filters *f, smg_map y, int32_t y0, int32_t y1,
                   const work *in) {
    smg_requantizer q;
    const int32_t k = p->k_h * p->k_w * f->in, total = (y1 - y0) * p->y_w, tile = in->tile;
    place at = {y0, 0};
    q.zero = p->y_zero;
    q.lo = p->lo;
    q.hi = p->hi;
    smg_lanes_scales(&q, f->b, p->multiplier + f->first, p->shift + f->first, f->count);
    if (k <= SMG_CONV_DEPTH) pack(p, f, 0, k, in->w); /* short rows are packed once for all tiles */
    for (int32_t start = 0; start < total; start += tile) {
        const int32_t pixels = smg_min(tile, total - start);
        smg_lanes_start(&q, in->acc, pixels);
        convolve(p, x, f, at, pixels, in);
        for (int32_t done = 0, run; done < pixels; done += run, at = advance(at, run, p->y_w)) {
            int8_t *to = smg_row(y, at.y, p->y_w * p->y_c) + at.x * p->y_c + f->first;
            run = smg_min(pixels - done, p->y_w - at.x);
            smg_lanes_requantize(&q, in->acc + done * SMG_LANES, run, f->count, to, p->y_c);
        }
    }
}

void smg_conv2d_s8(const smg_conv2d_s8_params *p, const smg_map *x, const smg_weights *w, const int32_t *b,
                   const smg_map *y, int32_t y0, int32_t y1, void *scratch) {
#if defined(SMG_VNNI)
    if (smg_conv2d_vnni(p, *x, *w, b, *y, y0, y1)) return;
#endif
#if defined(SMG_VEC8)
    if (smg_conv2d_vec8(p, *x, *w, b, *y, y0, y1)) return;
#endif
    const int32_t in = p->x_c / p->groups, out = p->y_c / p->groups, k = p->k_h * p->k_w * in;
    const int32_t little = y1 - y0 == 1 && k <= SMG_CONV_DEPTH, pixels = (y1 - y0) * p->y_w + SMG_PIXELS - 1;
    const int32_t tile = smg_min(little ? SMG_CONV_ROW_TILE : SMG_CONV_TILE, pixels - pixels % SMG_PIXELS);
    work memory = {scratch, 0, 2 * SMG_PIXELS * (little ? k : SMG_CONV_DEPTH), 0, tile};
    memory.windows = (int16_t *)(memory.acc + memory.tile * SMG_LANES);
    memory.w = memory.windows + memory.room;
    for (int32_t g = 0; g < p->groups; g++) {
        for (int32_t n = g * out; n < (g + 1) * out; n += SMG_LANES) {
            const int8_t *trained = w->count ? w->trained + n * p->k_h * p->k_w * w->count : 0;
            const smg_weights rows = {w->data + n * k, trained, w->channel, w->count};
            const filters f = {rows, b + n, n, smg_min(SMG_LANES, (g + 1) * out - n), g * in, in};
            filter(p, *x, &f, *y, y0, y1, &memory);
        }
    }
}
