/* 2-D convolution in packed halfwords: windows of pixels and pairs of filters are widened, then multiplied.
 *
 * Windows that are longer than working memory can hold for a few pixels are taken in pieces, for some channels at a
 * time whose sums are kept. */
#include "smidgen.h"

#include "arithmetic.h"
#include "copying.h"
#include "fours.h"
#include "multiply.h"
#include "noinline.h"
#include "packed.h"
#include "scales.h"
#include "window.h"
#include "working_packed.h"

/* Bytes of sums that are kept where windows are taken in pieces. */
enum { SUMS = 4 * SMG_PIECE_PIXELS * SMG_PIECE_CHANNELS };

/* Rows of a kernel whose windows are copied by the assembly, at most. */
enum { ROWS = 8 };

/* One group's filters on one row of pixels, and working memory. */
typedef struct {
    const smg_conv2d_s8_params *p;
    smg_map x;
    smg_weights w;
    const int32_t *b;
    int32_t in, out, k; /* input and output channels of the group, elements of a window */
    int32_t c, first;   /* where they begin */
    int32_t direct;     /* windows consist of whole words in the map: they need not be copied */
    int32_t pixels, piece;
    uint32_t *windows; /* [pixels][piece], in tiles */
    uint32_t *pair;    /* [piece] of two filters, and what stands between */
    int8_t *bytes;     /* [4][piece] */
    int32_t *sums;     /* [pair][four pixels][8], where windows are taken in pieces */
} layer;

/* Elements [from, to) of each window. */
typedef struct {
    int32_t from, to;
} span;

static inline int32_t rounded(int32_t k) { return (k + 3) & ~3; }

static layer lay_out(const smg_conv2d_s8_params *p, int32_t rows, void *scratch) {
    layer l = {.p = p, .in = p->x_c / p->groups, .out = p->y_c / p->groups};
    l.k = p->k_h * p->k_w * l.in;
    const int32_t room = rows == 1 && l.k <= SMG_ROOM_DEPTH
                             ? SMG_ROW_ROOM + SMG_ROW_ROOM_DEEPER * l.k
                             : SMG_ROOM + SMG_ROOM_DEEPER * smg_min(l.k, SMG_ROOM_DEPTH);
    l.direct = (p->groups == 1 && p->dilation_w == 1 ? p->k_w * l.in : l.in) % 4 == 0;
    l.piece = rounded(l.k);
    l.pixels = (room / l.piece - 8) / 2 & ~3;
    l.windows = scratch;
    if (l.pixels < SMG_FEW_WINDOWS) {
        const int32_t most = (SMG_PIECE_ROOM - SUMS) / (2 * SMG_PIECE_PIXELS + 8) & ~3, pieces = (l.k + most - 1) / most;
        l.pixels = SMG_PIECE_PIXELS;
        l.piece = rounded((l.k + pieces - 1) / pieces);
        l.sums = scratch;
        l.windows += SUMS / 4;
    } else {
        const int32_t more = rows > 1 || l.k > SMG_ROOM_DEPTH ? SMG_ROOM_MORE : 0;
        l.pixels = smg_min(((room + more) / l.piece - 8) / 2, rows * p->y_w + 3) & ~3;
    }
    l.pair = l.windows + l.pixels * l.piece / 2;
    l.bytes = (int8_t *)(l.pair + l.piece + SMG_STREAM_WORDS(l.piece));
    return l;
}

static SMG_SHORT void fill(int8_t *to, int32_t count, int32_t value) {
    for (int32_t i = 0; i < count; i++) to[i] = (int8_t)value;
}

/* Of elements [k, k + count) of a window, which lie at x: those of `part`. */
static SMG_NOINLINE void copy(const int8_t *x, int32_t k, int32_t count, span part, int8_t *to) {
    const int32_t from = smg_max(k, part.from), end = smg_min(k + count, part.to);
    smg_copy(to + from - part.from, x + from - k, end - from);
}

