/* Depthwise convolution in packed halfwords: four channels at a time, whose rows are packed two by two to strips.
 *
 * Filters of 3, 5 and 7 rows and columns slide over the strips; what is rarer is added up tap by tap. */
#include "smidgen.h"

#include "arithmetic.h"
#include "slide.h"
#include "window.h"

/* Channels at once, and what Op.scratch and Op.row_scratch of the graph's op count with. */
enum { BLOCK = 4, LANES = 16, TILE = 8, ROW_TILE = 4, KEPT = 4096 };

static const int8_t ZEROS[4];

/* One call, and how it uses working memory. */
typedef struct {
    const smg_depthwise_s8_params *p;
    smg_map x, y;
    smg_weights w;
    const int32_t *b;
    int32_t times, k;
    int32_t single;      /* one row of outputs: the last row of its windows is packed alone */
    int32_t width, band; /* output columns and rows whose strips are held */
    int32_t half, strip; /* words of a strip for one parity of columns, and for all */
    int32_t filter;      /* words of a packed filter */
    uint32_t *filters;   /* [4 channels][phase][filter]: windows begin at a pair's first row, or at its second */
    uint32_t *strips;    /* [pair of rows][4 channels][strip]; of a single row [2][strip] */
    int8_t *taps, *rows; /* [k][k][4], and [2 rows][columns][4], where the channels of a block lie apart */
} layer;

/* Channels [first, first + count). */
typedef struct {
    int32_t first, count;
} block;

static int32_t pairs(const layer *l, int32_t rows) { return ((rows - 1) * l->p->stride_h + l->k + 1) / 2; }

static int32_t phases(const layer *l) { return l->single || l->p->stride_h % 2 == 0 ? 1 : 2; }

/* Whether the words of four channels must be put together byte by byte. */
static int32_t apart(const layer *l, block of) { return l->times > 1 || of.count < BLOCK; }

/* Bytes of working memory; as large as the portable kernel's. */
static int32_t room(const smg_depthwise_s8_params *p, int32_t rows, int32_t in_place) {
    const int32_t tile = rows > 1 ? TILE : ROW_TILE, columns = (tile - 1) * p->stride_w + p->k_w;
    const int32_t kept = rows > 1 && columns <= KEPT / (4 * LANES) / p->k_h ? p->k_h : 1;
    return 4 * LANES * (p->k_h * p->k_w + kept * columns + tile) + (in_place ? p->x_h * p->x_w * LANES : 0);
}

/* Divide working memory so that strips of `width` columns are held for as many rows as fit; 0 where none do. */
static int32_t divide(layer *l, int32_t width, int32_t rows, int32_t bytes, uint32_t *scratch) {
    const smg_depthwise_s8_params *p = l->p;
    const int32_t columns = (width - 1) * p->stride_w + l->k, gathers = l->times > 1 || p->y_c % BLOCK;
    l->width = width;
    l->half = p->stride_w == 2 ? width + (l->k - 1) / 2 : width + l->k - 1;
    l->strip = l->half * p->stride_w;
    l->filter = (l->k + 1) / 2 * l->k;
    l->filters = scratch;
    l->strips = scratch + BLOCK * phases(l) * l->filter;
    const int32_t left = bytes / 4 - BLOCK * phases(l) * l->filter - l->k * l->k - (gathers ? 2 * columns : 0);
    const int32_t held = left / l->strip / BLOCK, most = (2 * held - l->k) / p->stride_h + 1;
    l->band = l->single ? left / l->strip >= 2 * l->k : 2 * held < l->k + 1 ? 0 : smg_min(rows, most);
    const int32_t used = l->single ? 2 * l->k : BLOCK * pairs(l, l->band);
    l->taps = (int8_t *)(l->strips + used * l->strip);
    l->rows = l->taps + BLOCK * l->k * l->k;
    return l->band;
}

/* Prepare to slide; 0 where this geometry is for `add_up`. */
static int32_t prepare(layer *l, int32_t rows, void *scratch) {
    const smg_depthwise_s8_params *p = l->p;
    const int32_t in_place = l->x.data == l->y.data, bytes = room(p, rows, in_place);
    const int32_t whole = l->x.rows >= p->x_h && l->y.rows >= p->y_h;
    int32_t width = p->y_w;
    if (p->k_h != p->k_w || (l->k != 3 && l->k != 5 && l->k != 7) || p->stride_w > 2 || width < 4) return 0;
    if (p->dilation_h != 1 || p->dilation_w != 1) return 0;
    l->single = rows == 1;
    while (!divide(l, width, whole ? rows : 1, bytes, scratch)) {
        width = (width - 1) & ~3;
        if (width < 4) return 0;
    }
    return !in_place || (l->band == rows && l->width == p->y_w);
}

