/* What a depthwise convolution is, a block of its channels, and the taps of its windows, whatever their shape. */
#ifndef SMIDGEN_TAPWISE_H
#define SMIDGEN_TAPWISE_H

#include "arithmetic.h"
#include "fours.h"
#include "noinline.h"
#include "packed.h"
#include "scales.h"
#include "window.h"
#include "working_packed.h"

enum { BLOCK = SMG_SLIDE_BLOCK }; /* channels at once */

/* One call, and how it uses working memory. */
typedef struct {
    const smg_depthwise_s8_params *p;
    smg_map x, y;
    smg_weights w;
    const int32_t *b;
    int32_t times, k, usual; /* usual: what slides can scale all channels */
    int32_t words;       /* four channels lie side by side, and so do their weights */
    int32_t single;      /* one row of outputs: the last row of its windows is packed alone */
    int32_t width, band; /* output columns and rows whose strips are held */
    int32_t half, strip; /* words of a strip for one parity of columns, and for all */
    smg_taps inside[2];  /* of them, by parity: what lies inside the map */
    int32_t filter;      /* words of a packed filter */
    uint32_t *filters;   /* [4 channels][phase][filter]: windows begin at a pair's first row, or at its second */
    uint32_t *strips;    /* [pair of rows][4 channels][strip]; of a single row [2][strip] */
    int8_t *taps, *rows; /* [k][k][4], and [2 rows][columns][4], where the channels of a block lie apart */
    uint32_t zeros;      /* the input's zero point, four times */
} layer;

/* Channels [first, first + count). */
typedef struct {
    int32_t first, count;
} block;

/* The words of `columns` columns of a row, four channels each, put together from where they lie. */
static SMG_SHORT void gather(const int8_t *x, int32_t step, int32_t columns, block of, int32_t times, int8_t *to) {
    if (times == 1 && of.count == BLOCK) {
        for (int32_t q = 0; q < columns; q++, to += BLOCK) __builtin_memcpy(to, x + of.first + q * step, BLOCK);
        return;
    }
    for (int32_t q = 0; q < columns; q++, x += step, to += BLOCK)
        for (int32_t n = 0; n < BLOCK; n++) to[n] = n < of.count ? x[(of.first + n) / times] : 0;
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

/* Taps as runs: along rows or along columns, whichever there are more of. 0 where a ring of rows ends between them. */
static int32_t list_taps(const layer *l, smg_map x, int32_t c, int32_t oy, int32_t ox, smg_block_job *job) {
    const smg_depthwise_s8_params *p = l->p;
    const int32_t top = oy * p->stride_h - p->pad_h, left = ox * p->stride_w - p->pad_w, row = p->x_w * c;
    const smg_taps rows = smg_taps_inside(top, p->k_h, p->dilation_h, p->x_h);
    const smg_taps columns = smg_taps_inside(left, p->k_w, p->dilation_w, p->x_w);
    const int32_t high = rows.to - rows.from, wide = columns.to - columns.from, down = high > wide;
    const int32_t first = top + rows.from * p->dilation_h, last = first + (high - 1) * p->dilation_h;
    job->x = x.data;
    job->w = l->w.data;
    job->runs = down ? wide : high;
    job->count = down ? high : wide;
    if (high <= 0 || wide <= 0) {
        job->runs = 1;
        job->count = 0;
        return 1;
    }
    if (last >= x.rows && first / x.rows != last / x.rows) return 0;
    job->x = smg_row(x, first, row) + (left + columns.from * p->dilation_w) * c;
    job->w = l->w.data + (rows.from * p->k_w + columns.from) * p->y_c;
    job->x_on = down ? p->dilation_h * row : p->dilation_w * c;
    job->w_on = down ? p->k_w * p->y_c : p->y_c;
    job->x_row = down ? p->dilation_w * c : p->dilation_h * row;
    job->w_row = down ? p->y_c : p->k_w * p->y_c;
    return 1;
}

#endif
