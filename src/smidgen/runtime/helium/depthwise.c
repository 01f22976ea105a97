/* Depthwise convolution in vectors of sixteen channels, tap by tap.
 *
 * The rows that windows look at are laid out block of channels by block, each row once: a ring of them goes down the map.
 * The zero point is taken into the bias, and rows outside the map are left out. */
#include "smidgen.h"

#include "arithmetic.h"
#include "laying.h"
#include "noinline.h"
#include "working_helium.h"

/* Weights whose sum a halfword holds. */
enum { HALFWORD = 256 };

/* A block of channels, and working memory. */
typedef struct {
    const smg_depthwise_s8_params *p;
    smg_map x;
    int32_t first, lanes, times; /* output channels, `times` of them an input channel */
    int32_t overlap;             /* windows of neighbouring pixels share columns of the field */
    int32_t tile, columns, kept; /* pixels, their columns, and rows that are held */
    int32_t held;                /* input rows up to this one were laid out */
    int32_t paired, usual;       /* two products fit 16 bits; all channels are scaled down */
    smg_taps folded;             /* rows of taps whose zero points the biases hold */
    int32_t b[SMG_CHANNELS];     /* in the order of scales */
    smg_scales scales;
    const int8_t **rows; /* [k_h] */
    int8_t *w, *field;   /* [taps][16], [kept][columns][16] */
} block;

static int32_t columns(const block *of, int32_t pixels) {
    const smg_depthwise_s8_params *p = of->p;
    return of->overlap ? (pixels - 1) * p->stride_w + p->k_w : pixels * p->k_w;
}

static void lay_out(block *of, const smg_map *y, void *scratch) {
    const smg_depthwise_s8_params *p = of->p;
    of->times = p->y_c / p->x_c;
    of->overlap = p->dilation_w == 1 && p->stride_w <= p->k_w;
    of->kept = (p->k_h - 1) * p->dilation_h + 1;
    of->tile = p->y_w;
    while (of->x.data != y->data && of->tile > 1 && of->kept * columns(of, of->tile) * SMG_CHANNELS > SMG_FIELD)
        of->tile = (of->tile + 1) / 2;
    of->columns = columns(of, of->tile);
    of->rows = scratch;
    of->w = (int8_t *)(of->rows + p->k_h);
    of->field = of->w + p->k_h * p->k_w * SMG_CHANNELS;
}

/* Where a channel's number lies in a quantity of the scales. */
static inline int32_t place(int32_t n) { return n % 4 * 4 + n / 4; }

/* Sixteen numbers in the order of scales. */
static inline void put_in_order(const int32_t *from, int32_t *to) {
    const int32x4x4_t all = vld4q_s32(from);
    for (int32_t i = 0; i < 4; i++) vstrwq_s32(to + 4 * i, all.val[i]);
}

/* What the block's channels are scaled by; those that there are not, by nothing. */
static void set_scales(block *of, const int32_t *b) {
    const smg_depthwise_s8_params *p = of->p;
    const mve_pred16_t there = vctp8q((uint32_t)of->lanes);
    smg_scales *s = &of->scales;
    int32_t bias[SMG_CHANNELS], multiplier[SMG_CHANNELS], shift[SMG_CHANNELS];
    for (int32_t i = 0; i < SMG_CHANNELS; i += 4) {
        const mve_pred16_t some = vctp32q((uint32_t)smg_max(of->lanes - i, 0));
        vstrwq_s32(bias + i, vldrwq_z_s32(b + of->first + i, some));
        vstrwq_s32(multiplier + i, vldrwq_z_s32(p->multiplier + of->first + i, some));
        vstrwq_s32(shift + i, vldrbq_z_s32(p->shift + of->first + i, some));
    }
    put_in_order(bias, of->b);
    put_in_order(multiplier, s->multiplier);
    put_in_order(shift, s->shift);
    of->usual = vmaxvq_p_s8(-128, vldrbq_z_s8(p->shift + of->first, there), there) < 0;
    vstrbq_s8(s->lo, vdupq_n_s8((int8_t)p->lo));
    vstrbq_s8(s->hi, vdupq_n_s8((int8_t)p->hi));
    of->folded.from = of->folded.to = -1;
}

