/* The gradient of a depthwise convolution's input, one channel after another. A channel's gradients are laid out as
 * pairs of neighbours (see pairs.h), spread and bordered with zeros, so that what an element gets is a dot product with
 * the channel's weights, row by row, each backwards. Elements that the mask stops are left out. */
#include "smidgen_training.h"

#include "columns.h"
#include "grad_any.h"
#include "noinline.h"
#include "pairs.h"
#include "window.h"
#include "working_gradients.h"

typedef smg_depthwise_grad_g8_params shape;

/* One channel: rows of `words` pairs of weights; rows of `pitch` pairs of gradients, before which lies a word more. */
typedef struct {
    uint32_t *weights, *gradients;
    int32_t words, pitch;
    int32_t total; /* of the gradients' magnitudes */
} plane;

/* The taps of a channel, which lie `step` bytes from each other. */
static void lay_weights(const shape *p, const plane *b, const int8_t *w, int32_t step) {
    uint32_t *to = b->weights;
    for (int32_t i = 0; i < p->k_h; i++, w += p->k_w * step) {
        const int8_t *from = w + (p->k_w - 1) * step;
        int32_t j = p->k_w;
        for (; j > 1; j -= 2, from -= 2 * step) *to++ = smg_weight_pair(from[0], *(from - step));
        if (j) *to++ = smg_weight_pair(from[0], 0);
    }
}

/* The gradients of a channel: that of an output lies where the window of the first element it belongs to begins, and
 * half a word before. What lies between stays zero. */
static void lay_gradients(const shape *p, plane *b, const int8_t *dy, smg_taps there) {
    const int32_t first = p->k_w - 1 - p->pad_w + there.from * p->stride_w, apart = p->stride_w > 1;
    b->total = 0;
    for (int32_t oy = 0; oy < p->y_h; oy++) {
        const int8_t *from = dy + (oy * p->y_w + there.from) * p->y_c;
        uint32_t *to = b->gradients + oy * b->pitch + first;
        for (int32_t ox = there.from, before = 0; ox < there.to; ox++, from += p->y_c, to += p->stride_w) {
            const int32_t d = *from;
            to[-1] = smg_gradient_pair(before, d);
            to[0] = smg_gradient_pair(d, 0);
            before = apart ? 0 : d;
            b->total += smg_magnitude(d);
        }
    }
}

/* The rows of outputs that saw a row of elements, from the last up: their gradients and weights, and how many. */
typedef struct {
    const uint32_t *gradients, *weights;
    int32_t up, down, rows;
} seen;

/* Of elements that lie `phase` below the first that output row `oy` saw. */
static inline seen rows_seen(const shape *p, const plane *b, int32_t oy, int32_t phase) {
    int32_t rows = 0;
    for (; oy >= p->y_h; oy--) phase += p->stride_h;
    for (int32_t i = phase; i < p->k_h && rows <= oy; i += p->stride_h) rows++;
    const seen s = {b->gradients + oy * b->pitch, b->weights + phase * b->words, b->pitch, b->words * p->stride_h, rows};
    return s;
}

/* The dot product at one element, where all gradients add up to few. */
static inline int32_t dot_few(const seen *s, int32_t ix, const int32_t words) {
    const uint32_t *d = s->gradients + ix, *w = s->weights;
    uint32_t sum = SMG_HALF;
    for (int32_t rows = s->rows; rows > 0; rows--, d -= s->up, w += s->down) {
        sum += d[0] * w[0];
        if (words > 1) sum += d[2] * w[1];
        if (words > 2) sum += d[4] * w[2];
        if (words > 3) sum += d[6] * w[3];
    }
    return smg_upper(sum);
}

/* The same of any gradients and any width. */
static SMG_NOINLINE int32_t dot_any(const seen *s, int32_t ix, int32_t words) {
    const uint32_t *d = s->gradients + ix, *w = s->weights;
    int32_t sum = 0;
    for (int32_t rows = s->rows; rows > 0; rows--, d -= s->up, w += s->down)
        for (int32_t k = 0; k < words; k++) sum += smg_upper(SMG_HALF + d[2 * k] * w[k]);
    return sum;
}

