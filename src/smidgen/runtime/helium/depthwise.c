/* Depthwise convolution in vectors of sixteen bytes: a window of one channel is multiplied at once.
 *
 * For eight channels and a tile of a row's pixels, the columns that windows look at are laid out channel by channel,
 * each column's rows side by side: a window is then one piece. The zero point is taken into the bias. */
#include <arm_mve.h>

#include "smidgen.h"

#include "arithmetic.h"
#include "noinline.h"
#include "slide_windows.h"
#include "window.h"
#include "working_helium.h"

enum { VECTOR = 16, PIXELS = 4 };

/* A block of channels, and working memory. */
typedef struct {
    const smg_depthwise_s8_params *p;
    smg_map x;
    int32_t first, count, times; /* output channels, `times` of them an input channel */
    int32_t taps, vectors;       /* of a window */
    int32_t overlap;             /* windows of neighbouring pixels share columns of a strip */
    int32_t tile, apart;         /* pixels; bytes from strip to strip */
    int32_t held, kept;          /* input rows that were copied, how many copies there are: the output takes the
                                    input's place; none where it does not */
    int8_t *w;                   /* [lane][vectors][16] */
    int8_t *strips;              /* [lane][column][row] */
    int8_t *copies;              /* [kept][column][lane] */
    uint16x8_t from, to, filter; /* of each lane: bytes from the first input channel, strip and filter */
} block;

static int32_t columns(const block *of, int32_t pixels) {
    const smg_depthwise_s8_params *p = of->p;
    return of->overlap ? (pixels - 1) * p->stride_w + p->k_w : pixels * p->k_w;
}

static block lay_out(const smg_depthwise_s8_params *p, const smg_map *x, const smg_map *y, void *scratch) {
    block of = {.p = p, .x = *x, .times = p->y_c / p->x_c, .taps = p->k_h * p->k_w, .tile = PIXELS};
    of.vectors = (of.taps + VECTOR - 1) / VECTOR;
    of.overlap = p->dilation_w == 1 && p->stride_w <= p->k_w;
    while (of.tile < p->y_w && columns(&of, of.tile + PIXELS) * p->k_h <= SMG_STRIP) of.tile += PIXELS;
    of.apart = columns(&of, of.tile) * p->k_h;
    of.kept = x->data == y->data ? (p->k_h - 1) * p->dilation_h + 1 : 0;
    of.w = scratch;
    of.strips = of.w + SMG_CHANNELS * of.vectors * VECTOR;
    of.copies = of.strips + SMG_CHANNELS * of.apart + VECTOR;
    return of;
}

/* Lay out the filters of the block's channels, trained ones over the frozen. */
static void lay_filters(block *of, const smg_weights *w) {
    const smg_depthwise_s8_params *p = of->p;
    const mve_pred16_t some = vctp16q((uint32_t)of->count);
    const int32_t apart = of->vectors * VECTOR;
    const uint16x8_t lane = vidupq_n_u16(0, 1);
    uint16_t offsets[SMG_CHANNELS];
    for (int32_t n = 0; n < SMG_CHANNELS; n++)
        offsets[n] = (uint16_t)((of->first + smg_min(n, of->count - 1)) / of->times - of->first / of->times);
    of->from = vldrhq_u16(offsets);
    of->to = vmulq_n_u16(lane, (uint16_t)of->apart);
    of->filter = vmulq_n_u16(lane, (uint16_t)apart);
    for (int32_t i = 0; i < SMG_CHANNELS * apart; i += VECTOR) vstrbq_s8(of->w + i, vdupq_n_s8(0));
    for (int32_t i = 0; i < p->k_h; i++)
        for (int32_t j = 0; j < p->k_w; j++)
            vstrbq_scatter_offset_p_s16(of->w + j * p->k_h + i, of->filter,
                                        vldrbq_z_s16(w->data + (i * p->k_w + j) * p->y_c + of->first, some), some);
    for (int32_t c = 0; c < w->count; c++) {
        const int32_t n = w->channel[c] - of->first;
        for (int32_t t = 0; t < of->taps && n >= 0 && n < of->count; t++)
            of->w[n * apart + t % p->k_w * p->k_h + t / p->k_w] = w->trained[t * w->count + c];
    }
}