/* Lay out the filters of the block's channels, trained ones over the frozen. */
static void lay_filters(block *of, const smg_weights *w) {
    const smg_depthwise_s8_params *p = of->p;
    const mve_pred16_t some = vctp8q((uint32_t)of->lanes);
    const int32_t taps = p->k_h * p->k_w;
    int8x16_t least = vdupq_n_s8(0);
    for (int32_t t = 0; t < taps; t++)
        vstrbq_s8(of->w + t * SMG_CHANNELS, vldrbq_z_s8(w->data + t * p->y_c + of->first, some));
    for (int32_t c = 0; c < w->count; c++) {
        const int32_t n = w->channel[c] - of->first;
        for (int32_t t = 0; t < taps && n >= 0 && n < of->lanes; t++)
            of->w[t * SMG_CHANNELS + n] = w->trained[t * w->count + c];
    }
    for (int32_t t = 0; t < taps; t++) least = vminq_s8(least, vldrbq_s8(of->w + t * SMG_CHANNELS));
    of->paired = vminvq_s8(0, least) > -128;
}

/* The sum of some vectors of weights, whose halves a halfword each holds, is taken off the biases, `zero` times. */
static inline void take_off(int32_t *bias, const int8_t *w, int32_t count, int32_t zero) {
    int16x8_t even = vdupq_n_s16(0), odd = even;
    for (; count > 0; count--, w += SMG_CHANNELS) {
        const int8x16_t all = vldrbq_s8(w);
        even = vaddq_s16(even, vmovlbq_s8(all));
        odd = vaddq_s16(odd, vmovltq_s8(all));
    }
    vstrwq_s32(bias, vmlaq_n_s32(vldrwq_s32(bias), vmovlbq_s16(even), -zero));
    vstrwq_s32(bias + 4, vmlaq_n_s32(vldrwq_s32(bias + 4), vmovlbq_s16(odd), -zero));
    vstrwq_s32(bias + 8, vmlaq_n_s32(vldrwq_s32(bias + 8), vmovltq_s16(even), -zero));
    vstrwq_s32(bias + 12, vmlaq_n_s32(vldrwq_s32(bias + 12), vmovltq_s16(odd), -zero));
}

/* Biases that hold the zero points of some rows of taps. */
static SMG_NOINLINE void fold(block *of, smg_taps rows) {
    const int32_t end = rows.to * of->p->k_w;
    int32_t *bias = of->scales.bias;
    for (int32_t i = 0; i < SMG_CHANNELS; i += 4) vstrwq_s32(bias + i, vldrwq_s32(of->b + i));
    for (int32_t t = rows.from * of->p->k_w; t < end; t += HALFWORD)
        take_off(bias, of->w + t * SMG_CHANNELS, smg_min(HALFWORD, end - t), of->p->x_zero);
    of->folded = rows;
}

/* Columns as smg_lay_row lays them, of channels that serve several outputs each. */
static SMG_NOINLINE void lay_repeated(const block *of, const int8_t *row, int32_t left, int32_t step, int32_t count,
                                      int8_t *to) {
    const smg_depthwise_s8_params *p = of->p;
    for (int32_t i = 0, ix = left; i < count; i++, ix += step, to += SMG_CHANNELS)
        for (int32_t n = 0; n < SMG_CHANNELS; n++) {
            const int32_t c = (of->first + n) / of->times, inside = ix >= 0 && ix < p->x_w && n < of->lanes;
            to[n] = (int8_t)(inside ? row[ix * p->x_c + c] : p->x_zero);
        }
}

/* Some columns of input row r. */
static void lay_columns(const block *of, int32_t r, int32_t left, int32_t step, int32_t count, int8_t *to) {
    const smg_depthwise_s8_params *p = of->p;
    const int8_t *row = smg_row(of->x, r, p->x_w * p->x_c);
    if (of->times > 1)
        lay_repeated(of, row, left, step, count, to);
    else
        smg_lay_row(row + of->first, p->x_c, p->x_w, left, step, count, of->lanes, p->x_zero, to);
}