/* Part of the window at output pixel (oy, ox), the zero point outside the map. */
static SMG_SHORT void gather(const layer *l, int32_t oy, int32_t ox, span part, int8_t *to) {
    const smg_conv2d_s8_params *p = l->p;
    const int32_t top = oy * p->stride_h - p->pad_h, left = ox * p->stride_w - p->pad_w;
    const smg_taps rows = smg_taps_inside(top, p->k_h, p->dilation_h, p->x_h);
    const smg_taps columns = smg_taps_inside(left, p->k_w, p->dilation_w, p->x_w);
    const int32_t run = p->groups == 1 && p->dilation_w == 1 ? columns.to - columns.from : 1;
    if (rows.to - rows.from < p->k_h || columns.to - columns.from < p->k_w) fill(to, part.to - part.from, p->x_zero);
    for (int32_t i = rows.from; i < rows.to; i++) {
        const int8_t *x = smg_row(l->x, top + i * p->dilation_h, p->x_w * p->x_c) + left * p->x_c + l->c;
        for (int32_t j = columns.from; j < columns.to; j += run)
            copy(x + j * p->dilation_w * p->x_c, (i * p->k_w + j) * l->in, run * l->in, part, to);
    }
}

/* Whether four windows from output column ox on lie inside the map's columns, in runs of a kernel row each. */
static int32_t runs(const layer *l, int32_t ox) {
    const smg_conv2d_s8_params *p = l->p;
    const int32_t left = ox * p->stride_w - p->pad_w, end = left + 3 * p->stride_w + p->k_w;
    return left >= 0 && end <= p->x_w && ox + 4 <= p->y_w && (p->k_w == 1 || (p->groups == 1 && p->dilation_w == 1));
}

/* Lay out part of four windows whose columns are all inside the map, and whose kernel rows are whole words. */
static void widen_runs(const layer *l, int32_t oy, int32_t ox, span part, uint32_t *to) {
    const smg_conv2d_s8_params *p = l->p;
    const int32_t run = p->k_w * l->in, left = ox * p->stride_w - p->pad_w, tile = part.to - part.from;
    for (int32_t i = part.from / run, k = part.from, count; k < part.to; i++, k += count, to += count) {
        const int32_t iy = oy * p->stride_h - p->pad_h + i * p->dilation_h, inside = iy >= 0 && iy < p->x_h;
        const int8_t *x = smg_row(l->x, inside ? iy : 0, p->x_w * p->x_c) + left * p->x_c + l->c + k - i * run;
        count = smg_min((i + 1) * run, part.to) - k;
        if (inside)
            smg_widen_pixels(x, p->stride_w * p->x_c, count / 4, smg_both(-p->x_zero), to, 4 * tile, 1);
        else
            for (int32_t n = 0; n < count; n++) to[n] = to[n + tile] = 0;
    }
}

/* Begin to copy windows of row oy; 0 rows where they must be gathered. */
static smg_windows begin_copy(const layer *l, int32_t oy, span part, const int8_t *row[ROWS]) {
    const smg_conv2d_s8_params *p = l->p;
    const int32_t top = oy * p->stride_h - p->pad_h, whole = part.to - part.from == l->k, run = p->k_w * l->in;
    const smg_windows windows = {row, whole && p->k_h <= ROWS && run >= 4 ? p->k_h : 0, p->stride_w * p->x_c, run,
                                 l->bytes, rounded(l->k), (uint32_t)(uint8_t)p->x_zero * 0x01010101u, 4};
    for (int32_t i = 0; i < windows.rows; i++) {
        const int32_t iy = top + i * p->dilation_h;
        row[i] = iy >= 0 && iy < p->x_h ? smg_row(l->x, iy, p->x_w * p->x_c) + l->c : 0;
    }
    return windows;
}

/* Four windows from output column ox on, of which some lie inside the map's columns: these are copied, the others put
 * together. */
static SMG_SHORT void gather_four(const layer *l, smg_windows some, int32_t oy, int32_t ox, span part) {
    const smg_conv2d_s8_params *p = l->p;
    const int32_t left = ox * p->stride_w - p->pad_w, apart = rounded(part.to - part.from);
    const int32_t whole = some.rows && p->y_w >= 4 && (p->k_w == 1 || (p->groups == 1 && p->dilation_w == 1));
    const smg_taps in = smg_taps_inside(left, whole ? 4 : 0, p->stride_w, p->x_w - p->k_w + 1);
    some.to += in.from * apart;
    some.count = in.to - in.from;
    if (some.count) smg_copy_windows(&some, (left + in.from * p->stride_w) * p->x_c);
    for (int32_t n = 0; n < 4; n++)
        if (n < in.from || n >= in.to) gather(l, oy, p->y_w < 4 ? ox : ox + n, part, l->bytes + n * apart);
}

/* Lay out part of the windows of `tiles` times four pixels of row oy from column ox on; in a narrower row, of one pixel
 * four times. */