/* Lay out so many columns, `on` bytes from each to the next, of a row of the strips. */
static SMG_NOINLINE void lay(const block *of, const int8_t *x, int32_t on, int32_t count, int8_t *to) {
    const int32_t next = of->p->k_h;
    const uint16x8_t from = of->from, strips = of->to;
    for (; count > 0; count--, x += on, to += next)
        vstrbq_scatter_offset_s16(to, strips, vldrbq_gather_offset_s16(x, from));
}

static SMG_NOINLINE void lay_zeros(const block *of, int32_t count, int8_t *to) {
    const int32_t next = of->p->k_h;
    const uint16x8_t strips = of->to;
    const int16x8_t zeros = vdupq_n_s16((int16_t)of->p->x_zero);
    for (; count > 0; count--, to += next) vstrbq_scatter_offset_s16(to, strips, zeros);
}

/* Columns from `left` on of an input row, of which there may be none: `on` bytes from each to the next. */
static void lay_columns(const block *of, const int8_t *row, int32_t on, int32_t left, int32_t dilation, int32_t count,
                        int8_t *to) {
    smg_taps inside = smg_taps_inside(left, count, dilation, of->p->x_w);
    if (!row) inside.from = inside.to = 0;
    const int32_t next = of->p->k_h, within = inside.to - inside.from;
    if (inside.from) lay_zeros(of, inside.from, to);
    if (within) lay(of, row + (left + inside.from * dilation) * on, dilation * on, within, to + inside.from * next);
    if (inside.to < count) lay_zeros(of, count - inside.to, to + inside.to * next);
}

/* Where the block's channels of input row r are: in the map, or in a copy; nowhere outside the map. */
static const int8_t *find(const block *of, int32_t r, int32_t *on) {
    const smg_depthwise_s8_params *p = of->p;
    *on = of->kept ? SMG_CHANNELS : p->x_c;
    if (r < 0 || r >= p->x_h) return 0;
    if (of->kept) return of->copies + r % of->kept * p->x_w * SMG_CHANNELS;
    return smg_row(of->x, r, p->x_w * p->x_c) + of->first / of->times;
}

/* Copy input rows up to the last that row oy looks at, before the output takes their place. */
static void keep_rows(block *of, int32_t oy) {
    const smg_depthwise_s8_params *p = of->p;
    const int32_t end = smg_min(oy * p->stride_h - p->pad_h + of->kept, p->x_h);
    const mve_pred16_t some = vctp16q((uint32_t)of->count);
    for (; of->held < end; of->held++) {
        const int8_t *from = of->x.data + of->held * p->x_w * p->x_c + of->first;
        int8_t *to = of->copies + of->held % of->kept * p->x_w * SMG_CHANNELS;
        for (int32_t q = 0; q < p->x_w; q++, from += p->x_c, to += SMG_CHANNELS)
            vstrbq_s16(to, vldrbq_z_s16(from, some));
    }
}

/* Lay out what the windows of some pixels look at. */
static void lay_strips(const block *of, int32_t oy, int32_t ox, int32_t pixels) {
    const smg_depthwise_s8_params *p = of->p;
    const int32_t left = ox * p->stride_w - p->pad_w;
    for (int32_t i = 0, on; i < p->k_h; i++) {
        const int8_t *row = find(of, oy * p->stride_h - p->pad_h + i * p->dilation_h, &on);
        if (of->overlap)
            lay_columns(of, row, on, left, 1, columns(of, pixels), of->strips + i);
        else
            for (int32_t n = 0; n < pixels; n++)
                lay_columns(of, row, on, left + n * p->stride_w, p->dilation_w, p->k_w,
                            of->strips + n * of->taps + i);
    }
}