/* The words of `columns` columns of a row, four channels each, put together from where they lie. */
static void gather(const int8_t *x, int32_t step, int32_t columns, block of, int32_t times, int8_t *to) {
    for (int32_t q = 0; q < columns; q++, x += step, to += BLOCK)
        for (int32_t n = 0; n < BLOCK; n++) to[n] = n < of.count ? x[(of.first + n) / times] : 0;
}

/* Where the words of a block's taps are, `step` bytes apart: trained channels over the frozen ones. */
static const int8_t *find_taps(const layer *l, block of, int32_t *step) {
    const int32_t c = l->p->y_c, taps = l->k * l->k;
    int32_t from = 0, to;
    while (from < l->w.count && l->w.channel[from] < of.first) from++;
    for (to = from; to < l->w.count && l->w.channel[to] < of.first + of.count;) to++;
    *step = c;
    if (from == to && of.count == BLOCK) return l->w.data + of.first;
    gather(l->w.data, c, taps, of, 1, l->taps);
    for (int32_t i = from; i < to; i++)
        for (int32_t t = 0; t < taps; t++)
            l->taps[t * BLOCK + l->w.channel[i] - of.first] = l->w.trained[t * l->w.count + i];
    *step = BLOCK;
    return l->taps;
}

/* Pack two rows of a filter, of which one may be missing. */
static void pack_taps(const layer *l, const int8_t *a, const int8_t *b, int32_t step, uint32_t *to) {
    const int32_t parities = l->p->stride_w;
    for (int32_t parity = 0; parity < parities; parity++) {
        const int32_t count = (l->k - parity + parities - 1) / parities;
        const smg_columns columns = {
            a ? a + parity * step : ZEROS, b ? b + parity * step : ZEROS, a ? parities * step : 0,
            b ? parities * step : 0, 0, to, 4 * phases(l) * l->filter, count,
        };
        smg_pack_columns(&columns);
        to += count;
    }
}

static void pack_filters(const layer *l, block of) {
    int32_t step;
    const int8_t *w = find_taps(l, of, &step);
    uint32_t *to = l->filters;
    for (int32_t phase = 0; phase < phases(l); phase++) {
        for (int32_t i = -phase; i < l->k; i += 2, to += l->k) {
            const int8_t *a = w + i * l->k * step;
            pack_taps(l, i < 0 ? 0 : a, i + 1 < l->k ? a + l->k * step : 0, step, to);
        }
    }
    if (l->single) /* of the last row alone, channels 2 and 3 are in upper halves */
        for (int32_t n = 2; n < BLOCK; n++)
            for (int32_t j = 1; j <= l->k; j++) l->filters[(n + 1) * l->filter - j] <<= 16;
}

/* The columns [from, to) of one parity that lie inside the map, under a tile that begins at output column ox. */
static smg_taps inside(const layer *l, int32_t ox, int32_t parity) {
    return smg_taps_inside(ox * l->p->stride_w - l->p->pad_w + parity, l->half, l->p->stride_w, l->p->x_w);
}

/* Zeros left and right of the map, in all strips: packing leaves them as they are. */
static void clear_borders(const layer *l, int32_t ox) {
    const int32_t strips = l->single ? 2 * l->k : BLOCK * pairs(l, l->band);
    for (int32_t parity = 0; parity < l->p->stride_w; parity++) {
        const smg_taps in = inside(l, ox, parity);
        uint32_t *to = l->strips + parity * l->half;
        for (int32_t i = 0; i < strips; i++, to += l->strip) {
            for (int32_t j = 0; j < in.from; j++) to[j] = 0;
            for (int32_t j = in.to; j < l->half; j++) to[j] = 0;
        }
    }
}