static void widen_windows(const layer *l, int32_t oy, int32_t ox, int32_t tiles, span part) {
    const smg_conv2d_s8_params *p = l->p;
    const int32_t count = part.to - part.from, apart = rounded(count);
    const int8_t *row[ROWS];
    const smg_windows windows = begin_copy(l, oy, part, row);
    uint32_t *to = l->windows;
    for (int32_t n = 0; n < 4 && count < apart; n++) fill(l->bytes + n * apart + count, apart - count, p->x_zero);
    for (int32_t t = 0; t < tiles; t++, ox += 4, to += 2 * apart) {
        const int32_t inside = runs(l, ox);
        if (inside && l->direct) {
            widen_runs(l, oy, ox, part, to);
            continue;
        }
        if (inside && windows.rows)
            smg_copy_windows(&windows, (ox * p->stride_w - p->pad_w) * p->x_c);
        else
            gather_four(l, windows, oy, ox, part);
        smg_widen_pixels(l->bytes, apart, apart / 4, smg_both(-p->x_zero), to, 4 * apart, 1);
    }
}

/* The same; where windows are nothing but pixels side by side, at once. */
static void widen(const layer *l, int32_t oy, int32_t ox, int32_t tiles, span part) {
    const smg_conv2d_s8_params *p = l->p;
    const int32_t iy = oy * p->stride_h - p->pad_h;
    if (l->direct && p->k_w == 1 && p->k_h == 1 && runs(l, ox) && runs(l, ox + 4 * tiles - 4) && iy >= 0 &&
        iy < p->x_h) {
        const int8_t *x = smg_row(l->x, iy, p->x_w * p->x_c) + (ox * p->stride_w - p->pad_w) * p->x_c;
        smg_widen_pixels(x + l->c + part.from, p->stride_w * p->x_c, (part.to - part.from) / 4, smg_both(-p->x_zero),
                         l->windows, 4 * (part.to - part.from), tiles);
    } else {
        widen_windows(l, oy, ox, tiles, part);
    }
}

/* Part of filters n and n + 1, or of n alone, as bytes that lie `apart` from each other: as they are, or put together
 * with trained channels over the frozen ones. */
static SMG_NOINLINE const int8_t *find_filters(const layer *l, int32_t n, int32_t more, span part, int32_t *apart) {
    const int32_t count = part.to - part.from, taps = l->p->k_h * l->p->k_w;
    const int8_t *w = l->w.data + n * l->k + part.from;
    *apart = more * l->k;
    if (l->w.count == 0) return w;
    const int8_t *trained = l->w.trained + n * taps * l->w.count, *also = trained + more * taps * l->w.count;
    int8_t *const to = l->bytes, *const other = to + more * count;
    smg_copy(to, w, count);
    smg_copy(other, w + *apart, count);
    for (int32_t t = 0; t < taps; t++) {
        const uint32_t before = (uint32_t)(t * l->in - part.from);
        const int16_t *const last = l->w.channel + l->w.count;
        for (const int16_t *channel = l->w.channel; channel != last; channel++, trained++, also++) {
            const uint32_t k = before + (uint32_t)*channel;
            if (k >= (uint32_t)count) continue;
            to[k] = *trained;
            other[k] = *also;
        }
    }
    *apart = more * count;
    return to;
}

static void start(int32_t *sums, const int32_t *bias) {
    sums[0] = sums[1] = sums[4] = sums[5] = bias[0];
    sums[2] = sums[3] = sums[6] = sums[7] = bias[1];
}

/* Sums of channels n to n + more are kept, four pixels at a time, and scaled in C. */
static SMG_SHORT void multiply_in_c(const layer *l, smg_tiles job, int32_t n, int32_t more, int32_t tile) {
    const smg_conv2d_s8_params *p = l->p;
    const uint32_t *const end = job.x_end;
    const int32_t bias[2] = {l->b[n], l->b[n + more]};
    int32_t own[8], *sums = job.sums;
    job.keep = 1;
    for (; job.x < end; job.x = job.x_end, job.y += 4 * job.y_c) {
        job.x_end = job.x + tile;
        job.sums = sums ? sums : own;
        if (!sums) start(own, bias);
        job.pairs = 1;
        smg_multiply_tiles(&job);
        for (int32_t i = 0; i < 8; i++) {
            const int32_t c = i >> 1 & 1, scaled = smg_multiply(job.sums[i], p->multiplier[n + c], p->shift[n + c]);
            if (c <= more) job.y[(i / 4 * 2 + (i & 1)) * job.y_c + c] = smg_to_int8(scaled, p->y_zero, p->lo, p->hi);
        }
        if (sums) sums += 8;
    }
}

