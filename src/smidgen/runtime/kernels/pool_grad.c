/* Gradients of the mean and of pools: each element of the map gathers from the windows that saw it. */
#include "smidgen_training.h"

#include "rounding.h"
#include "window.h"

void smg_mean_grad_g8(const smg_mean_grad_g8_params *p, const int8_t *dy, const uint8_t *mask,
                      const int32_t *step_state, int8_t *dx, int32_t *peak_bits) {
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    int32_t sums[SMG_SUMS];
    for (int32_t c = 0; c < p->c; c += SMG_SUMS) {
        const int32_t count = smg_min(SMG_SUMS, p->c - c);
        for (int32_t i = 0; i < count; i++) sums[i] = dy[c + i];
        for (int32_t at = c; at < p->n * p->c; at += p->c) smg_round_sums(&r, sums, count, c, at, mask, dx + at);
    }
    *peak_bits = (int32_t)r.peak_bits;
}

/* The windows [from, to) whose taps can reach position `at` along one dimension. */
static inline smg_taps windows(int32_t at, int32_t pad, int32_t k, int32_t stride, int32_t count) {
    const int32_t last = at + pad, first = last - k + 1;
    const smg_taps found = {first > 0 ? (first + stride - 1) / stride : 0, smg_min(last / stride + 1, count)};
    return found;
}

/* How many taps of the window at `start` lie inside the map, along one dimension. */
static inline int32_t inside(int32_t start, int32_t k, int32_t size) {
    const smg_taps taps = smg_taps_inside(start, k, 1, size);
    return taps.to - taps.from;
}

/* `count` channels of one element: each window gives the share of one of its taps. */
static inline void avg_element(const smg_avg_pool_grad_g8_params *p, const int8_t *dy, int32_t iy, int32_t ix,
                               int32_t count, int32_t *sums) {
    const smg_taps rows = windows(iy, p->pad_h, p->k_h, p->stride_h, p->y_h);
    const smg_taps columns = windows(ix, p->pad_w, p->k_w, p->stride_w, p->y_w);
    for (int32_t oy = rows.from; oy < rows.to; oy++) {
        const int32_t high = inside(oy * p->stride_h - p->pad_h, p->k_h, p->x_h);
        for (int32_t ox = columns.from; ox < columns.to; ox++) {
            const int32_t taps = smg_max(high * inside(ox * p->stride_w - p->pad_w, p->k_w, p->x_w), 1);
            const int32_t share = ((1 << p->share_bits) + taps / 2) / taps;
            const int8_t *window = dy + (oy * p->y_w + ox) * p->y_c;
            for (int32_t n = 0; n < count; n++) sums[n] += window[n] * share;
        }
    }
}

void smg_avg_pool_grad_g8(const smg_avg_pool_grad_g8_params *p, const int8_t *dy, const uint8_t *mask,
                          const int32_t *step_state, int8_t *dx, int32_t *peak_bits) {
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    for (int32_t at = 0; at < p->x_h * p->x_w; at++) {
        for (int32_t c = 0; c < p->x_c; c += SMG_SUMS) {
            const int32_t count = smg_min(SMG_SUMS, p->x_c - c), index = at * p->x_c + c;
            int32_t sums[SMG_SUMS] = {0};
            avg_element(p, dy + c, at / p->x_w, at % p->x_w, count, sums);
            smg_round_sums(&r, sums, count, c, index, mask, dx + index);
        }
    }
    *peak_bits = (int32_t)r.peak_bits;
}

/* Take from `wins` the channels in which another tap of the window beats `own`: an earlier one also where equal. */
static inline void beat(int8_t *wins, const int8_t *own, const int8_t *other, int32_t earlier, int32_t count) {
    for (int32_t n = 0; n < count; n++) wins[n] = (int8_t)(wins[n] & (other[n] < own[n] + !earlier));
}

/* Which of `count` channels of the element at (iy, ix) are the first largest of window (oy, ox). */
static inline void winners(const smg_max_pool_grad_g8_params *p, const int8_t *x, int32_t iy, int32_t ix, int32_t oy,
                           int32_t ox, int32_t count, int8_t *wins) {
    const int32_t top = oy * p->stride_h - p->pad_h, left = ox * p->stride_w - p->pad_w, own = iy * p->x_w + ix;
    const smg_taps rows = smg_taps_inside(top, p->k_h, 1, p->x_h), columns = smg_taps_inside(left, p->k_w, 1, p->x_w);
    for (int32_t n = 0; n < count; n++) wins[n] = 1;
    for (int32_t i = top + rows.from; i < top + rows.to; i++) {
        for (int32_t j = left + columns.from; j < left + columns.to; j++) {
            const int32_t other = i * p->x_w + j;
            if (other != own) beat(wins, x + own * p->x_c, x + other * p->x_c, other < own, count);
        }
    }
}

static inline void max_element(const smg_max_pool_grad_g8_params *p, const int8_t *dy, const int8_t *x, int32_t iy,
                               int32_t ix, int32_t count, int32_t *sums) {
    const smg_taps rows = windows(iy, p->pad_h, p->k_h, p->stride_h, p->y_h);
    const smg_taps columns = windows(ix, p->pad_w, p->k_w, p->stride_w, p->y_w);
    int8_t wins[SMG_SUMS];
    for (int32_t oy = rows.from; oy < rows.to; oy++) {
        for (int32_t ox = columns.from; ox < columns.to; ox++) {
            const int8_t *window = dy + (oy * p->y_w + ox) * p->y_c;
            winners(p, x, iy, ix, oy, ox, count, wins);
            for (int32_t n = 0; n < count; n++) sums[n] += window[n] * wins[n];
        }
    }
}

void smg_max_pool_grad_g8(const smg_max_pool_grad_g8_params *p, const int8_t *dy, const int8_t *x, const uint8_t *mask,
                          const int32_t *step_state, int8_t *dx, int32_t *peak_bits) {
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    for (int32_t at = 0; at < p->x_h * p->x_w; at++) {
        for (int32_t c = 0; c < p->x_c; c += SMG_SUMS) {
            const int32_t count = smg_min(SMG_SUMS, p->x_c - c), index = at * p->x_c + c;
            int32_t sums[SMG_SUMS] = {0};
            max_element(p, dy + c, x + c, at / p->x_w, at % p->x_w, count, sums);
            smg_round_sums(&r, sums, count, c, index, mask, dx + index);
        }
    }
    *peak_bits = (int32_t)r.peak_bits;
}
