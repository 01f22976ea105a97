/* 2-D convolution in vectors of sixteen bytes: four channels' filters against pixel after pixel.
 *
 * The zero point is taken into the bias, so windows are multiplied as they lie in the map; those that do not lie in
 * one piece are copied, as many as there is room for. */
#include <arm_mve.h>

#include "smidgen.h"

#include "arithmetic.h"
#include "noinline.h"
#include "pixels.h"
#include "window.h"
#include "working_helium.h"

/* One group's filters, and working memory. */
typedef struct {
    const smg_conv2d_s8_params *p;
    smg_map x;
    smg_weights w;
    const int32_t *b;
    int32_t in, out, k; /* input and output channels of the group, elements of a window */
    int32_t c, first;   /* where they begin */
    int32_t windows;    /* that there is room for */
    int8_t *room;       /* for four filters that are packed, of windows that are longer than SMG_UNPACKED */
    int8_t *filters;    /* [4][k], where some of their channels are trained */
    int8_t *copied;     /* [windows][k] */
} layer;

static void copy(const int8_t *from, int8_t *to, int32_t count) {
    for (; count > 0; count -= 16, from += 16, to += 16) {
        const mve_pred16_t some = vctp8q((uint32_t)count);
        vstrbq_p_s8(to, vldrbq_z_s8(from, some), some);
    }
}

static void fill(int8_t *to, int32_t value, int32_t count) {
    for (; count > 0; count -= 16, to += 16) vstrbq_p_s8(to, vdupq_n_s8((int8_t)value), vctp8q((uint32_t)count));
}

/* Whether the taps of a window's row lie side by side. */
static int joined(const smg_conv2d_s8_params *p) { return p->groups == 1 && p->dilation_w == 1; }

/* The window at output pixel (oy, ox), the zero point outside the map. */
static SMG_NOINLINE void gather(const layer *l, int32_t oy, int32_t ox, int8_t *to) {
    const smg_conv2d_s8_params *p = l->p;
    const int32_t top = oy * p->stride_h - p->pad_h, left = ox * p->stride_w - p->pad_w;
    const smg_taps rows = smg_taps_inside(top, p->k_h, p->dilation_h, p->x_h);
    const smg_taps columns = smg_taps_inside(left, p->k_w, p->dilation_w, p->x_w);
    const int32_t run = joined(p) ? columns.to - columns.from : 1;
    if (rows.to - rows.from < p->k_h || columns.to - columns.from < p->k_w) fill(to, p->x_zero, l->k);
    for (int32_t i = rows.from; i < rows.to; i++) {
        const int8_t *x = smg_row(l->x, top + i * p->dilation_h, p->x_w * p->x_c) + left * p->x_c + l->c;
        for (int32_t j = columns.from; j < columns.to; j += run)
            copy(x + j * p->dilation_w * p->x_c, to + (i * p->k_w + j) * l->in, run * l->in);
    }
}

/* `count` runs of bytes, `on` bytes from one to the next, for windows that lie side by side. */
static void copy_runs(const layer *l, const int8_t *from, int32_t on, int32_t length, int32_t count, int8_t *to) {
    const int32_t k = l->k;
    for (int32_t i = 0; i < length; i += 16) {
        const mve_pred16_t some = vctp8q((uint32_t)(length - i));
        const int8_t *x = from + i;
        int8_t *y = to + i;
        for (int32_t n = 0; n < count; n++, x += on, y += k) vstrbq_p_s8(y, vldrbq_z_s8(x, some), some);
    }
}

/* `count` windows of row oy from output pixel ox on. Those inside the map are copied row of taps by row. */
static void gather_all(const layer *l, int32_t oy, int32_t ox, int32_t count) {
    const smg_conv2d_s8_params *p = l->p;
    const int32_t top = oy * p->stride_h - p->pad_h, left = ox * p->stride_w - p->pad_w;
    const smg_taps firsts = smg_taps_inside(left, count, p->stride_w, p->x_w);
    const smg_taps lasts = smg_taps_inside(left + p->k_w - 1, count, p->stride_w, p->x_w);
    int32_t from = smg_max(firsts.from, lasts.from), to = smg_min(firsts.to, lasts.to);
    if (!joined(p) || top < 0 || top + (p->k_h - 1) * p->dilation_h >= p->x_h || from > to) from = to = 0;
    for (int32_t n = 0; n < from; n++) gather(l, oy, ox + n, l->copied + n * l->k);
    for (int32_t i = 0; i < p->k_h && from < to; i++) {
        const int8_t *row = smg_row(l->x, top + i * p->dilation_h, p->x_w * p->x_c);
        copy_runs(l, row + (left + from * p->stride_w) * p->x_c, p->stride_w * p->x_c, p->k_w * p->x_c, to - from,
                  l->copied + from * l->k + i * p->k_w * p->x_c);
    }
    for (int32_t n = to; n < count; n++) gather(l, oy, ox + n, l->copied + n * l->k);
}

/* Filters from n on where they lie, or four or fewer of them with what was trained of them. */
static const int8_t *filters(const layer *l, int32_t n) {
    const int32_t taps = l->p->k_h * l->p->k_w, count = smg_min(4, l->out);
    const int8_t *trained = l->w.trained + n * taps * l->w.count;
    if (l->w.count == 0) return l->w.data + n * l->k;
    copy(l->w.data + n * l->k, l->filters, count * l->k);
    for (int32_t t = 0; t < count * taps; t++, trained += l->w.count)
        for (int32_t i = 0; i < l->w.count; i += 8) {
            const mve_pred16_t some = vctp16q((uint32_t)(l->w.count - i));
            const uint16x8_t places = vreinterpretq_u16_s16(vldrhq_z_s16(l->w.channel + i, some));
            vstrbq_scatter_offset_p_s16(l->filters + t * l->in, places, vldrbq_z_s16(trained + i, some), some);
        }
    return l->filters;
}

