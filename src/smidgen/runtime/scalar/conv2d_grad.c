/* The gradient of a convolution's input. Behind a mask, where a 1x1 convolution's gradient is zero at most places, the
 * others are dot products, two elements to a word (see pairs.h); elsewhere rows of weights are summed up. */
#include "smidgen_training.h"

#include "columns.h"
#include "grad_any.h"
#include "noinline.h"
#include "pairs.h"
#include "working_gradients.h"

/* Outputs that are multiplied at once. */
enum { STRETCH = SMG_MASKED_STRETCH };

/* A pixel's gradients as pairs, filled up with zeros to `length`; gives whether every stretch adds up to few. */
static int lay_pixel(const int8_t *dy, int32_t count, int32_t length, uint32_t *to) {
    int32_t most = 0;
    for (int32_t i = 0; i < length; i += STRETCH) {
        int32_t total = 0;
        for (int32_t k = i; k < i + STRETCH; k += 2) {
            const int32_t d0 = k < count ? dy[k] : 0, d1 = k + 1 < count ? dy[k + 1] : 0;
            *to++ = smg_gradient_pair(d0, d1);
            total += smg_magnitude(d0) + smg_magnitude(d1);
        }
        most = smg_max(most, total);
    }
    return most <= SMG_FEW;
}

/* A column of weights, whose elements lie `step` bytes apart, as pairs. */
static void lay_column(const int8_t *w, int32_t step, int32_t count, int32_t length, uint32_t *to) {
    int32_t i = 0;
    for (; i + 2 <= count; i += 2, w += 2 * step) *to++ = smg_weight_pair(w[0], w[step]);
    if (i < count) *to++ = smg_weight_pair(w[0], 0), i += 2;
    for (; i < length; i += 2) *to++ = 0;
}

/* `count` pixels, the first at `at`, of a 1x1 convolution behind a mask. */
static SMG_NOINLINE void masked(const smg_conv2d_grad_g8_params *p, smg_rounding *r, const int8_t *dy,
                                const smg_weights *w, const uint8_t *mask, int32_t at, int32_t count,
                                int8_t *dx, uint32_t *column) {
    const int32_t length = (p->y_c + STRETCH - 1) / STRETCH * STRETCH, half = length / 2;
    const uint32_t *end = column + half;
    uint32_t *gradients = column + half;
    uint8_t few[SMG_MASKED_PIXELS];
    int32_t sums[SMG_MASKED_PIXELS];
    for (int32_t i = 0; i < count; i++)
        few[i] = (uint8_t)lay_pixel(dy + (at + i) * p->y_c, p->y_c, length, gradients + i * half);
    for (int32_t c = 0, trained = 0; c < p->x_c; c++) {
        if (trained < w->count && w->channel[trained] == c)
            lay_column(w->trained + trained++, w->count, p->y_c, length, column);
        else
            lay_column(w->data + c, p->x_c, p->y_c, length, column);
        const uint32_t *d = gradients;
        for (int32_t i = 0, index = at * p->x_c + c; i < count; i++, index += p->x_c, d += half) {
            sums[i] = 0;
            if (smg_passes(mask, index)) sums[i] = few[i] ? smg_dot_few(column, d, end) : smg_dot_any(column, d, end);
        }
        smg_round_column(r, sums, count, c, at * p->x_c + c, p->x_c, dx + at * p->x_c + c);
    }
}

/* Trained channels whose sums are held on the stack beside all others. */
enum { TRAINED = 32 };

/* A 1x1 convolution some of whose channels are trained, few enough: gradients are looked through once for both. */
static int is_pointwise(const smg_conv2d_grad_g8_params *p, const smg_weights *w) {
    return p->k_h * p->k_w * p->stride_h * p->stride_w * p->groups == 1 && p->pad_h + p->pad_w == 0 &&
           p->x_h == p->y_h && p->x_w == p->y_w && p->x_c <= SMG_SUMS && w->count > 0 && w->count <= TRAINED;
}

static SMG_NOINLINE void pointwise(const smg_conv2d_grad_g8_params *p, smg_rounding *r, const int8_t *dy,
                                   const smg_weights *w, const uint8_t *mask, int8_t *dx) {
    int32_t sums[SMG_SUMS], own[TRAINED];
    for (int32_t at = 0; at < p->x_h * p->x_w; at++) {
        for (int32_t c = 0; c < p->x_c; c++) sums[c] = 0;
        for (int32_t i = 0; i < w->count; i++) own[i] = 0;
        smg_accumulate_two(sums, p->x_c, own, w->count, dy + at * p->y_c, w->data, w->trained, p->y_c);
        for (int32_t i = 0; i < w->count; i++) sums[w->channel[i]] = own[i];
        smg_round_sums(r, sums, p->x_c, 0, at * p->x_c, mask, dx + at * p->x_c);
    }
}

/* Working memory is there where a 1x1 convolution has a use for it. */
void smg_conv2d_grad_g8(const smg_conv2d_grad_g8_params *p, const int8_t *dy, const smg_weights *w,
                        const uint8_t *mask, const int32_t *step_state, int8_t *dx, int32_t *peak_bits, void *scratch) {
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    if (scratch && mask) {
        const int32_t length = (p->y_c + STRETCH - 1) / STRETCH * STRETCH, pixels = p->x_h * p->x_w;
        const int32_t most = smg_clamp(SMG_MASKED_WIDENED / length, 1, SMG_MASKED_PIXELS);
        const int32_t parts = (pixels + most - 1) / most, part = (pixels + parts - 1) / parts;
        for (int32_t at = 0; at < pixels; at += part)
            masked(p, &r, dy, w, mask, at, smg_min(part, pixels - at), dx, scratch);
    } else if (is_pointwise(p, w)) {
        pointwise(p, &r, dy, w, mask, dx);
    } else {
        smg_conv2d_grad_any(p, &r, dy, *w, mask, dx);
    }
    *peak_bits = (int32_t)r.peak_bits;
}