/* Sums of a row of elements from column ix on; 0 where the mask stops them. */
#define ROW(DOT)                                                        \
    for (int32_t i = 0; i < count; i++, index += step) {                \
        sums[i] = 0;                                                    \
        if (smg_passes(mask, index)) sums[i] = DOT(s, ix + i, words);   \
    }

static SMG_NOINLINE void sum_row(const seen *s, int32_t ix, int32_t count, int32_t words, int32_t few, const uint8_t *mask,
                                 int32_t index, int32_t step, int32_t *sums) {
    if (!few || words > 4) {
        ROW(dot_any)
    } else if (words == 2) {
#define THIS(s, at, words) dot_few(s, at, 2)
        ROW(THIS)
    } else if (words == 3) {
#undef THIS
#define THIS(s, at, words) dot_few(s, at, 3)
        ROW(THIS)
    } else {
        ROW(dot_few)
    }
}

/* One channel of the map; `index` is its first element's. */
static SMG_NOINLINE void channel(const shape *p, smg_rounding *r, const plane *b, int32_t c, const uint8_t *mask,
                                 int8_t *dx) {
    int32_t sums[SMG_COLUMN], held = 0, index = c, first = c, oy = 0, phase = p->pad_h;
    for (; phase >= p->stride_h; oy++) phase -= p->stride_h;
    for (int32_t iy = 0; iy < p->x_h; iy++) {
        const seen s = rows_seen(p, b, oy, phase);
        if (++phase == p->stride_h) phase = 0, oy++;
        for (int32_t ix = 0, count; ix < p->x_w; ix += count) {
            count = smg_min(SMG_COLUMN - held, p->x_w - ix);
            sum_row(&s, ix, count, b->words, b->total <= SMG_FEW, mask, index, p->x_c, sums + held);
            index += count * p->x_c;
            held += count;
            if (held < SMG_COLUMN && iy + 1 < p->x_h) continue;
            smg_round_column(r, sums, held, c, first, p->x_c, dx + first);
            held = 0;
            first = index;
        }
    }
}

/* Whether the working memory is for what is done here. */
static int regular(const shape *p) {
    return p->x_c == p->y_c && p->dilation_h == 1 && p->dilation_w == 1 &&
           ((p->x_h == p->y_h && p->x_w == p->y_w) || p->y_h * (p->x_w + p->k_w) <= SMG_PLANE_APART);
}

void smg_depthwise_grad_g8(const smg_depthwise_grad_g8_params *p, const int8_t *dy, const smg_weights *w,
                           const uint8_t *mask, const int32_t *step_state, int8_t *dx, int32_t *peak_bits,
                           void *scratch) {
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    if (regular(p)) {
        const int32_t words = (p->k_w + 1) / 2, pitch = p->x_w + p->k_w, size = p->y_h * pitch;
        const smg_taps there = smg_taps_inside(p->k_w - 1 - p->pad_w, p->y_w, p->stride_w, p->x_w + p->k_w - 1);
        uint32_t *weights = scratch;
        plane b = {weights, weights + p->k_h * words + 1, words, pitch, 0};
        for (int32_t i = 0; i < size; i++) b.gradients[i - 1] = 0;
        for (int32_t c = 0, trained = 0; c < p->x_c; c++) {
            if (trained < w->count && w->channel[trained] == c)
                lay_weights(p, &b, w->trained + trained++, w->count);
            else
                lay_weights(p, &b, w->data + c, p->y_c);
            lay_gradients(p, &b, dy + c, there);
            channel(p, &r, &b, c, mask, dx);
        }
    } else {
        smg_depthwise_grad_any(p, &r, dy, *w, mask, dx, scratch);
    }
    *peak_bits = (int32_t)r.peak_bits;
}
