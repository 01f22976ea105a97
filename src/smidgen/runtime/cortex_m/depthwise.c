/* Depthwise convolution in packed halfwords: four channels at a time, whose rows are packed two by two to strips.
 *
 * Filters of 3, 5 and 7 rows and columns slide over the strips; others, and those over narrow maps, are added up tap by
 * tap, four channels at a time where these lie side by side. */
#include "smidgen.h"

#include "slide.h"
#include "squares.h"
#include "strips.h"
#include "tapwise.h"
#include "threes.h"

/* Lists of columns that are made once for all blocks, at most. */
enum { LISTS = 20 };

static const int8_t ZEROS[4];

static int32_t pairs(const layer *l, int32_t rows) { return ((rows - 1) * l->p->stride_h + l->k + 1) / 2; }

static int32_t phases(const layer *l) { return l->single || l->p->stride_h % 2 == 0 ? 1 : 2; }

/* Whether the words of four channels must be put together byte by byte. */
static int32_t apart(const layer *l, block of) { return l->times > 1 || of.count < BLOCK; }

/* Bytes of working memory that strips may fill. */
static int32_t room(const smg_depthwise_s8_params *p, int32_t rows, int32_t in_place) {
    const int32_t tile = rows > 1 ? SMG_SLIDE_TILE : SMG_SLIDE_ROW_TILE, columns = (tile - 1) * p->stride_w + p->k_w;
    const int32_t kept = rows > 1 && columns <= SMG_SLIDE_KEPT / (4 * SMG_SLIDE_LANES) / p->k_h ? p->k_h : 1;
    const int32_t words = p->k_h * p->k_w + kept * columns + tile, pixels = in_place ? p->x_h * p->x_w : 0;
    return SMG_SLIDE_LANES * (4 * words + pixels);
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

/* Bytes from the start of a strip to behind what a window has read of it last. */
static int32_t read_bytes(const layer *l) {
    return 4 * (l->p->stride_w == 2 ? l->half + 3 + (l->k - 1) / 2 : l->k + 3);
}

/* Prepare to slide; 0 where this geometry is for `add_up`. */
static SMG_SHORT int32_t prepare(layer *l, int32_t rows, void *scratch) {
    const smg_depthwise_s8_params *p = l->p;
    const int32_t in_place = l->x.data == l->y.data, bytes = room(p, rows, in_place);
    const int32_t whole = l->x.rows >= p->x_h && l->y.rows >= p->y_h;
    int32_t tiles = 1, width = p->y_w;
    l->width = width;
    if (p->k_h != p->k_w || (l->k != 3 && l->k != 5 && l->k != 7) || p->stride_w > 2 || width < 4) return 0;
    if (p->dilation_h != 1 || p->dilation_w != 1) return 0;
    l->single = rows == 1;
    while (!divide(l, width, whole ? rows : 1, bytes, scratch)) {
        if (width <= 4) return 0;
        width = (p->y_w / ++tiles + 3) & ~3;
    }
    return !in_place || (l->band == rows && l->width == p->y_w);
}

/* Put a block's taps together, trained channels over the frozen ones; 0 where they lie together as they are. */
static SMG_SHORT int32_t gather_taps(const layer *l, block of) {
    const int32_t taps = l->k * l->k;
    int32_t from = 0, to;
    while (from < l->w.count && l->w.channel[from] < of.first) from++;
    for (to = from; to < l->w.count && l->w.channel[to] < of.first + of.count;) to++;
    if (from == to && of.count == BLOCK) return 0;
    gather(l->w.data, l->p->y_c, taps, of, 1, l->taps);
    for (int32_t i = from; i < to; i++)
        for (int32_t t = 0; t < taps; t++)
            l->taps[t * BLOCK + l->w.channel[i] - of.first] = l->w.trained[t * l->w.count + i];
    return 1;
}

/* The lists of a block's filters, whose taps are `step` bytes apart from w on; gives their number. */
static SMG_SHORT int32_t list_filters(const layer *l, const int8_t *w, int32_t step, smg_columns *list) {
    const int32_t parities = l->p->stride_w, row = l->k * step, far = 4 * phases(l) * l->filter;
    const smg_columns *const start = list;
    uint32_t *to = l->filters;
    for (int32_t phase = 0; phase < phases(l); phase++) {
        for (int32_t i = -phase; i < l->k; i += 2) {
            for (int32_t parity = 0; parity < parities; parity++, list++) {
                const int8_t *at = w + i * row + parity * step;
                const int32_t a = i >= 0, b = i + 1 < l->k, on = parities * step;
                const smg_columns columns = {
                    a ? at : ZEROS, b ? at + row : ZEROS, a ? on : 0, b ? on : 0, 0, to, far,
                    (l->k - parity + parities - 1) / parities, l->single && !b ? SMG_ALONE_FILTER : SMG_PAIR,
                };
                *list = columns;
                to += columns.count;
            }
        }
    }
    return (int32_t)(list - start);
}

/* Begin a tile at output column ox: zeros left and right of the map, in all strips; packing leaves them as they are. */
static SMG_SHORT void begin_tile(layer *l, int32_t ox) {
    const int32_t strips = l->single ? 2 * l->k : BLOCK * pairs(l, l->band), stride = l->p->stride_w;
    for (int32_t parity = 0; parity < stride; parity++) {
        const smg_taps in = smg_taps_inside(ox * stride - l->p->pad_w + parity, l->half, stride, l->p->x_w);
        uint32_t *to = l->strips + parity * l->half;
        for (int32_t i = 0; i < strips; i++, to += l->strip) {
            for (int32_t j = 0; j < in.from; j++) to[j] = 0;
            for (int32_t j = in.to; j < l->half; j++) to[j] = 0;
        }
        l->inside[parity] = in;
    }
}

/* The input row r from column q on; the zero point where it is outside the map. */
static const int8_t *find_row(const layer *l, int32_t r, int32_t q, int32_t *step) {
    const smg_depthwise_s8_params *p = l->p;
    *step = 0;
    if (r < 0 || r >= p->x_h) return (const int8_t *)&l->zeros;
    *step = p->x_c * p->stride_w;
    return smg_row(l->x, r, p->x_w * p->x_c) + q * p->x_c;
}

/* The lists of input rows r and r + 1, or of r alone, to the strips at `to`; gives their number. */
static SMG_SHORT int32_t list_rows(const layer *l, int32_t r, int32_t alone, int32_t ox, uint32_t *to,
                                      smg_columns *list) {
    const smg_depthwise_s8_params *p = l->p;
    const smg_columns *const start = list;
    for (int32_t parity = 0; parity < p->stride_w; parity++, to += l->half) {
        const smg_taps in = l->inside[parity];
        const int32_t q = (ox + in.from) * p->stride_w - p->pad_w + parity;
        if (in.from == in.to) continue;
        list->a = find_row(l, r, q, &list->a_step);
        list->b = find_row(l, alone ? r : r + 1, q, &list->b_step);
        list->minus = smg_both(-p->x_zero);
        list->to = to + in.from;
        list->apart = 4 * l->strip;
        list->count = in.to - in.from;
        list->kind = alone ? SMG_ALONE : SMG_PAIR;
        list++;
    }
    return (int32_t)(list - start);
}

/* Lists for all pairs of rows under outputs rows [oy, oy + rows). */
static int32_t list_band(const layer *l, int32_t oy, int32_t rows, int32_t ox, smg_columns *list) {
    const int32_t top = oy * l->p->stride_h - l->p->pad_h, count = pairs(l, rows);
    int32_t lists = 0;
    for (int32_t i = 0; i < count; i++)
        lists += list_rows(l, top + 2 * i, l->single && i == count - 1, ox, l->strips + i * BLOCK * l->strip,
                           list + lists);
    return lists;
}

/* Pack columns whose channels lie apart: put their words together first. */
static SMG_SHORT void pack_apart(const layer *l, smg_columns *list, block of) {
    if (list->a_step) {
        gather(list->a, list->a_step, list->count, of, l->times, l->rows);
        list->a = l->rows;
        list->a_step = BLOCK;
    }
    if (list->b_step) {
        int8_t *to = l->rows + BLOCK * list->count;
        gather(list->b, list->b_step, list->count, of, l->times, to);
        list->b = to;
        list->b_step = BLOCK;
    }
    smg_pack_columns(list, 1, 0);
}

/* Pack a band's rows pair by pair. */
static SMG_SHORT void pack_band(const layer *l, block of, int32_t oy, int32_t rows, int32_t ox) {
    const int32_t top = oy * l->p->stride_h - l->p->pad_h, count = pairs(l, rows);
    smg_columns list[2];
    for (int32_t i = 0; i < count; i++) {
        const int32_t alone = l->single && i == count - 1;
        const int32_t lists = list_rows(l, top + 2 * i, alone, ox, l->strips + i * BLOCK * l->strip, list);
        if (!apart(l, of)) smg_pack_columns(list, lists, of.first);
        for (int32_t j = 0; apart(l, of) && j < lists; j++) pack_apart(l, list + j, of);
    }
}

/* What sliding over all strips takes that is the same for all blocks. */
static smg_slides prepare_slides(const layer *l) {
    const smg_depthwise_s8_params *p = l->p;
    const int32_t stride = p->stride_h, pair = 4 * BLOCK * l->strip, row = p->y_w * p->y_c, filter = 4 * l->filter;
    const int32_t width = (l->width & ~3) * p->y_c, odd = stride % 2;
    const smg_slides job = {
        .x = l->strips, .w = l->filters, .x_on = 4 * l->strip, .w_on = phases(l) * filter,
        .y_width = width, .stride = {stride / 2 * pair, odd * filter},
        .other = {(stride + odd) / 2 * pair, -odd * filter}, .y_c = p->y_c, .zero = 2 * p->y_zero + 1,
        .kind = l->k - 3 + (p->stride_w == 2), .down = pair - read_bytes(l),
        .across = 4 * (l->half - 4 - (l->k - 1) / 2), .y_on = row - width, .y_row = row,
        .narrow = sizeof *p->shift == 1, .last = pair - read_bytes(l),
        .share = l->single ? pair / 2 : 0, /* two channels share the strip of a single row */
        .bytes = 1,
    };
    return job;
}

/* Slide over what is packed, its outputs beginning at y; at last over the last four columns, of which some are done. */
static void slide(const layer *l, smg_slides *job, int8_t *y) {
    const int32_t column = job->y_c, width = job->y_width;
    job->y = y;
    smg_slide(job);
    if (l->width % 4 == 0) return;
    job->x += l->width - 4;
    job->y += (l->width - 4) * column;
    job->y_width = 4 * column;
    job->y_on = job->y_row - job->y_width;
    smg_slide(job);
    job->x -= l->width - 4;
    job->y_width = width;
    job->y_on = job->y_row - width;
}

/* Whether the assembly can scale channels [first, end), as smg_unusual says it, four at a time. */
static SMG_NOINLINE int32_t usual(const smg_depthwise_s8_params *p, int32_t first, int32_t end) {
    const int32_t *m = p->multiplier + first;
    const int8_t *shift = p->shift + first, *const last = p->shift + end;
    int32_t all = INT32_MAX;
    uint32_t signs = 0x80808080u;
    for (; last - shift >= 4; m += 4, shift += 4) {
        all &= m[0] & m[1] & m[2] & m[3];
        signs &= smg_four(shift);
    }
    for (; shift != last; m++, shift++) {
        all &= *m;
        signs &= (uint32_t)*shift;
    }
    return all >= 1 << 30 && signs == 0x80808080u;
}

/* A tile of output columns from ox on, rows [y0, y1). What is the same for all blocks is listed once, if it fits. */
static SMG_NOINLINE void slide_tile(const layer *l, int32_t ox, int32_t y0, int32_t y1) {
    const smg_depthwise_s8_params *p = l->p;
    smg_columns list[LISTS];
    smg_slides job = prepare_slides(l);
    const int32_t filters = list_filters(l, l->w.data, p->y_c, list);
    const int32_t once = y1 - y0 <= l->band && filters + pairs(l, y1 - y0) * p->stride_w <= LISTS;
    const int32_t lists = once ? filters + list_band(l, y0, y1 - y0, ox, list + filters) : filters;
    for (block of = {0, 0}; of.first < p->y_c; of.first += BLOCK) {
        of.count = smg_min(BLOCK, p->y_c - of.first);
        if (!l->usual && !usual(p, of.first, of.first + of.count)) continue;
        const int32_t taps = gather_taps(l, of), plain = !taps && once && !apart(l, of);
        if (taps) list_filters(l, l->taps, BLOCK, list);
        smg_pack_columns(list, plain ? lists : filters, taps ? 0 : of.first);
        if (taps) list_filters(l, l->w.data, p->y_c, list);
        job.bias = l->b + of.first;
        job.multiplier = p->multiplier + of.first;
        job.shift = p->shift + of.first;
        job.channels = of.count;
        for (int32_t oy = y0; oy < y1; oy += l->band) {
            job.rows = smg_min(l->band, y1 - oy);
            if (!plain) pack_band(l, of, oy, job.rows, ox);
            slide(l, &job, smg_row(l->y, oy, job.y_row) + ox * p->y_c + of.first);
        }
    }
}

/* One output of some channels, from those from `at` on of a map of c channels: four at a time where that can be. */
static void add_pixel(const layer *l, block of, smg_map x, int32_t c, int32_t at, int32_t oy, int32_t ox, int8_t *y) {
    const smg_depthwise_s8_params *p = l->p;
    smg_block_job job;
    const int32_t whole = l->words && list_taps(l, x, c, oy, ox, &job) ? of.count & ~(BLOCK - 1) : 0;
    const int8_t *from = whole ? job.x + at : 0, *w = whole ? job.w + of.first : 0;
    for (int32_t n = 0; n < of.count; n++) {
        if (n < whole && n % BLOCK == 0) {
            job.x = from + n;
            job.w = w + n;
            job.minus = smg_both(-p->x_zero);
            job.zero = 2 * p->y_zero + 1;
            job.blocks = (whole - n) / BLOCK;
            job.bias = l->b + of.first + n;
            job.multiplier = p->multiplier + of.first + n;
            job.shift = p->shift + of.first + n;
            job.y = y + n;
            n = whole - BLOCK * smg_cross(&job);
        }
        const int32_t channel = l->times == 1 ? at + n : (of.first + n) / l->times;
        if (n < of.count) y[n] = add_taps(l, x, c, channel, of.first + n, oy, ox);
    }
}

/* Whether the assembly can scale channels of several outputs at once. */
static int32_t near(const smg_depthwise_s8_params *p, block of) {
    int32_t any = 0;
    for (int32_t n = of.first; n < of.first + of.count; n++)
        any |= smg_unusual(p->multiplier[n], p->shift[n]) | (-3 - p->shift[n]) | (p->shift[n] + 17);
    return any >= 0;
}

/* Outputs [ox, ox + count) of row oy, whose windows end at no side of the map: all at once. 0 where that cannot be. */
static int32_t add_pixels(const layer *l, block of, smg_map x, int32_t c, int32_t at, int32_t oy, int32_t ox,
                          int32_t count) {
    const smg_depthwise_s8_params *p = l->p;
    smg_block_job job = {
        .minus = smg_both(-p->x_zero), .zero = 2 * p->y_zero + 1, .blocks = of.count / BLOCK, .bias = l->b + of.first,
        .multiplier = p->multiplier + of.first, .shift = p->shift + of.first, .pixels = count,
        .x_step = p->stride_w * c, .y_step = p->y_c,
    };
    if (!list_taps(l, x, c, oy, ox, &job)) return 0;
    job.x += at;
    job.w += of.first;
    job.y = smg_row(l->y, oy, p->y_w * p->y_c) + ox * p->y_c + of.first;
    smg_cross_pixels(&job);
    return count;
}

/* Some channels tap by tap; where the output is about to take the place of their input, which are a block, that is
 * copied first. */
static SMG_SHORT void add_up(const layer *l, block of, int32_t y0, int32_t y1, int8_t *copy) {
    const smg_depthwise_s8_params *p = l->p;
    const int32_t in_place = l->x.data == l->y.data;
    const smg_map copied = {copy, p->x_h};
    if (in_place) gather(l->x.data, p->x_c, p->x_h * p->x_w, of, 1, copy);
    const smg_map x = in_place ? copied : l->x;
    const int32_t c = in_place ? BLOCK : p->x_c, at = in_place ? 0 : of.first;
    const int32_t first = (p->pad_w + p->stride_w - 1) / p->stride_w, reach = (p->k_w - 1) * p->dilation_w;
    const int32_t inside = p->x_w + p->pad_w - reach; /* columns of the padded map at which windows that fit begin */
    const int32_t count = inside > 0 ? smg_min((inside - 1) / p->stride_w + 1, p->y_w) - first : 0;
    const int32_t many = count > 1 && l->words && of.count % BLOCK == 0 && near(p, of);
    for (int32_t oy = y0; oy < y1; oy++) {
        int8_t *y = smg_row(l->y, oy, p->y_w * p->y_c) + of.first;
        for (int32_t ox = 0; ox < p->y_w; ox++) {
            const int32_t done = many && ox == first ? add_pixels(l, of, x, c, at, oy, ox, count) : 0;
            if (done)
                ox += done - 1;
            else
                add_pixel(l, of, x, c, at, oy, ox, y + ox * p->y_c);
        }
    }
}

/* Whether the layer is a whole square, with scales for the kernel of squares. */
static int32_t is_square(const smg_depthwise_s8_params *p, smg_map x, smg_map y, int32_t rows) {
    int32_t any = 0;
    if (!SMG_IS_SQUARE(p) || rows != p->y_h || x.rows < rows || y.rows < rows || p->y_c % BLOCK) return 0;
    for (int32_t n = 0; n < p->y_c; n++) any |= smg_unusual(p->multiplier[n], p->shift[n]) | (-2 - p->shift[n]);
    return any >= 0;
}

void smg_depthwise_s8(const smg_depthwise_s8_params *p, const smg_map *x, const smg_weights *w, const int32_t *b,
                      const smg_map *y, int32_t y0, int32_t y1, void *scratch) {
    layer l = {.p = p, .x = *x, .y = *y, .w = *w, .b = b, .times = p->y_c / p->x_c, .k = p->k_w};
    const int32_t in_place = x->data == y->data, threes = y1 - y0 == 1 && !in_place && smg_are_threes(p) && usual(p, 0, p->y_c);
    const int32_t square = is_square(p, *x, *y, y1 - y0), slides = !threes && !square && prepare(&l, y1 - y0, scratch);
    l.words = l.times == 1 && w->count == 0;
    l.usual = slides && usual(p, 0, p->y_c);
    l.zeros = (uint32_t)(uint8_t)p->x_zero * 0x01010101u;
    const int32_t singly = slides || in_place, whole = p->y_c & ~(BLOCK - 1);
    if (square) smg_depthwise_squares(p, x->data, *w, b, y->data, scratch);
    if (threes) smg_depthwise_threes(p, *x, *w, b, *y, y0, scratch);
    for (block of = {0, 0}; of.first < p->y_c && !l.usual && !threes && !square; of.first += of.count) {
        of.count = smg_min(!singly && of.first < whole ? whole : BLOCK, p->y_c - of.first);
        if (!slides || !usual(p, of.first, of.first + of.count)) add_up(&l, of, y0, y1, scratch);
    }
    for (int32_t ox = 0; slides && ox < p->y_w; ox += l.width) {
        const int32_t at = smg_min(ox, p->y_w - l.width);
        begin_tile(&l, at);
        slide_tile(&l, at, y0, y1);
    }
    for (int32_t oy = y0; oy < y1 && smg_limited(p->lo, p->hi); oy++)
        smg_limit(smg_row(*y, oy, p->y_w * p->y_c), p->y_w * p->y_c, p->lo, p->hi);
}