/* Lay out rows down to the last that the windows of some pixels look at. */
static void lay_rows(block *of, int32_t top, int32_t ox, int32_t pixels) {
    const smg_depthwise_s8_params *p = of->p;
    const int32_t left = ox * p->stride_w - p->pad_w, end = smg_min(top + of->kept, p->x_h);
    for (of->held = smg_max(of->held, top); of->held < end; of->held++) {
        int8_t *to = of->field + of->held % of->kept * of->columns * SMG_CHANNELS;
        if (of->overlap)
            lay_columns(of, of->held, left, 1, columns(of, pixels), to);
        else
            for (int32_t n = 0; n < pixels; n++)
                lay_columns(of, of->held, left + n * p->stride_w, p->dilation_w, p->k_w,
                            to + n * p->k_w * SMG_CHANNELS);
    }
}

/* Windows of any scales, one by one. */
static SMG_NOINLINE void convolve_any(const block *of, smg_channels job) {
    const smg_depthwise_s8_params *p = of->p;
    int32_t sums[SMG_CHANNELS] = {0}, left = job.pixels, moved = 0;
    int8_t *y = job.y;
    const int8_t **rows = of->rows;
    for (job.pixels = 1, job.y = sums; left--; y += job.y_on, moved = job.x_on) {
        for (int32_t i = 0; i < job.row_count; i++) rows[i] += moved;
        if (job.row_count) smg_sum_channels(&job);
        for (int32_t n = 0; n < of->lanes; n++) {
            const uint32_t sum = (uint32_t)sums[n] + (uint32_t)of->scales.bias[place(n)];
            const int32_t c = of->first + n, scaled = smg_multiply((int32_t)sum, p->multiplier[c], p->shift[c]);
            y[n] = smg_to_int8(scaled, p->y_zero, p->lo, p->hi);
        }
    }
}

/* Some pixels of row oy. */
static void convolve(block *of, int32_t oy, int32_t ox, int32_t pixels, int8_t *y) {
    const smg_depthwise_s8_params *p = of->p;
    const int32_t top = oy * p->stride_h - p->pad_h;
    const smg_taps inside = smg_taps_inside(top, p->k_h, p->dilation_h, p->x_h);
    const smg_channels job = {
        .rows = of->rows, .row_count = inside.to - inside.from, .w = of->w + inside.from * p->k_w * SMG_CHANNELS,
        .pairs = of->paired ? p->k_w / 2 : 0, .singles = of->paired ? p->k_w % 2 : p->k_w,
        .x_on = (of->overlap ? p->stride_w : p->k_w) * SMG_CHANNELS, .pixels = pixels,
        .scales = &of->scales, .y = y, .y_on = p->y_c, .zero = p->y_zero, .lanes = of->lanes,
    };
    lay_rows(of, top, ox, pixels);
    if (of->folded.from != inside.from || of->folded.to != inside.to) fold(of, inside);
    for (int32_t i = inside.from; i < inside.to; i++)
        of->rows[i - inside.from] = of->field + (top + i * p->dilation_h) % of->kept * of->columns * SMG_CHANNELS;
    if (of->usual && job.row_count)
        smg_scale_channels(&job);
    else
        convolve_any(of, job);
}

void smg_depthwise_s8(const smg_depthwise_s8_params *p, const smg_map *x, const smg_weights *w, const int32_t *b,
                      const smg_map *y, int32_t y0, int32_t y1, void *scratch) {
    block of;
    of.p = p;
    of.x = *x;
    lay_out(&of, y, scratch);
    for (of.first = 0; of.first < p->y_c; of.first += SMG_CHANNELS) {
        of.lanes = smg_min(SMG_CHANNELS, p->y_c - of.first);
        set_scales(&of, b);
        lay_filters(&of, w);
        for (int32_t ox = 0; ox < p->y_w; ox += of.tile) {
            const int32_t pixels = smg_min(of.tile, p->y_w - ox);
            of.held = 0;
            for (int32_t oy = y0; oy < y1; oy++)
                convolve(&of, oy, ox, pixels, smg_row(*y, oy, p->y_w * p->y_c) + ox * p->y_c + of.first);
        }
    }
}
