/* Depthwise filters of 3x3 over a single row of outputs: see threes.h. */
#include "threes.h"

#include "noinline.h"
#include "packed.h"
#include "scales.h"
#include "strips.h"
#include "window.h"
#include "working_packed.h"

/* Channels at once, and words of a packed filter. */
enum { BLOCK = SMG_SLIDE_BLOCK, FILTER = 7 };

/* A row of outputs, and how it uses working memory. */
typedef struct {
    const smg_depthwise_s8_params *p;
    smg_map x;
    smg_weights w;
    int32_t width;                         /* output columns at once */
    int32_t upper, third;                  /* words of a channel's strips */
    uint32_t *filters, *strips, *sideways; /* [4 channels] of words, each */
    int8_t *taps;                          /* [3][3][4], where some are trained */
    uint32_t zeros;                        /* the input's zero point, four times */
} layer;

/* Divide working memory: as wide a tile as fits. */
static void divide(layer *l, uint32_t *scratch) {
    const smg_depthwise_s8_params *p = l->p;
    int32_t tiles = 1, width = p->y_w;
    while (l->upper = (width - 1) * p->stride_w + 3, l->third = width * p->stride_w / 2 + 2,
           4 * BLOCK * (l->upper + l->third) > SMG_THREES_STRIPS && width > 4)
        width = (p->y_w / ++tiles + 3) & ~3;
    l->width = width;
    l->filters = scratch;
    l->strips = l->filters + BLOCK * FILTER;
    l->sideways = l->strips + BLOCK * l->upper;
    l->taps = (int8_t *)(l->sideways + BLOCK * l->third);
}

/* Put a block's taps together where channels of it are trained; 0 where none are. */
static SMG_SHORT int32_t gather_taps(const layer *l, int32_t c) {
    int32_t any = 0;
    for (int32_t i = 0; i < l->w.count; i++) {
        const int32_t lane = l->w.channel[i] - c;
        if (lane < 0 || lane >= BLOCK) continue;
        for (int32_t t = 0; t < 9; t++) {
            if (!any) __builtin_memcpy(l->taps + t * BLOCK, l->w.data + t * l->p->y_c + c, BLOCK);
            l->taps[t * BLOCK + lane] = l->w.trained[t * l->w.count + i];
        }
        any = 1;
    }
    return any;
}

/* Where input row r begins; the zero point where it is outside the map. */
static const int8_t *find_row(const layer *l, int32_t r) {
    return r < 0 || r >= l->p->x_h ? 0 : smg_row(l->x, r, l->p->x_w * l->p->x_c);
}

/* Columns of two rows, or of one, which lie `step` bytes apart, as a list. */
static smg_columns list_columns(const layer *l, const int8_t *a, const int8_t *b, int32_t step, uint32_t *to,
                                int32_t words, smg_taps inside) {
    const int8_t *zeros = (const int8_t *)&l->zeros;
    const smg_columns list = {a ? a : zeros, b ? b : zeros, a ? step : 0, b ? step : 0, smg_both(-l->p->x_zero),
                              to + inside.from, 4 * words, inside.to - inside.from, SMG_PAIR};
    return list;
}

/* Zeros left and right of the map, in the strips of all channels. */
static SMG_SHORT void border(uint32_t *to, int32_t words, smg_taps inside) {
    for (int32_t n = 0; n < BLOCK; n++, to += words) {
        for (int32_t i = 0; i < inside.from; i++) to[i] = 0;
        for (int32_t i = inside.to; i < words; i++) to[i] = 0;
    }
}

/* Lists for the three rows under output row oy from column ox on: two of them. */
static SMG_SHORT void list_rows(const layer *l, int32_t oy, int32_t ox, smg_columns *list) {
    const smg_depthwise_s8_params *p = l->p;
    const int32_t top = oy * p->stride_h - p->pad_h, left = ox * p->stride_w - p->pad_w, even = left - p->pad_w % 2;
    const smg_taps columns = smg_taps_inside(left, l->upper, 1, p->x_w);
    const smg_taps pairs = smg_taps_inside(even, l->third, 2, p->x_w);
    const int32_t c = p->x_c, at = (left + columns.from) * c, aside = (even + 2 * pairs.from) * c;
    const int8_t *row[3];
    for (int32_t i = 0; i < 3; i++) row[i] = find_row(l, top + i);
    border(l->strips, l->upper, columns);
    border(l->sideways, l->third, pairs);
    list[0] = list_columns(l, row[0] ? row[0] + at : 0, row[1] ? row[1] + at : 0, c, l->strips, l->upper, columns);
    list[1] = list_columns(l, row[2] ? row[2] + aside : 0, row[2] ? row[2] + aside + c : 0, 2 * c, l->sideways, l->third,
                           pairs);
}

/* A tile of output columns of row oy, from ox on. */
static void run_tile(const layer *l, const int32_t *b, int32_t oy, int32_t ox, int8_t *y) {
    const smg_depthwise_s8_params *p = l->p;
    const int32_t begin = p->stride_w == 1 ? SMG_IN_TURN : p->pad_w % 2 ? SMG_LATE : SMG_EARLY;
    smg_columns list[2];
    list_rows(l, oy, ox, list);
    for (int32_t c = 0; c < p->y_c; c += BLOCK, y += BLOCK) {
        const smg_threes job = {
            l->strips, 4 * l->upper, l->sideways, 4 * l->third, l->filters, b + c, p->multiplier + c, p->shift + c,
            y, y + l->width * p->y_c, p->y_c, 2 * p->y_zero + 1, p->stride_w == 2,
        };
        if (gather_taps(l, c))
            smg_pack_threes(l->taps, BLOCK, l->filters, begin);
        else
            smg_pack_threes(l->w.data + c, p->y_c, l->filters, begin);
        smg_pack_columns(list, 2, c);
        smg_run_threes(&job);
    }
}

void smg_depthwise_threes(const smg_depthwise_s8_params *p, smg_map x, smg_weights w, const int32_t *b, smg_map y,
                          int32_t oy, void *scratch) {
    layer l = {.p = p, .x = x, .w = w, .zeros = (uint32_t)(uint8_t)p->x_zero * 0x01010101u};
    divide(&l, scratch);
    int8_t *row = smg_row(y, oy, p->y_w * p->y_c);
    for (int32_t ox = 0; ox < p->y_w; ox += l.width) {
        const int32_t at = smg_min(ox, p->y_w - l.width);
        run_tile(&l, b, oy, at, row + at * p->y_c);
    }
}
