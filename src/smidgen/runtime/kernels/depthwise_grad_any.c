/* The gradient of a depthwise convolution's input, whatever its geometry. */
#include "grad_any.h"

#include "depthwise_grad_vnni.h"
#include "window.h"
#include "working.h"

/* One tap whose gradients and weights wait for another's: two products fit 16 bits. */
typedef struct {
    const int8_t *dy, *w;
} waiting;

static inline void add_two(int32_t *restrict sums, waiting a, waiting b, int32_t count) {
    for (int32_t n = 0; n < count; n++) sums[n] += (int16_t)(a.dy[n] * a.w[n] + b.dy[n] * b.w[n]);
}

static inline void add_one(int32_t *restrict sums, waiting a, int32_t count) {
    for (int32_t n = 0; n < count; n++) sums[n] += (int16_t)(a.dy[n] * a.w[n]);
}

/* Each input channel has `times` outputs. */
static inline void add_times(int32_t *sums, waiting a, int32_t times, int32_t count) {
    for (int32_t n = 0; n < count; n++)
        for (int32_t m = 0; m < times; m++) sums[n] += a.dy[n * times + m] * a.w[n * times + m];
}

/* Gradients of c channels a position, the first of which is channel `first` of the layer. */
typedef struct {
    const int8_t *data;
    int32_t c, first;
} gradients;

static inline void copy(const int8_t *dy, int32_t positions, int32_t c, int32_t first, int32_t count, int8_t *to) {
    for (int32_t i = 0; i < positions; i++)
        for (int32_t n = 0; n < count; n++) to[i * SMG_COPIED + n] = dy[i * c + first + n];
}

/* `count` input channels, c being the first, of one element. */
static void element(const smg_depthwise_grad_g8_params *p, gradients dy, const int8_t *w, int32_t iy, int32_t ix,
                    int32_t c, int32_t count, int32_t *sums) {
    const int32_t times = p->y_c / p->x_c;
    waiting last = {0, 0};
    int32_t waits = 0;
    for (int32_t n = 0; n < count; n++) sums[n] = 0;
    for (int32_t i = 0; i < p->k_h; i++) {
        const int32_t oy = smg_output_of(iy + p->pad_h, i * p->dilation_h, p->stride_h, p->y_h);
        for (int32_t j = 0; oy >= 0 && j < p->k_w; j++) {
            const int32_t ox = smg_output_of(ix + p->pad_w, j * p->dilation_w, p->stride_w, p->y_w);
            if (ox < 0) continue;
            const int32_t position = oy * p->y_w + ox, tap_at = (i * p->k_w + j) * p->y_c, first = c * times;
            const waiting now = {dy.data + position * dy.c + first - dy.first, w + tap_at + first};
            if (times > 1) {
                add_times(sums, now, times, count);
            } else if (waits) {
                add_two(sums, last, now, count);
                waits = 0;
            } else {
                last = now;
                waits = 1;
            }
        }
    }
    if (waits) add_one(sums, last, count);
}

/* What outputs with trained weights add: their own products instead of those with the frozen weights. */
static void retrain(const smg_depthwise_grad_g8_params *p, gradients dy, smg_weights w, int32_t iy, int32_t ix,
                    int32_t c, int32_t count, int32_t *sums) {
    const int32_t times = p->y_c / p->x_c;
    for (int32_t n = 0; n < w.count; n++) {
        const int32_t output = w.channel[n], at = output / times - c;
        if (at < 0 || at >= count) continue;
        for (int32_t i = 0; i < p->k_h; i++) {
            const int32_t oy = smg_output_of(iy + p->pad_h, i * p->dilation_h, p->stride_h, p->y_h);
            for (int32_t j = 0; oy >= 0 && j < p->k_w; j++) {
                const int32_t ox = smg_output_of(ix + p->pad_w, j * p->dilation_w, p->stride_w, p->y_w);
                const int32_t t = i * p->k_w + j;
                if (ox < 0) continue;
                sums[at] += dy.data[(oy * p->y_w + ox) * dy.c + output - dy.first] *
                            (w.trained[t * w.count + n] - w.data[t * p->y_c + output]);
            }
        }
    }
}

void smg_depthwise_grad_any(const smg_depthwise_grad_g8_params *p, smg_rounding *r, const int8_t *dy, smg_weights w,
                            const uint8_t *mask, int8_t *dx, void *scratch) {
#if defined(SMG_VNNI)
    if (smg_depthwise_grad_vnni(p, r, dy, w, mask, dx, scratch)) return;
#endif
    const int32_t in_place = dx == dy, block = in_place ? SMG_COPIED : SMG_SUMS;
    int32_t sums[SMG_SUMS];
    for (int32_t c = 0; c < p->x_c; c += block) {
        const int32_t count = smg_min(block, p->x_c - c);
        const gradients there = {dy, p->y_c, 0}, copied = {scratch, SMG_COPIED, c}, from = in_place ? copied : there;
        if (in_place) copy(dy, p->y_h * p->y_w, p->y_c, c, count, scratch);
        for (int32_t at = 0; at < p->x_h * p->x_w; at++) {
            const int32_t index = at * p->x_c + c;
            element(p, from, w.data, at / p->x_w, at % p->x_w, c, count, sums);
            if (w.count) retrain(p, from, w, at / p->x_w, at % p->x_w, c, count, sums);
            smg_round_sums(r, sums, count, c, index, mask, dx + index);
        }
    }
}
