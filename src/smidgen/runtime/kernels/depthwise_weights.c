/* The gradient of a depthwise convolution's weights, and the step they take. */
#include "smidgen_training.h"

#include "depthwise_weights_vnni.h"
#include "step.h"
#include "window.h"

typedef smg_depthwise_grad_weight_g8_params shape;

/* One position: a product of a gradient and an input less its zero point fits 16 bits. */
static inline void add_products(int32_t *restrict sums, const int8_t *restrict x, const int8_t *restrict dy,
                                int32_t zero, int32_t count) {
    for (int32_t n = 0; n < count; n++) {
        const int16_t product = (int16_t)((int16_t)(x[n] - zero) * dy[n]);
        sums[n] = (int32_t)((uint32_t)sums[n] + (uint32_t)product);
    }
}

static inline void add_repeated(int32_t *sums, const int8_t *x, const int8_t *dy, int32_t zero, int32_t times,
                                int32_t count) {
    for (int32_t n = 0; n < count; n++)
        sums[n] = (int32_t)((uint32_t)sums[n] + (uint32_t)((x[n / times] - zero) * dy[n]));
}

/* The gradient of the weights at one tap: sums[c] = Σ (x[c] − zero) dy[c] over all positions. */
static void tap(const shape *p, const int8_t *x, const int8_t *dy, int32_t i, int32_t j, int32_t *sums) {
    const int32_t top = i * p->dilation_h - p->pad_h, left = j * p->dilation_w - p->pad_w, times = p->y_c / p->x_c;
    const smg_taps rows = smg_taps_inside(top, p->y_h, p->stride_h, p->x_h);
    const smg_taps columns = smg_taps_inside(left, p->y_w, p->stride_w, p->x_w);
    for (int32_t n = 0; n < p->y_c; n++) sums[n] = 0;
    for (int32_t oy = rows.from; oy < rows.to; oy++) {
        const int8_t *row = x + (top + oy * p->stride_h) * p->x_w * p->x_c;
        for (int32_t ox = columns.from; ox < columns.to; ox++) {
            const int8_t *from = row + (left + ox * p->stride_w) * p->x_c, *d = dy + (oy * p->y_w + ox) * p->y_c;
            if (times == 1)
                add_products(sums, from, d, p->x_zero, p->y_c);
            else
                add_repeated(sums, from, d, p->x_zero, times, p->y_c);
        }
    }
}

void smg_depthwise_grad_weight_g8(const smg_depthwise_grad_weight_g8_params *p, const int8_t *x, const int8_t *dy,
                                  int32_t *dw) {
#if defined(SMG_VNNI)
    smg_vnni_deep of;
    if (smg_vnni_begin_deep(p, &of)) {
        for (int32_t c = 0; c < p->y_c; c += SMG_LANES) {
            smg_vnni_deep_sums(p, x, dy, c, smg_min(SMG_LANES, p->y_c - c), &of);
            for (int32_t t = 0; t < p->k_h * p->k_w; t++)
                _mm512_mask_storeu_epi32(dw + t * p->y_c + c, of.channels, of.sums[t]);
        }
        return;
    }
#endif
    for (int32_t i = 0; i < p->k_h; i++)
        for (int32_t j = 0; j < p->k_w; j++, dw += p->y_c) tap(p, x, dy, i, j, dw);
}

void smg_depthwise_weight_step(const smg_depthwise_weight_step_params *p, int8_t *w, uint8_t *fraction,
                               int16_t *buffer, const int8_t *x, const int8_t *dy, const int32_t *rate,
                               const int32_t *step_state, void *scratch) {
    const smg_step s = SMG_BEGIN_WEIGHTS(p, buffer, rate, step_state);
    const shape geometry = {SMG_WINDOW_OF(p), p->x_zero};
    int32_t *sums = scratch;
#if defined(SMG_VNNI)
    smg_vnni_deep of;
    if (smg_vnni_begin_deep(&geometry, &of)) {
        for (int32_t c = 0; c < p->y_c; c += SMG_LANES) {
            const int32_t count = smg_min(SMG_LANES, p->y_c - c);
            smg_vnni_deep_sums(&geometry, x, dy, c, count, &of);
            for (int32_t t = 0; t < p->k_h * p->k_w; t++) {
                int32_t some[SMG_LANES];
                _mm512_storeu_si512(some, of.sums[t]);
                smg_step_weights(&s, some, count, c, 1, t * p->y_c + c, w, fraction, buffer);
            }
        }
        return;
    }
#endif
    for (int32_t t = 0; t < p->k_h * p->k_w; t++) {
        tap(&geometry, x, dy, t / p->k_w, t % p->k_w, sums);
        smg_step_weights(&s, sums, p->y_c, 0, 1, t * p->y_c, w, fraction, buffer);
    }
}