/* Biases, where sums are kept from piece to piece. */
static void start_sums(const layer *l, int32_t n, int32_t end, int32_t tiles) {
    const int32_t more = l->out > 1;
    for (int32_t i = 0; i < (end - n + 1) / 2 * tiles; i++) {
        const int32_t at = l->first + smg_min(n + i / tiles * 2, l->out - 1 - more);
        const int32_t bias[2] = {l->b[at], l->b[at + more]};
        start(l->sums + 8 * i, bias);
    }
}

/* Whether weights of so many elements are worth being raised. */
static int32_t raises(const layer *l, int32_t count, int32_t tiles) {
    return l->p->y_zero == -128 && !l->sums && count % 4 == 0 && count <= 32 && 8 * tiles > 3 * count + 24;
}

/* One piece of the windows of `tiles` times four pixels, for channels [n, end) of the group: pairs of channels one after
 * another without a return to C, unless weights must be put together, or sums are scaled there. */
static void multiply(const layer *l, span part, int32_t n, int32_t end, int32_t tiles, int8_t *y, int32_t y_c) {
    const smg_conv2d_s8_params *p = l->p;
    const int32_t more = l->out > 1, count = part.to - part.from, tile = 2 * rounded(count);
    smg_tiles job = {
        .w = l->pair, .x = l->windows, .x_end = l->windows + tiles * tile, .sums = l->sums,
        .keep = part.to < l->k ? 1 : raises(l, count, tiles) ? -1 : 0,
        .y_c = y_c, .zero = 2 * p->y_zero + 1, .words = count / 4, .tail = count % 4,
    };
    if (l->sums && part.from == 0) start_sums(l, n, end, tiles);
    while (n < end) {
        const int32_t pairs = l->w.count || n + 1 == end ? 1 : (end - n) / 2;
        const int32_t at = smg_min(n, l->out - 1 - more), c = l->first + at;
        job.from = find_filters(l, at, more, part, &job.apart);
        job.bias = l->b + c;
        job.multiplier = p->multiplier + c;
        job.shift = p->shift + c;
        job.y = y + c;
        job.pairs = pairs;
        if (more || job.keep > 0) smg_multiply_tiles(&job);
        const int32_t done = pairs - job.pairs;
        n += 2 * done;
        if (job.sums) job.sums += 8 * tiles * done;
        if (job.pairs == 0 || done) continue;
        multiply_in_c(l, job, c, more, tile);
        n += 2;
        if (job.sums) job.sums += 8 * tiles;
    }
}

/* Four times `tiles` pixels of row oy from column ox on, which go to y. */
static void convolve(const layer *l, int32_t oy, int32_t ox, int32_t tiles, int8_t *y, int32_t y_c) {
    const int32_t channels = l->sums ? SMG_PIECE_CHANNELS : l->out;
    for (int32_t n = 0; n < l->out; n += channels) {
        for (span part = {0, 0}; part.from < l->k; part.from = part.to) {
            part.to = smg_min(part.from + l->piece, l->k);
            if (n == 0 || l->sums) widen(l, oy, ox, tiles, part);
            multiply(l, part, n, smg_min(n + channels, l->out), tiles, y, y_c);
        }
    }
}

/* Channel n of the group at one pixel, from its window. */
static SMG_SHORT int8_t add_row(const layer *l, const int8_t *x, int32_t n) {
    const smg_conv2d_s8_params *p = l->p;
    const int32_t c = l->first + n;
    uint32_t sum = (uint32_t)l->b[c];
    for (int32_t i = 0; i < l->k; i++) sum += (uint32_t)((x[i] - p->x_zero) * l->w.data[n * l->k + i]);
    return smg_to_int8(smg_multiply((int32_t)sum, p->multiplier[c], p->shift[c]), p->y_zero, p->lo, p->hi);
}

