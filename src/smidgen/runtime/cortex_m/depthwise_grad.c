/* The gradient of a depthwise convolution's input, eight channels at a time: each channel's gradients are laid out as
 * int16, spread and bordered with zeros, so that what an element gets is a dot product with the channel's weights, row
 * by row, in reversed order. Elements that the mask stops are left out. */
#include "smidgen.h"

#include <arm_acle.h>

#include "columns.h"
#include "grad_any.h"
#include "window.h"

/* Elements of the largest map that is laid out so; Op.scratch of the graph's op counts with it. */
enum { LARGEST = 1024 };

/* Eight channels' weights, `taps` halfwords to a channel, and their gradients, `row` halfwords to a row of a channel,
 * `plane` to a channel. */
typedef struct {
    int16_t *weights, *dy;
    int32_t taps, row, plane;
} block;

static void lay_weights(const block *b, const smg_depthwise_grad_g8_params *p, smg_weights w, int32_t c) {
    const int32_t wide = (p->k_w + 1) / 2 * 2;
    for (int32_t n = 0; n < SMG_COLUMNS; n++) {
        int32_t t = 0, step = p->y_c;
        const int8_t *from = w.data + c + n;
        for (int32_t i = 0; i < w.count; i++)
            if (w.channel[i] == c + n) from = w.trained + i, step = w.count;
        for (int32_t i = 0; i < p->k_h; i++) {
            int16_t *row = b->weights + n * b->taps + i * wide;
            row[wide - 1] = 0;
            for (int32_t j = p->k_w - 1; j >= 0; j--, t++) row[j] = from[t * step];
        }
    }
}

/* Gradients of an output lie where the window of the first element they belong to begins. */
static void lay_gradients(const block *b, const smg_depthwise_grad_g8_params *p, const int8_t *dy) {
    const int32_t first = p->k_w - 1 - p->pad_w, end = b->row - 1;
    for (int32_t oy = 0; oy < p->y_h; oy++) {
        for (int32_t ox = 0; ox < p->y_w; ox++, dy += p->y_c) {
            const int32_t at = first + ox * p->stride_w;
            int16_t *to = b->dy + oy * b->row + at;
            if (at < 0 || at >= end) continue;
            for (int32_t n = 0; n < SMG_COLUMNS; n++) to[n * b->plane] = dy[n];
        }
    }
}

static inline int32_t pair(const int16_t *from) {
    int32_t both;
    __builtin_memcpy(&both, from, sizeof both);
    return both;
}

/* `rows` rows of gradients and weights, which lie `up` and `down` halfwords apart. */
static inline int32_t dot(const int16_t *dy, int32_t up, const int16_t *w, int32_t down, int32_t rows, int32_t words) {
    int32_t sum = 0;
    for (int32_t i = 0; i < rows; i++, dy -= up, w += down)
        for (int32_t k = 0; k < words; k++) sum = __smlad(pair(dy + 2 * k), pair(w + 2 * k), sum);
    return sum;
}

/* A row of elements: sums of those among the eight channels that the mask lets pass. */
static inline void sum_row(const block *b, const smg_depthwise_grad_g8_params *p, int32_t iy, int32_t ix, int32_t count,
                           const uint8_t *mask, int32_t mask_step, int32_t words, int32_t *sums) {
    const int32_t last = iy + p->pad_h, beyond = smg_max(last / p->stride_h - p->y_h + 1, 0);
    const int32_t i0 = last % p->stride_h + beyond * p->stride_h, oy = (last - i0) / p->stride_h;
    const int32_t rows = i0 < p->k_h ? smg_min((p->k_h - 1 - i0) / p->stride_h, oy) + 1 : 0;
    for (int32_t x = 0; x < count; x++, mask += mask_step, sums += SMG_COLUMNS) {
        uint32_t bits = *mask;
        for (int32_t n = 0; n < SMG_COLUMNS; n++) sums[n] = 0;
        for (; bits && rows > 0; bits &= bits - 1) {
            const int32_t n = (int32_t)__clz(__rbit(bits));
            sums[n] = dot(b->dy + n * b->plane + oy * b->row + ix + x, b->row, b->weights + n * b->taps + i0 * 2 * words,
                          2 * words * p->stride_h, rows, words);
        }
    }
}

static void eight_channels(const smg_depthwise_grad_g8_params *p, smg_rounding *r, const block *b, int32_t c,
                           const uint8_t *mask, int8_t *dx) {
    static const uint8_t everything = 255;
    const int32_t words = (p->k_w + 1) / 2;
    int32_t sums[SMG_SUMS];
    for (int32_t iy = 0; iy < p->x_h; iy++) {
        for (int32_t ix = 0, count; ix < p->x_w; ix += count) {
            const int32_t index = (iy * p->x_w + ix) * p->x_c + c, step = mask ? p->x_c / 8 : 0;
            const uint8_t *bits = mask ? mask + index / 8 : &everything;
            count = smg_min(SMG_ELEMENTS, p->x_w - ix);
            if (words == 2)
                sum_row(b, p, iy, ix, count, bits, step, 2, sums);
            else if (words == 3)
                sum_row(b, p, iy, ix, count, bits, step, 3, sums);
            else
                sum_row(b, p, iy, ix, count, bits, step, words, sums);
            smg_round_columns(r, sums, count, c, index, p->x_c, mask, dx + index);
        }
    }
}

/* Whether the working memory is for what is done here. */
static int regular(const smg_depthwise_grad_g8_params *p) {
    return p->x_c == p->y_c && p->x_c % SMG_COLUMNS == 0 && p->dilation_h == 1 && p->dilation_w == 1 &&
           p->x_h * p->x_w <= LARGEST;
}

void smg_depthwise_grad_g8(const smg_depthwise_grad_g8_params *p, const int8_t *dy, smg_weights w,
                           const uint8_t *mask, const int32_t *carry, int8_t *dx, int32_t *seen, void *scratch) {
    smg_rounding r = SMG_BEGIN(p, carry, smg_exponent(carry, p->slot_in));
    if (regular(p)) {
        const int32_t taps = p->k_h * ((p->k_w + 1) / 2) * 2, row = p->x_w + p->k_w;
        int16_t *weights = scratch;
        const block b = {weights, weights + SMG_COLUMNS * taps, taps, row, row * p->y_h};
        for (int32_t i = 0; i < SMG_COLUMNS * b.plane; i++) b.dy[i] = 0;
        for (int32_t c = 0; c < p->x_c; c += SMG_COLUMNS) {
            lay_weights(&b, p, w, c);
            lay_gradients(&b, p, dy + c);
            eight_channels(p, &r, &b, c, mask, dx);
        }
    } else {
        smg_depthwise_grad_any(p, &r, dy, w, mask, dx, scratch);
    }
    *seen = (int32_t)r.seen;
}