/* Channel c, of filter w, at some pixels, one by one: where there are fewer than four channels, or one is not scaled
 * down. */
static SMG_NOINLINE void multiply_one(const layer *l, const smg_pixels *job, const int8_t *w, int32_t c, int8_t *y) {
    const smg_conv2d_s8_params *p = l->p;
    const int8_t *x = job->x;
    for (int32_t n = 0; n < job->count; n++, x += job->x_on, y += job->y_on) {
        int32_t total = l->b[c], zeros = 0;
        for (int32_t i = 0; i < job->k; i += 16) {
            const mve_pred16_t some = vctp8q((uint32_t)(job->k - i));
            const int8x16_t filters = vldrbq_z_s8(w + i, some);
            total = vmladavaq_p_s8(total, vldrbq_z_s8(x + i, some), filters, some);
            zeros = vaddvaq_s8(zeros, filters);
        }
        total = (int32_t)((uint32_t)total - (uint32_t)p->x_zero * (uint32_t)zeros);
        *y = smg_to_int8(smg_multiply(total, p->multiplier[c], p->shift[c]), p->y_zero, p->lo, p->hi);
    }
}

/* Whether all of four shifts are to the right. */
static int scaled_down(const int8_t *shift) {
    uint32_t four;
    __builtin_memcpy(&four, shift, sizeof four);
    return (four & 0x80808080u) == 0x80808080u;
}

/* Four channels from the group's n-th on at the job's pixels, or as many fours as follow and are like them, or one by one
 * all of a group that has fewer than four: gives how many channels. */
static int32_t multiply_some(const layer *l, smg_pixels *job, int32_t n, int8_t *y) {
    const smg_conv2d_s8_params *p = l->p;
    const int32_t c = l->first + n, left = (l->out - n) / 4, most = l->w.count ? smg_min(left, 1) : left;
    job->w = filters(l, n);
    job->bias = l->b + c;
    job->multiplier = p->multiplier + c;
    job->shift = p->shift + c;
    job->y = y + n;
    for (job->fours = 0; job->fours < most && scaled_down(job->shift + 4 * job->fours);) job->fours++;
    const int32_t done = 4 * job->fours, count = smg_min(4, l->out);
    if (done) {
        smg_multiply_pixels(job);
        return done;
    }
    for (int32_t i = 0; i < count; i++) multiply_one(l, job, job->w + i * l->k, c + i, y + n + i);
    return count;
}

/* All channels of the group at the job's pixels; the last four reach back over those before. */
static void multiply(const layer *l, smg_pixels *job, int8_t *y) {
    for (int32_t n = 0; n < l->out;) n += multiply_some(l, job, smg_max(smg_min(n, l->out - 4), 0), y);
}

/* Row oy, whose windows lie side by side in the map, or are copied. */
static void convolve_row(const layer *l, smg_map y, int32_t oy) {
    const smg_conv2d_s8_params *p = l->p;
    const int32_t iy = oy * p->stride_h - p->pad_h, last = (p->y_w - 1) * p->stride_w - p->pad_w + p->k_w;
    int8_t *to = smg_row(y, oy, p->y_w * p->y_c) + l->first;
    smg_pixels job = {
        .room = l->room, .k = l->k, .y_on = p->y_c, .x_zero = p->x_zero, .y_zero = p->y_zero, .lo = p->lo, .hi = p->hi,
    };
    if (p->k_h == 1 && (p->k_w == 1 || (p->groups == 1 && p->dilation_w == 1)) && p->pad_w <= 0 && last <= p->x_w &&
        iy >= 0 && iy < p->x_h) {
        job.x = smg_row(l->x, iy, p->x_w * p->x_c) - p->pad_w * p->x_c + l->c;
        job.x_on = p->stride_w * p->x_c;
        job.count = p->y_w;
        multiply(l, &job, to);
        return;
    }
    job.x = l->copied;
    job.x_on = l->k;
    for (int32_t ox = 0; ox < p->y_w; ox += l->windows) {
        job.count = smg_min(l->windows, p->y_w - ox);
        gather_all(l, oy, ox, job.count);
        multiply(l, &job, to + ox * p->y_c);
    }
}

void smg_conv2d_s8(const smg_conv2d_s8_params *p, const smg_map *x, const smg_weights *w, const int32_t *b,
                   const smg_map *y, int32_t y0, int32_t y1, void *scratch) {
    smg_conv2d_s8_params flat = *p;
    smg_map from = *x, to = *y;
    layer l = {.p = p, .b = b, .in = p->x_c / p->groups, .out = p->y_c / p->groups};
    l.k = p->k_h * p->k_w * l.in;
    l.windows = smg_max(smg_min(SMG_WINDOW_ROOM / l.k, p->y_w), 1);
    l.room = scratch;
    l.filters = l.room + (l.k > SMG_UNPACKED ? 4 * ((l.k + 15) & ~15) : 0);
    l.copied = l.filters + (w->count ? 4 * l.k : 0);
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
    for (int32_t g = 0; g < p->groups; g++, l.c += l.in, l.first += l.out) {
        const int8_t *trained = w->count ? w->trained + l.first * p->k_h * p->k_w * w->count : 0;
        const smg_weights rows = {w->data + l.first * l.k, trained, w->channel, w->count};
        l.w = rows;
        for (int32_t oy = y0; oy < y1; oy++) convolve_row(&l, to, oy);
    }
}
