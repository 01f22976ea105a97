/* The gradient of a depthwise convolution's input, sixteen channels at a time: what an element gets is the weighted sum
 * of a window of gradients. Where windows take steps, neighbouring elements have different taps of the filter: taps are
 * laid out by the element's place between two steps, each such phase in reversed order. */
#include <arm_mve.h>

#include "smidgen_training.h"

#include "grad_any.h"
#include "laying.h"
#include "sixteens.h"
#include "working_helium.h"

/* A block of channels, and working memory. */
typedef struct {
    const smg_depthwise_grad_g8_params *p;
    int32_t c, lanes;             /* the first channel, and how many there are */
    int32_t kept, left, columns;  /* rows of gradients that are held; the columns of each, `left` being the first */
    int32_t held;                 /* rows up to this one were laid out */
    int32_t *sums;                /* [SMG_GRAD_TILE][16] */
    const int8_t **rows;          /* [kept] */
    int8_t *w, *field;            /* [phases][taps][16], [kept][columns][16] */
} block;

/* The taps of `k` that belong to a phase, and those of the phases before. */
static int32_t taps_of(int32_t k, int32_t stride, int32_t phase) {
    return phase < k ? (k - 1 - phase) / stride + 1 : 0;
}

static int32_t taps_before(int32_t k, int32_t stride, int32_t phase) {
    int32_t taps = 0;
    for (int32_t i = 0; i < phase; i++) taps += taps_of(k, stride, i);
    return taps;
}

/* Where the taps of a phase begin. */
static int8_t *filter(const block *b, int32_t y_phase, int32_t x_phase) {
    const smg_depthwise_grad_g8_params *p = b->p;
    const int32_t above = taps_before(p->k_h, p->stride_h, y_phase) * p->k_w;
    const int32_t before = taps_of(p->k_h, p->stride_h, y_phase) * taps_before(p->k_w, p->stride_w, x_phase);
    return b->w + (above + before) * SMG_CHANNELS;
}

/* Some of a layer's trained channels: those of a block. */
typedef struct {
    int32_t from, to;
} trained;

/* Lay out tap t of the filters, trained ones over the frozen. */
static inline void lay_tap(const block *b, smg_weights w, trained own, int32_t t, int8_t *to) {
    vstrbq_s8(to, vldrbq_z_s8(w.data + t * b->p->y_c + b->c, vctp8q((uint32_t)b->lanes)));
    for (int32_t n = own.from; n < own.to; n++) to[w.channel[n] - b->c] = w.trained[t * w.count + n];
}

/* Lay out the filters: of each row those of a phase in reversed order. */
static void lay_filters(const block *b, smg_weights w) {
    const smg_depthwise_grad_g8_params *p = b->p;
    trained own = {0, 0};
    while (own.from < w.count && w.channel[own.from] < b->c) own.from++;
    for (own.to = own.from; own.to < w.count && w.channel[own.to] < b->c + b->lanes;) own.to++;
    for (int32_t i = 0; i < p->k_h; i++) {
        const int32_t phase = i % p->stride_h, down = taps_of(p->k_h, p->stride_h, phase) - 1 - i / p->stride_h;
        for (int32_t first = 0; first < smg_min(p->stride_w, p->k_w); first++) {
            const int32_t wide = taps_of(p->k_w, p->stride_w, first);
            int8_t *to = filter(b, phase, first) + (down + 1) * wide * SMG_CHANNELS;
            for (int32_t j = first; j < p->k_w; j += p->stride_w)
                lay_tap(b, w, own, i * p->k_w + j, to -= SMG_CHANNELS);
        }
    }
}

