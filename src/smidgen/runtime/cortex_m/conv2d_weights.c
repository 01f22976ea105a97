/* The gradient of a convolution's weights, and the step they take. Of 1x1 convolutions over small maps, gradients of
 * four output channels are laid side by side first: those of one channel are looked through four at a time. */
#include "smidgen_training.h"

#include <arm_acle.h>

#include "accumulate.h"
#include "noinline.h"
#include "step.h"
#include "transpose.h"
#include "weight_taps.h"

typedef smg_conv2d_grad_weight_g8_params shape;

/* Output channels at once, and the elements of the largest map. */
enum { LANES = 4, LARGEST = 64 };

static int32_t is_small(const shape *p) {
    const int32_t pixels = p->y_h * p->y_w;
    return p->k_h * p->k_w * p->stride_h * p->stride_w * p->groups == 1 && p->x_h == p->y_h && p->x_w == p->y_w &&
           p->pad_h + p->pad_w == 0 && pixels <= LARGEST && pixels % 4 == 0 && p->y_c % LANES == 0;
}

/* The sum of `count` numbers, a multiple of four and so few that halfwords hold their sums; and whether any is not 0. */
static int32_t sum_up(const int8_t *x, int32_t count, uint32_t *any) {
    int16x2_t even = 0, odd = 0;
    *any = 0;
    for (const int8_t *end = x + count; x != end; x += 4) {
        const uint32_t word = smg_four(x);
        *any |= word;
        even = __sxtab16(even, (int8x4_t)word);
        odd = __sxtab16(odd, (int8x4_t)smg_turned(word));
    }
    return (int16_t)even + (even >> 16) + (int16_t)odd + (odd >> 16);
}

/* The same of a small map; `rows` are the gradients of four channels, that of o among them, laid out for its first. */
static void small_channel(const shape *p, const int8_t *x, const int8_t *dy, int32_t o, int8_t *rows, int32_t *sums) {
    const int32_t pixels = p->y_h * p->y_w, lane = o % LANES;
    const int8_t *row = rows + lane * pixels;
    uint32_t any;
    if (lane == 0) smg_transpose(dy + o, p->y_c, pixels, rows);
    const int32_t sum = sum_up(row, pixels, &any);
    for (int32_t n = 0; n < p->x_c; n++) sums[n] = 0;
    if (!any) return;
    smg_accumulate(sums, p->x_c, row, 1, x, p->x_c, pixels);
    smg_take_zero(sums, p->x_c, p->x_zero, sum);
}

/* The gradient of output channel o's weights, one channel after another. */
static SMG_NOINLINE void next_channel(const shape *p, const int8_t *x, const int8_t *dy, int32_t o, int8_t *rows, int32_t *sums) {
    if (is_small(p))
        small_channel(p, x, dy, o, rows, sums);
    else
        smg_weight_taps(p, x, dy, o, sums);
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