/* Where column q of row r is, in the map or in a copy; the zero point where the row is outside. */
static const int8_t *find_row(const layer *l, block of, int32_t r, int32_t q, int32_t count, int8_t *copy,
                              const uint32_t *zeros, int32_t *step) {
    const smg_depthwise_s8_params *p = l->p;
    *step = 0;
    if (r < 0 || r >= p->x_h) return (const int8_t *)zeros;
    const int8_t *x = smg_row(l->x, r, p->x_w * p->x_c) + q * p->x_c;
    *step = p->x_c * p->stride_w;
    if (!apart(l, of)) return x + of.first;
    gather(x, *step, count, of, l->times, copy);
    *step = BLOCK;
    return copy;
}

/* Pack input rows r and r + 1, or r alone, to the strips at `to`. */
static void pack_rows(const layer *l, block of, int32_t r, int32_t alone, int32_t ox, uint32_t *to) {
    const smg_depthwise_s8_params *p = l->p;
    const uint32_t zeros = (uint32_t)(uint8_t)p->x_zero * 0x01010101u;
    smg_columns columns = {0, 0, 0, 0, (uint32_t)(uint16_t)-p->x_zero * 0x10001u, 0, 4 * l->strip, 0};
    for (int32_t parity = 0; parity < p->stride_w; parity++) {
        const smg_taps in = inside(l, ox, parity);
        const int32_t q = ox * p->stride_w - p->pad_w + parity + in.from * p->stride_w;
        columns.count = in.to - in.from;
        columns.to = to + parity * l->half + in.from;
        if (columns.count == 0) continue;
        columns.a = find_row(l, of, r, q, columns.count, l->rows, &zeros, &columns.a_step);
        if (alone) {
            smg_widen_columns(&columns);
        } else {
            columns.b = find_row(l, of, r + 1, q, columns.count, l->rows + BLOCK * columns.count, &zeros,
                                 &columns.b_step);
            smg_pack_columns(&columns);
        }
    }
}

/* Slide channel n of a block over its strips, for `rows` rows of outputs from (oy, ox) on. */
static void slide(const layer *l, block of, int32_t n, int32_t oy, int32_t ox, int32_t rows) {
    const smg_depthwise_s8_params *p = l->p;
    const int32_t c = of.first + n, stride = p->stride_h, pair = 4 * BLOCK * l->strip, row = p->y_w * p->y_c;
    const int32_t wide = l->width & ~3, halves = p->stride_w == 2, read = halves ? 3 + (l->k - 1) / 2 : l->k + 3;
    const int32_t way = smg_way(p->multiplier[c], p->shift[c]), b = l->b[c];
    const int32_t to_next = 4 * (l->strip - (halves ? l->half : 0) - read);
    const uint32_t *x = l->strips + n * l->strip;
    int8_t *y = smg_row(l->y, oy, row) + ox * p->y_c + c;
    smg_slides job = {
        .x = x, .w = l->filters + n * phases(l) * l->filter, .bias = {b, b, b, b}, .y = y, .y_c = p->y_c,
        .multiplier = smg_twice(p->multiplier[c]), .shifted = smg_shifted(p->multiplier[c], p->shift[c], way),
        .zero = 2 * p->y_zero + 1, .y_end = y + wide * p->y_c, .kind = l->k - 3 + halves, .way = way,
        .down = to_next + 12 * l->strip, .last = to_next + (l->single ? 4 * (3 - n + (n & 1)) : 12) * l->strip,
        .across = 4 * (l->half - 4 - (l->k - 1) / 2), .rows = rows, .row = x,
        .stride = {stride / 2 * pair, stride % 2 * 4 * l->filter}, .y_on = row - wide * p->y_c, .y_row = row,
    };
    job.other = job.stride;
    if (stride % 2) {
        job.other.x = (stride + 1) / 2 * pair;
        job.other.w = -4 * l->filter;
    }
    smg_slide(&job);
    if (wide == l->width) return;
    job.x = job.row = x + l->width - 4; /* the last four columns, of which some are done */
    job.y = y + (l->width - 4) * p->y_c;
    job.y_end = job.y + 4 * p->y_c;
    job.y_on = row - 4 * p->y_c;
    smg_slide(&job);
}

/* A tile of output columns, a band of rows: pack the block's rows, then slide. */
static void slide_block(const layer *l, block of, int32_t oy, int32_t ox, int32_t rows) {
    const int32_t top = oy * l->p->stride_h - l->p->pad_h, count = l->single ? (l->k + 1) / 2 : pairs(l, rows);
    uint32_t *to = l->strips;
    for (int32_t i = 0; i < count; i++, to += BLOCK * l->strip)
        pack_rows(l, of, top + 2 * i, l->single && i == count - 1, ox, to);
    for (int32_t n = 0; n < of.count; n++) slide(l, of, n, oy, ox, rows);
}