/* One channel at some pixels, whatever scales it and however large its windows are. */
static SMG_NOINLINE void convolve(const smg_slide_job *job, int32_t pixels) {
    const int8_t *x = job->x;
    int8_t *y = job->y;
    for (int32_t n = 0; n < pixels; n++, x += job->step, y += job->y_on) {
        int32_t sum = job->bias;
        for (int32_t v = 0; v < job->vectors * VECTOR; v += VECTOR)
            sum = vmladavaq_s8(sum, vldrbq_s8(x + v), vldrbq_s8(job->w + v));
        *y = smg_to_int8(smg_multiply(sum, job->multiplier, job->shift), job->zero, job->lo, job->hi);
    }
}

/* Four pixels or more of a channel that is scaled down: the last four reach back over those before. */
static void slide(smg_slide_job job, int32_t pixels) {
    const int32_t back = (PIXELS - pixels % PIXELS) % PIXELS;
    job.tiles = pixels / PIXELS;
    smg_slide_windows(&job);
    if (!back) return;
    job.x += (job.tiles * PIXELS - back) * job.step;
    job.y += (job.tiles * PIXELS - back) * job.y_on;
    job.tiles = 1;
    smg_slide_windows(&job);
}

static void convolve_tile(const block *of, const int32_t *bias, int32_t pixels, int8_t *y) {
    const smg_depthwise_s8_params *p = of->p;
    smg_slide_job job = {
        .x = of->strips, .w = of->w, .zero = p->y_zero, .lo = p->lo, .hi = p->hi, .y = y, .y_on = p->y_c,
        .step = (of->overlap ? p->stride_w : p->k_w) * p->k_h, .vectors = of->vectors,
    };
    for (int32_t n = 0; n < of->count; n++, job.x += of->apart, job.w += of->vectors * VECTOR, job.y++) {
        job.bias = bias[n];
        job.multiplier = p->multiplier[of->first + n];
        job.shift = p->shift[of->first + n];
        if (pixels >= PIXELS && job.shift < 0 && of->vectors <= 4 && of->vectors != 3)
            slide(job, pixels);
        else
            convolve(&job, pixels);
    }
}

/* Biases that hold the zero point. */
static void fold(const block *of, const int32_t *b, int32_t *bias) {
    for (int32_t n = 0; n < of->count; n++) {
        int32_t sum = 0;
        for (int32_t v = 0; v < of->vectors; v++)
            sum = vaddvaq_s8(sum, vldrbq_s8(of->w + (n * of->vectors + v) * VECTOR));
        bias[n] = (int32_t)((uint32_t)b[of->first + n] - (uint32_t)(of->p->x_zero * sum));
    }
}

void smg_depthwise_s8(const smg_depthwise_s8_params *p, const smg_map *x, const smg_weights *w, const int32_t *b,
                      const smg_map *y, int32_t y0, int32_t y1, void *scratch) {
    block of = lay_out(p, x, y, scratch);
    int32_t bias[SMG_CHANNELS];
    for (; of.first < p->y_c; of.first += SMG_CHANNELS) {
        of.count = smg_min(SMG_CHANNELS, p->y_c - of.first);
        of.held = 0;
        lay_filters(&of, w);
        fold(&of, b, bias);
        for (int32_t oy = y0; oy < y1; oy++) {
            int8_t *to = smg_row(*y, oy, p->y_w * p->y_c) + of.first;
            if (of.kept) keep_rows(&of, oy);
            for (int32_t ox = 0; ox < p->y_w; ox += of.tile) {
                const int32_t pixels = smg_min(of.tile, p->y_w - ox);
                lay_strips(&of, oy, ox, pixels);
                convolve_tile(&of, bias, pixels, to + ox * p->y_c);
            }
        }
    }
}
