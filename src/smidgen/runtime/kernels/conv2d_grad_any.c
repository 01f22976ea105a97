/* The gradient of a convolution's input, whatever its geometry. */
#include "grad_any.h"

#include "accumulate.h"
#include "conv2d_grad_vnni.h"
#include "window.h"

/* `count` input channels, c being the first, of one element: the weighted gradients of all outputs that saw it. The
 * weights of an output are of `in` channels. */
static void element(const smg_conv2d_grad_g8_params *p, int32_t in, const int8_t *dy, const int8_t *w, int32_t iy,
                    int32_t ix, int32_t c, int32_t count, int32_t *sums) {
    const int32_t out = p->y_c / p->groups, first = c / in * out, taps = p->k_h * p->k_w;
    for (int32_t n = 0; n < count; n++) sums[n] = 0;
    for (int32_t i = 0; i < p->k_h; i++) {
        const int32_t oy = smg_output_of(iy + p->pad_h, i * p->dilation_h, p->stride_h, p->y_h);
        for (int32_t j = 0; oy >= 0 && j < p->k_w; j++) {
            const int32_t ox = smg_output_of(ix + p->pad_w, j * p->dilation_w, p->stride_w, p->y_w);
            if (ox < 0) continue;
            const int8_t *d = dy + (oy * p->y_w + ox) * p->y_c + first;
            const int8_t *weights = w + (first * taps + i * p->k_w + j) * in + c % in;
            smg_accumulate(sums, count, d, 1, weights, taps * in, out);
        }
    }
}

/* Trained channels whose sums are held on the stack at once. */
enum { TRAINED = 16 };

/* What trained channels get comes from their own weights: sums of the channels [c, c + count) that are trained. */
static void retrain(const smg_conv2d_grad_g8_params *p, const int8_t *dy, smg_weights w, int32_t iy, int32_t ix,
                    int32_t c, int32_t count, int32_t *sums) {
    const int32_t in = p->x_c / p->groups, first = c % in;
    int32_t part[TRAINED], from = 0, to;
    while (from < w.count && w.channel[from] < first) from++;
    for (; from < w.count && w.channel[from] < first + count; from = to) {
        for (to = from; to < smg_min(from + TRAINED, w.count) && w.channel[to] < first + count;) to++;
        element(p, w.count, dy, w.trained, iy, ix, c / in * w.count + from, to - from, part);
        for (int32_t i = from; i < to; i++) sums[w.channel[i] - first] = part[i - from];
    }
}

void smg_conv2d_grad_any(const smg_conv2d_grad_g8_params *p, smg_rounding *r, const int8_t *dy, smg_weights w,
                         const uint8_t *mask, int8_t *dx) {
#if defined(SMG_VNNI)
    if (smg_conv2d_grad_vnni(p, r, dy, w, mask, dx)) return;
#endif
    const int32_t in = p->x_c / p->groups;
    int32_t sums[SMG_SUMS];
    for (int32_t at = 0; at < p->x_h * p->x_w; at++) {
        for (int32_t c = 0, count; c < p->x_c; c += count) {
            const int32_t index = at * p->x_c + c;
            count = smg_min(SMG_SUMS, in - c % in);
            element(p, in, dy, w.data, at / p->x_w, at % p->x_w, c, count, sums);
            if (w.count) retrain(p, dy, w, at / p->x_w, at % p->x_w, c, count, sums);
            smg_round_sums(r, sums, count, c, index, mask, dx + index);
        }
    }
}
