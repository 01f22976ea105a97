/* The gradient of a convolution's weights, and the step they take. */
#include "smidgen_training.h"

#include "accumulate.h"
#include "conv2d_weights_vnni.h"
#include "step.h"
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

void smg_conv2d_grad_weight_g8(const smg_conv2d_grad_weight_g8_params *p, const int8_t *x, const int8_t *dy,
                               int32_t *dw) {
    const int32_t row = p->k_h * p->k_w * (p->x_c / p->groups);
#if defined(SMG_VNNI)
    if (smg_vnni_outer_fits(p)) {
        smg_vnni_outer of;
        smg_vnni_lay_inputs(p, x, &of);
        for (int32_t o = 0; o < p->y_c; o++) {
            if (o % SMG_VNNI_SIX == 0) smg_vnni_outer_sums(p, dy, o, &of);
            memcpy(dw + o * row, of.sums[o % SMG_VNNI_SIX], (size_t)row * sizeof *dw);
        }
        return;
    }
#endif
    for (int32_t o = 0; o < p->y_c; o++) channel(p, x, dy, o, dw + o * row);
}

void smg_conv2d_weight_step(const smg_conv2d_weight_step_params *p, int8_t *w, uint8_t *fraction, int16_t *buffer,
                            const int8_t *x, const int8_t *dy, const int32_t *rate, const int32_t *step_state,
                            void *scratch) {
    const smg_step s = SMG_BEGIN_WEIGHTS(p, buffer, rate, step_state);
    const shape geometry = {SMG_WINDOW_OF(p), p->groups, p->x_zero};
    int32_t *sums = scratch;
#if defined(SMG_VNNI)
    if (smg_vnni_outer_fits(&geometry)) {
        smg_vnni_outer of;
        smg_vnni_lay_inputs(&geometry, x, &of);
        for (int32_t o = 0; o < p->c; o++) {
            if (o % SMG_VNNI_SIX == 0) smg_vnni_outer_sums(&geometry, dy, o, &of);
            smg_step_weights(&s, of.sums[o % SMG_VNNI_SIX], p->inner, o, 0, o * p->inner, w, fraction, buffer);
        }
        return;
    }
#endif
    for (int32_t o = 0; o < p->c; o++) {
        channel(&geometry, x, dy, o, sums);
        smg_step_weights(&s, sums, p->inner, o, 0, o * p->inner, w, fraction, buffer);
    }
}
