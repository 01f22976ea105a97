/* The gradient of a depthwise convolution's input: see slide_grad.h. */
#include "slide_grad.h"

#include "noinline.h"
#include "slide.h"
#include "strips.h"
#include "window.h"

/* Channels that are packed at once, the most taps of a filter, and lists of its columns, at most. */
enum { BLOCK = SMG_SLIDE_BLOCK, LISTS = 8 };

/* How working memory is used. */
typedef struct {
    const smg_depthwise_grad_g8_params *p;
    int32_t strip;             /* words of a strip */
    int32_t filter;            /* words of a packed filter; windows begin at a pair's first row, or at its second */
    int32_t *sums;             /* [rows][columns][8] */
    uint32_t *filters;         /* [8 channels][2][filter] */
    uint32_t *strips;          /* [pair of rows][4 channels][strip] */
    int8_t *taps;              /* [k][k][4], where some are trained */
    smg_taps inside;           /* words of a strip that lie inside the map */
} work;

static SMG_SHORT work lay_out(const smg_depthwise_grad_g8_params *p, void *scratch) {
    const int32_t k = p->k_w, pairs = (p->x_h + k) / 2;
    work l = {.p = p, .strip = p->x_w + k - 1, .filter = (k + 1) / 2 * k, .sums = scratch};
    l.filters = (uint32_t *)(l.sums + p->x_h * p->x_w * SMG_COLUMNS);
    l.strips = l.filters + 2 * SMG_COLUMNS * l.filter;
    l.taps = (int8_t *)(l.strips + pairs * BLOCK * l.strip);
    l.inside = smg_taps_inside(p->pad_w - k + 1, l.strip, 1, p->y_w);
    for (int32_t i = 0; i < pairs * BLOCK; i++) {
        uint32_t *to = l.strips + i * l.strip;
        for (int32_t j = 0; j < l.inside.from; j++) to[j] = 0;
        for (int32_t j = l.inside.to; j < l.strip; j++) to[j] = 0;
    }
    return l;
}

/* Pack the filters of four channels from c on, turned round, both ways. */
static SMG_SHORT void pack_filters(const work *l, smg_weights w, int32_t c, uint32_t *to) {
    static const int8_t none[BLOCK];
    const int32_t k = l->p->k_w, taps = k * k;
    const int8_t *from = w.data + c;
    int32_t step = l->p->y_c;
    smg_columns list[LISTS], *end = list;
    for (int32_t i = 0; i < w.count; i++) {
        const int32_t lane = w.channel[i] - c;
        if (lane < 0 || lane >= BLOCK) continue;
        for (int32_t t = 0; t < taps; t++) {
            if (from != l->taps) __builtin_memcpy(l->taps + t * BLOCK, from + t * step, BLOCK);
            l->taps[t * BLOCK + lane] = w.trained[t * w.count + i];
        }
        from = l->taps;
        step = BLOCK;
    }
    for (int32_t phase = 0; phase < 2; phase++) {
        for (int32_t i = -phase; i < k; i += 2, end++, to += k) {
            const int8_t *at = from + (taps - 1 - i * k) * step;
            const int32_t a = i >= 0, b = i + 1 < k;
            const smg_columns columns = {a ? at : none, b ? at - k * step : none, a ? -step : 0, b ? -step : 0,
                                         0, to, 8 * l->filter, k, SMG_PAIR};
            *end = columns;
        }
    }
    smg_pack_columns(list, (int32_t)(end - list), 0);
}

/* Pack the rows of four channels, whose gradients begin at dy, with those above and below that are zeros. */
static SMG_SHORT void pack_rows(const work *l, const int8_t *dy) {
    static const int8_t none[BLOCK];
    const smg_depthwise_grad_g8_params *p = l->p;
    const int32_t k = p->k_w, top = p->pad_h - k + 1, pairs = (p->x_h + k) / 2, row = p->y_w * p->y_c;
    const int8_t *first = dy + (p->pad_w - k + 1 + l->inside.from) * p->y_c;
    for (int32_t i = 0; i < pairs; i++) {
        const int32_t r = top + 2 * i, a = r >= 0 && r < p->y_h, b = r + 1 >= 0 && r + 1 < p->y_h;
        const smg_columns list = {a ? first + r * row : none, b ? first + (r + 1) * row : none, a ? p->y_c : 0,
                                  b ? p->y_c : 0, 0, l->strips + i * BLOCK * l->strip + l->inside.from, 4 * l->strip,
                                  l->inside.to - l->inside.from, SMG_PAIR};
        if (list.count) smg_pack_columns(&list, 1, 0);
    }
}

/* The sums of four channels, packed; of the last four columns some may be done twice. */
static void sum_up(const work *l, const uint32_t *filters, int32_t *sums) {
    static const int32_t nothing[BLOCK];
    const int32_t k = l->p->k_w, pair = 4 * BLOCK * l->strip, filter = 4 * l->filter, column = 4 * SMG_COLUMNS;
    const int32_t width = l->p->x_w, row = width * column, wide = (width & ~3) * column;
    smg_slides job = {
        .bias = nothing, .channels = BLOCK, .x = l->strips, .w = filters, .x_on = 4 * l->strip, .w_on = 2 * filter,
        .y = (int8_t *)sums, .y_width = wide, .rows = l->p->x_h, .stride = {0, filter}, .other = {pair, -filter},
        .y_c = column, .kind = k - 3, .down = pair - 4 * (k + 3), .y_on = row - wide, .y_row = row,
        .multiplier = nothing, .shift = nothing, .last = pair - 4 * (k + 3), .bytes = 4,
    };
    smg_slide(&job);
    if (width % 4 == 0) return;
    job.x += width - 4;
    job.y += (width - 4) * column;
    job.y_width = 4 * column;
    job.y_on = row - job.y_width;
    smg_slide(&job);
}

void smg_slide_gradients(const smg_depthwise_grad_g8_params *p, smg_rounding *r, const int8_t *dy, smg_weights w,
                         const uint8_t *mask, int8_t *dx, void *scratch) {
    const work l = lay_out(p, scratch);
    const int32_t half = 2 * BLOCK * l.filter;
    for (int32_t c = 0; c < p->x_c; c += SMG_COLUMNS) {
        pack_filters(&l, w, c, l.filters);
        pack_filters(&l, w, c + BLOCK, l.filters + half);
        pack_rows(&l, dy + c);
        sum_up(&l, l.filters, l.sums);
        pack_rows(&l, dy + c + BLOCK);
        sum_up(&l, l.filters + half, l.sums + BLOCK);
        smg_round_columns(r, l.sums, p->x_h * p->x_w, c, c, p->x_c, mask, dx + c);
    }
}