/* The sums of `count` elements of row iy from column ix on: of each phase by itself. */
static void sum_up(block *b, const int8_t *dy, int32_t iy, int32_t ix, int32_t count) {
    const smg_depthwise_grad_g8_params *p = b->p;
    const int32_t last = (iy + p->pad_h) / p->stride_h, phase = (iy + p->pad_h) % p->stride_h;
    const int32_t high = taps_of(p->k_h, p->stride_h, phase), top = last - high + 1, row = b->columns * SMG_CHANNELS;
    const int32_t from = smg_max(top, 0), to = smg_min(last + 1, p->y_h);
    for (b->held = smg_max(b->held, from); b->held < to; b->held++)
        smg_lay_row(dy + b->held * p->y_w * p->y_c + b->c, p->y_c, p->y_w, b->left, 1, b->columns, b->lanes, 0,
                    b->field + b->held % b->kept * row);
    for (int32_t n = 0; n < smg_min(p->stride_w, count); n++) {
        const int32_t at = ix + n + p->pad_w, x_phase = at % p->stride_w, wide = taps_of(p->k_w, p->stride_w, x_phase);
        const int32_t column = at / p->stride_w - wide + 1 - b->left;
        const smg_channels job = {
            .rows = b->rows, .row_count = to - from, .pairs = wide / 2, .singles = wide % 2,
            .w = filter(b, phase, x_phase) + (from - top) * wide * SMG_CHANNELS,
            .x_on = SMG_CHANNELS, .pixels = (count - n + p->stride_w - 1) / p->stride_w,
            .y = b->sums + n * SMG_CHANNELS, .y_on = p->stride_w * SMG_CHANNELS * 4,
        };
        if (wide == 0 || from >= to) { /* no output saw these elements */
            for (int32_t i = n; i < count; i += p->stride_w)
                for (int32_t k = 0; k < SMG_CHANNELS; k += 4) vstrwq_s32(b->sums + i * SMG_CHANNELS + k, vdupq_n_s32(0));
            continue;
        }
        for (int32_t r = from; r < to; r++)
            b->rows[r - from] = b->field + r % b->kept * row + column * SMG_CHANNELS;
        smg_sum_channels(&job);
    }
}

/* Whether it is done here; where not, as in portable C. */
static int regular(const smg_depthwise_grad_g8_params *p) {
    return p->x_c == p->y_c && p->x_c % 8 == 0 && p->dilation_h == 1 && p->dilation_w == 1 && p->pad_h >= 0 &&
           p->pad_w >= 0;
}

static void all_channels(const smg_depthwise_grad_g8_params *p, smg_rounding *r, const int8_t *dy, smg_weights w,
                         const uint8_t *mask, int8_t *dx, void *scratch) {
    block b = {.p = p, .kept = taps_of(p->k_h, p->stride_h, 0), .sums = scratch};
    b.left = p->pad_w / p->stride_w - taps_of(p->k_w, p->stride_w, 0) + 1;
    b.columns = (p->x_w - 1 + p->pad_w) / p->stride_w - b.left + 1;
    b.rows = (const int8_t **)(b.sums + smg_min(p->x_w, SMG_GRAD_TILE) * SMG_CHANNELS);
    b.w = (int8_t *)(b.rows + b.kept);
    b.field = b.w + p->k_h * p->k_w * SMG_CHANNELS;
    for (; b.c < p->x_c; b.c += SMG_CHANNELS) {
        b.lanes = smg_min(SMG_CHANNELS, p->x_c - b.c);
        b.held = 0;
        lay_filters(&b, w);
        for (int32_t iy = 0; iy < p->x_h; iy++)
            for (int32_t ix = 0; ix < p->x_w; ix += SMG_GRAD_TILE) {
                const int32_t count = smg_min(SMG_GRAD_TILE, p->x_w - ix);
                const int32_t index = (iy * p->x_w + ix) * p->x_c + b.c;
                sum_up(&b, dy, iy, ix, count);
                smg_round_channels(r, b.sums, count, b.lanes, b.c, index, p->x_c, mask, dx + index);
            }
    }
}

void smg_depthwise_grad_g8(const smg_depthwise_grad_g8_params *p, const int8_t *dy, const smg_weights *w,
                           const uint8_t *mask, const int32_t *step_state, int8_t *dx, int32_t *peak_bits,
                           void *scratch) {
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    if (regular(p))
        all_channels(p, &r, dy, *w, mask, dx, scratch);
    else
        smg_depthwise_grad_any(p, &r, dy, *w, mask, dx, scratch);
    *peak_bits = (int32_t)r.peak_bits;
}