/* The window at output pixel (oy, ox) as bytes, where it lies or put together. */
static const int8_t *window(const layer *l, int32_t oy, int32_t ox) {
    const smg_conv2d_s8_params *p = l->p;
    const int32_t top = oy * p->stride_h - p->pad_h, left = ox * p->stride_w - p->pad_w;
    const int32_t wide = p->k_h == 1 || (p->k_w == p->x_w && p->dilation_h == 1 && l->x.rows >= p->x_h);
    const span all = {0, l->k};
    int8_t *const whole = l->sums ? (int8_t *)l->sums : (int8_t *)l->windows; /* all of working memory */
    if (l->in == p->x_c && p->dilation_w == 1 && wide && top >= 0 && left >= 0 && top + p->k_h <= p->x_h &&
        left + p->k_w <= p->x_w)
        return smg_row(l->x, top, p->x_w * p->x_c) + left * p->x_c;
    gather(l, oy, ox, all, whole);
    return whole;
}

/* One pixel alone, whose window is whole words: four rows of weights at a time. */
static SMG_SHORT void convolve_pixel(const layer *l, int32_t oy, int32_t ox, int8_t *y) {
    const smg_conv2d_s8_params *p = l->p;
    const int8_t *const x = window(l, oy, ox);
    const int32_t whole = l->out & ~3;
    for (int32_t n = 0; n < l->out; n++) {
        if (n < whole && n % 4 == 0) {
            smg_block_job job = {
                .x = x, .w = l->w.data + n * l->k, .w_on = l->k, .minus = smg_both(-p->x_zero), .count = l->k / 4,
                .blocks = (whole - n) / 4, .zero = 2 * p->y_zero + 1, .bias = l->b + l->first + n,
                .multiplier = p->multiplier + l->first + n, .shift = p->shift + l->first + n, .y = y + n,
            };
            n = whole - 4 * smg_rows(&job);
        }
        if (n < l->out) y[n] = add_row(l, x, n);
    }
}

/* Row oy: blocks of pixels, the last of which reaches back over the one before to be whole. */
static void convolve_row(const layer *l, smg_map y, int32_t oy) {
    const smg_conv2d_s8_params *p = l->p;
    int8_t *row = smg_row(y, oy, p->y_w * p->y_c);
    if (p->y_w < 4 && l->w.count == 0 && l->k % 4 == 0) {
        for (int32_t ox = 0; ox < p->y_w; ox++) convolve_pixel(l, oy, ox, row + ox * p->y_c + l->first);
        return;
    }
    if (p->y_w < 4) {
        for (int32_t ox = 0; ox < p->y_w; ox++) convolve(l, oy, ox, 1, row + ox * p->y_c, 0);
        return;
    }
    for (int32_t ox = 0, tiles; ox < p->y_w; ox += 4 * tiles) {
        tiles = smg_max(smg_min(l->pixels, p->y_w - ox) / 4, 1);
        const int32_t at = smg_min(ox, p->y_w - 4 * tiles);
        convolve(l, oy, at, tiles, row + at * p->y_c, p->y_c);
    }
}

void smg_conv2d_s8(const smg_conv2d_s8_params *p, const smg_map *x, const smg_weights *w, const int32_t *b,
                   const smg_map *y, int32_t y0, int32_t y1, void *scratch) {
    smg_conv2d_s8_params flat = *p;
    smg_map from = *x, to = *y;
    layer l = lay_out(p, y1 - y0, scratch);
    if (p->k_h * p->k_w * p->stride_h * p->stride_w == 1 && p->x_h == p->y_h && p->x_w == p->y_w &&
        from.rows >= p->x_h && to.rows >= p->y_h) { /* pixel by pixel: one long row */
        flat.x_h = flat.y_h = 1;
        flat.x_w = flat.y_w = (y1 - y0) * p->x_w;
        from.data += y0 * p->x_w * p->x_c;
        to.data += y0 * p->y_w * p->y_c;
        y1 = y1 - y0 > 0;
        y0 = 0;
        l.p = &flat;
    }
    l.x = from;
    l.b = b;
    for (int32_t g = 0; g < p->groups; g++, l.c += l.in, l.first += l.out) {
        const int32_t row = p->k_h * p->k_w * w->count;
        const int8_t *trained = w->count ? w->trained + l.first * row : 0;
        const smg_weights rows = {w->data + l.first * l.k, trained, w->channel, w->count};
        l.w = rows;
        for (int32_t oy = y0; oy < y1; oy++) convolve_row(&l, to, oy);
    }
    for (int32_t oy = y0; oy < y1 && smg_limited(p->lo, p->hi); oy++)
        smg_limit(smg_row(to, oy, l.p->y_w * p->y_c), l.p->y_w * p->y_c, p->lo, p->hi);
}
