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

/* The rows of outputs that saw a row of elements: the last one's gradients and weights, and how many. */
typedef struct {
    const uint32_t *gradients, *weights;
    int32_t count;
} rows_seen;

/* One channel: rows of pairs of weights; rows of `pitch` pairs of gradients, before which lies a word more. */
typedef struct {
    rows_seen *seen;
    uint32_t *weights, *gradients;
    int32_t pitch;
    int32_t total; /* of the gradients' magnitudes */
    smg_row_steps by;
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
    int32_t total = 0;
    for (int32_t oy = 0; oy < p->y_h; oy++) {
        const int8_t *from = dy + (oy * p->y_w + there.from) * p->y_c;
        uint32_t *to = b->gradients + oy * b->pitch + first;
        for (int32_t ox = there.from, before = 0; ox < there.to; ox++, from += p->y_c, to += p->stride_w) {
            const int32_t d = *from;
            to[-1] = smg_gradient_pair(before, d);
            to[0] = smg_gradient_pair(d, 0);
            before = apart ? 0 : d;
            total += smg_magnitude(d);
        }
    }
    b->total = total;
}

/* For each row of elements, from the first on: the rows of outputs that saw it, from the last up. Channels differ in
 * what lies there, not in where. */
static void find_rows(const shape *p, const plane *b) {
    int32_t oy = 0, phase = p->pad_h;
    for (; phase >= p->stride_h; oy++) phase -= p->stride_h;
    for (int32_t iy = 0; iy < p->x_h; iy++) {
        int32_t last = oy, first_tap = phase, count = 0;
        for (; last >= p->y_h; last--) first_tap += p->stride_h;
        for (int32_t i = first_tap; i < p->k_h && count <= last; i += p->stride_h) count++;
        const rows_seen rows = {b->gradients + last * b->pitch, b->weights + first_tap * b->by.words, count};
        b->seen[iy] = rows;
        if (++phase == p->stride_h) phase = 0, oy++;
    }
}

/* The dot product at one element, of any gradients and any width. */
static SMG_NOINLINE int32_t dot_any(const uint32_t *d, const uint32_t *w, int32_t count, const smg_row_steps *by) {
    int32_t sum = 0;
    for (; count > 0; count--, d += by->up, w += by->words + by->down)
        for (int32_t k = 0; k < by->words; k++) sum += smg_upper(SMG_HALF + d[2 * k] * w[k]);
    return sum;
}

/* Sums of a row of elements from column ix on; 0 where the mask stops them. */
static void sum_row(const plane *b, const rows_seen *rows, int32_t ix, int32_t count, const uint8_t *mask,
                    int32_t index, int32_t step, int32_t *sums) {
    const uint32_t *d = rows->gradients + ix;
    const int32_t few = b->total <= SMG_FEW && b->by.words <= SMG_WORDS;
    for (int32_t i = 0; i < count; i++, d++, index += step) {
        sums[i] = 0;
        if (!smg_passes(mask, index) || !rows->count) continue;
        sums[i] = few ? smg_rows_few(d, rows->weights, rows->count, &b->by)
                      : dot_any(d, rows->weights, rows->count, &b->by);
    }
}

/* One channel of the map. */
static SMG_NOINLINE void channel(const shape *p, smg_rounding *r, const plane *b, int32_t c, const uint8_t *mask,
                                 int8_t *dx) {
    int32_t sums[SMG_COLUMN], held = 0, index = c, first = c;
    if (!b->total) { /* no gradients, and none from them */
        for (int32_t at = 0; at < p->x_h * p->x_w; at++) dx[at * p->x_c + c] = 0;
        return;
    }
    for (int32_t iy = 0; iy < p->x_h; iy++) {
        for (int32_t ix = 0, count; ix < p->x_w; ix += count) {
            count = smg_min(SMG_COLUMN - held, p->x_w - ix);
            sum_row(b, b->seen + iy, ix, count, mask, index, p->x_c, sums + held);
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
        rows_seen *seen = scratch;
        uint32_t *weights = (uint32_t *)(void *)(seen + p->x_h), *gradients = weights + p->k_h * words;
        plane b = {seen, weights, gradients + 1, pitch, 0, {-pitch, words * (p->stride_h - 1), words}};
        for (int32_t i = 0; i < size; i++) gradients[i] = 0;
        find_rows(p, &b);
        for (int32_t c = 0, trained = 0; c < p->x_c; c++) {
            const int32_t own = trained < w->count && w->channel[trained] == c;
            lay_gradients(p, &b, dy + c, there);
            if (own)
                lay_weights(p, &b, w->trained + trained++, w->count);
            else if (b.total)
                lay_weights(p, &b, w->data + c, p->y_c);
            channel(p, &r, &b, c, mask, dx);
        }
    } else {
        smg_depthwise_grad_any(p, &r, dy, *w, mask, dx, scratch);
    }
    *peak_bits = (int32_t)r.peak_bits;
}
