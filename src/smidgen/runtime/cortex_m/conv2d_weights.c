/* The gradient of a convolution's weights, and the step they take. Of 1x1 convolutions over small maps, gradients of
 * four output channels are laid side by side first: those of one channel are looked through four at a time. */
#include "smidgen_training.h"

#include <arm_acle.h>

#include "accumulate.h"
#include "step.h"
#include "transpose.h"
#include "unroll.h"
#include "window.h"

typedef smg_conv2d_grad_weight_g8_params shape;

/* One tap of the weights of one output channel, dy's first: sums[n] = Σ (x[n] − zero) dy over all positions. */
static void tap(const shape *p, const int8_t *x, const int8_t *dy, int32_t i, int32_t j, int32_t in, int32_t *sums) {
    const int32_t top = i * p->dilation_h - p->pad_h, left = j * p->dilation_w - p->pad_w;
    const smg_taps rows = smg_taps_inside(top, p->y_h, p->stride_h, p->x_h);
    const smg_taps columns = smg_taps_inside(left, p->y_w, p->stride_w, p->x_w);
    const int32_t count = columns.to - columns.from, high = rows.to - rows.from;
    /* Where whole rows follow each other in both maps, they are taken as one. */
    const int joined = p->stride_h == 1 && p->stride_w == 1 && p->x_w == p->y_w && count == p->y_w;
    const int32_t length = joined ? high * count : count;
    int32_t total = 0;
    SMG_UNROLL
    for (int32_t n = 0; n < in; n++) sums[n] = 0;
    for (int32_t oy = rows.from; oy < rows.to; oy += joined ? high : 1) {
        const int8_t *d = dy + (oy * p->y_w + columns.from) * p->y_c;
        const int8_t *from = x + ((top + oy * p->stride_h) * p->x_w + left + columns.from * p->stride_w) * p->x_c;
        smg_accumulate(sums, in, d, p->y_c, from, p->stride_w * p->x_c, length);
        SMG_UNROLL
        for (int32_t at = 0; at < length; at++) total += d[at * p->y_c];
    }
    smg_take_zero(sums, in, p->x_zero, total);
}

/* The gradient of output channel o's weights. */
static void channel(const shape *p, const int8_t *x, const int8_t *dy, int32_t o, int32_t *sums) {
    const int32_t in = p->x_c / p->groups, group = o / (p->y_c / p->groups);
    for (int32_t i = 0; i < p->k_h; i++)
        for (int32_t j = 0; j < p->k_w; j++, sums += in) tap(p, x + group * in, dy + o, i, j, in, sums);
}

/* Output channels at once, and the elements of the largest map. */
enum { LANES = 4, LARGEST = 64 };

static int32_t is_small(const shape *p) {
    const int32_t pixels = p->y_h * p->y_w;
    return p->k_h * p->k_w * p->stride_h * p->stride_w * p->groups == 1 && p->x_h == p->y_h && p->x_w == p->y_w &&
           p->pad_h + p->pad_w == 0 && pixels <= LARGEST && pixels % 4 == 0 && p->y_c % LANES == 0;
}

/* The sum of `count` numbers, a multiple of four and so few that halfwords hold their sums. */
static int32_t sum_up(const int8_t *x, int32_t count) {
    int16x2_t even = 0, odd = 0;
    for (const int8_t *end = x + count; x != end; x += 4) {
        const uint32_t word = smg_four(x);
        even = __sxtab16(even, (int8x4_t)word);
        odd = __sxtab16(odd, (int8x4_t)smg_turned(word));
    }
    return (int16_t)even + (even >> 16) + (int16_t)odd + (odd >> 16);
}

/* The same of a small map; `rows` are the gradients of four channels, that of o among them, laid out for its first. */
static void small_channel(const shape *p, const int8_t *x, const int8_t *dy, int32_t o, int8_t *rows, int32_t *sums) {
    const int32_t pixels = p->y_h * p->y_w, lane = o % LANES;
    const int8_t *row = rows + lane * pixels;
    if (lane == 0) smg_transpose(dy + o, p->y_c, pixels, rows);
    for (int32_t n = 0; n < p->x_c; n++) sums[n] = 0;
    smg_accumulate(sums, p->x_c, row, 1, x, p->x_c, pixels);
    smg_take_zero(sums, p->x_c, p->x_zero, sum_up(row, pixels));
}

/* The gradient of output channel o's weights, one channel after another. */
static void next_channel(const shape *p, const int8_t *x, const int8_t *dy, int32_t o, int8_t *rows, int32_t *sums) {
    if (is_small(p))
        small_channel(p, x, dy, o, rows, sums);
    else
        channel(p, x, dy, o, sums);
}

void smg_conv2d_grad_weight_g8(const smg_conv2d_grad_weight_g8_params *p, const int8_t *x, const int8_t *dy,
                               int32_t *dw) {
    const int32_t row = p->k_h * p->k_w * (p->x_c / p->groups);
    int8_t rows[LANES * LARGEST];
    for (int32_t o = 0; o < p->y_c; o++) next_channel(p, x, dy, o, rows, dw + o * row);
}

void smg_conv2d_weight_step(const smg_conv2d_weight_step_params *p, int8_t *w, uint8_t *fraction, int16_t *buffer,
                            const int8_t *x, const int8_t *dy, const int32_t *rate, const int32_t *step_state,
                            void *scratch) {
    const smg_step s = SMG_BEGIN_WEIGHTS(p, buffer, rate, step_state);
    const shape geometry = {SMG_WINDOW_OF(p), p->groups, p->x_zero};
    int32_t *sums = scratch;
    int8_t rows[LANES * LARGEST];
    for (int32_t o = 0; o < p->c; o++) {
        next_channel(&geometry, x, dy, o, rows, sums);
        smg_step_weights(&s, sums, p->inner, o, 0, o * p->inner, w, fraction, buffer);
    }
}