/* One output: tap by tap, from column `at` of a map of c channels. */
static int8_t add_taps(const layer *l, smg_map x, int32_t c, int32_t at, int32_t n, int32_t oy, int32_t ox) {
    const smg_depthwise_s8_params *p = l->p;
    const int32_t top = oy * p->stride_h - p->pad_h, left = ox * p->stride_w - p->pad_w;
    const smg_taps rows = smg_taps_inside(top, p->k_h, p->dilation_h, p->x_h);
    const smg_taps columns = smg_taps_inside(left, p->k_w, p->dilation_w, p->x_w);
    uint32_t sum = (uint32_t)l->b[n];
    int32_t trained = 0;
    while (trained < l->w.count && l->w.channel[trained] != n) trained++;
    const int32_t step = trained < l->w.count ? l->w.count : p->y_c;
    const int8_t *w = trained < l->w.count ? l->w.trained + trained : l->w.data + n;
    for (int32_t i = rows.from; i < rows.to; i++) {
        const int8_t *row = smg_row(x, top + i * p->dilation_h, p->x_w * c) + at;
        for (int32_t j = columns.from; j < columns.to; j++)
            sum += (uint32_t)((row[(left + j * p->dilation_w) * c] - p->x_zero) * w[(i * p->k_w + j) * step]);
    }
    const int32_t scaled = smg_multiply((int32_t)sum, p->multiplier[n], p->shift[n]);
    return smg_to_int8(scaled, p->y_zero, p->lo, p->hi);
}

/* A block tap by tap; its input is copied first where the output is about to take its place. */
static void add_up(const layer *l, block of, int32_t y0, int32_t y1, int8_t *copy) {
    const smg_depthwise_s8_params *p = l->p;
    const int32_t in_place = l->x.data == l->y.data;
    const smg_map copied = {copy, p->x_h};
    if (in_place) gather(l->x.data, p->x_c, p->x_h * p->x_w, of, 1, copy);
    for (int32_t oy = y0; oy < y1; oy++) {
        int8_t *y = smg_row(l->y, oy, p->y_w * p->y_c) + of.first;
        for (int32_t ox = 0; ox < p->y_w; ox++, y += p->y_c)
            for (int32_t n = 0; n < of.count; n++)
                y[n] = add_taps(l, in_place ? copied : l->x, in_place ? BLOCK : p->x_c,
                                in_place ? n : (of.first + n) / l->times, of.first + n, oy, ox);
    }
}

/* Whether the assembly can scale all channels of a block. */
static int32_t scales(const smg_depthwise_s8_params *p, block of) {
    int32_t worst = SMG_NEAR;
    for (int32_t n = of.first; n < of.first + of.count; n++)
        worst = smg_max(worst, smg_way(p->multiplier[n], p->shift[n]));
    return worst != SMG_OTHER;
}

void smg_depthwise_s8(const smg_depthwise_s8_params *p, smg_map x, smg_weights w, const int32_t *b, smg_map y,
                      int32_t y0, int32_t y1, void *scratch) {
    layer l = {.p = p, .x = x, .y = y, .w = w, .b = b, .times = p->y_c / p->x_c, .k = p->k_w};
    const int32_t slides = prepare(&l, y1 - y0, scratch);
    for (block of = {0, 0}; of.first < p->y_c; of.first += BLOCK) {
        of.count = smg_min(BLOCK, p->y_c - of.first);
        if (!slides || !scales(p, of)) {
            add_up(&l, of, y0, y1, scratch);
            continue;
        }
        pack_filters(&l, of);
        for (int32_t ox = 0; ox < p->y_w; ox += l.width) {
            const int32_t at = smg_min(ox, p->y_w - l.width);
            clear_borders(&l, at);
            for (int32_t oy = y0; oy < y1; oy += l.band) slide_block(&l, of, oy, at, smg_min(l.band, y1 - oy));
        }
    }
    for (int32_t oy = y0; oy < y1; oy++) smg_limit(smg_row(y, oy, p->y_w * p->y_c), p->y_w * p->y_c, p->lo, p->hi);
}
