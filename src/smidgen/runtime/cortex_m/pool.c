/* Max and average pooling, four channels at a time in packed bytes and halfwords. */
#include "smidgen.h"

#include <arm_acle.h>

#include "arithmetic.h"
#include "packed.h"
#include "window.h"

/* Taps whose sum a halfword holds: 256 times −128 is its least number. */
enum { MOST = 256 };

/* The taps of one output that lie inside the map, from channel 0 of the first. */
typedef struct {
    smg_map x;
    int32_t row_bytes, pixel_bytes, top, left;
    smg_taps rows, columns;
} window;

static window find(const smg_max_pool_s8_params *p, smg_map x, int32_t oy, int32_t ox) {
    const int32_t top = oy * p->stride_h - p->pad_h, left = ox * p->stride_w - p->pad_w;
    const window at = {x, p->x_w * p->x_c, p->x_c, top, left, smg_taps_inside(top, p->k_h, 1, p->x_h),
                       smg_taps_inside(left, p->k_w, 1, p->x_w)};
    return at;
}

static int32_t taps(const window *at) {
    return (at->rows.to - at->rows.from) * (at->columns.to - at->columns.from);
}

/* Where channel c of kernel row i's first tap is. */
static const int8_t *row(const window *at, int32_t i, int32_t c) {
    return smg_row(at->x, at->top + i, at->row_bytes) + (at->left + at->columns.from) * at->pixel_bytes + c;
}

static uint32_t largest(const window *at, int32_t c) {
    uint32_t most = 0x80808080u;
    for (int32_t i = at->rows.from; i < at->rows.to; i++) {
        const int8_t *x = row(at, i, c);
        for (int32_t j = at->columns.from; j < at->columns.to; j++, x += at->pixel_bytes) {
            const uint32_t word = smg_four(x);
            (void)__ssub8((int8x4_t)word, (int8x4_t)most); /* sets what the selection goes by */
            most = (uint32_t)__sel((uint8x4_t)word, (uint8x4_t)most);
        }
    }
    return most;
}

/* One channel by itself: its largest tap, or the sum of all. */
static int32_t alone(const window *at, int32_t c, int32_t sums) {
    int32_t total = sums ? 0 : -128;
    for (int32_t i = at->rows.from; i < at->rows.to; i++) {
        const int8_t *x = row(at, i, c);
        for (int32_t j = at->columns.from; j < at->columns.to; j++, x += at->pixel_bytes)
            total = sums ? total + *x : smg_max(total, *x);
    }
    return total;
}

void smg_max_pool_s8(const smg_max_pool_s8_params *p, const smg_map *x, const smg_map *y, int32_t y0, int32_t y1) {
    for (int32_t oy = y0; oy < y1; oy++) {
        int8_t *out = smg_row(*y, oy, p->y_w * p->y_c);
        for (int32_t ox = 0; ox < p->y_w; ox++, out += p->y_c) {
            const window at = find(p, *x, oy, ox);
            int32_t c = 0;
            for (; c + 4 <= p->y_c; c += 4) {
                const uint32_t word = largest(&at, c);
                for (int32_t n = 0; n < 4; n++) out[c + n] = (int8_t)smg_clamp((int8_t)(word >> 8 * n), p->lo, p->hi);
            }
            for (; c < p->y_c; c++) out[c] = (int8_t)smg_clamp(alone(&at, c, 0), p->lo, p->hi);
        }
    }
}

/* Sums of channels c and c + 2, and of the two others, as halves of words. */
static void add_up(const window *at, int32_t c, int32_t sums[4]) {
    int16x2_t even = 0, odd = 0;
    for (int32_t i = at->rows.from; i < at->rows.to; i++) {
        const int8_t *x = row(at, i, c);
        for (int32_t j = at->columns.from; j < at->columns.to; j++, x += at->pixel_bytes) {
            const uint32_t word = smg_four(x);
            even = __sxtab16(even, (int8x4_t)word);
            odd = __sxtab16(odd, (int8x4_t)smg_turned(word));
        }
    }
    sums[0] = (int16_t)even;
    sums[1] = (int16_t)odd;
    sums[2] = (int32_t)even >> 16;
    sums[3] = (int32_t)odd >> 16;
}

/* total / count, halves away from zero. */
static int32_t mean(int32_t total, int32_t count) {
    return (total < 0 ? total - count / 2 : total + count / 2) / count;
}

void smg_avg_pool_s8(const smg_avg_pool_s8_params *p, const smg_map *x, const smg_map *y, int32_t y0, int32_t y1) {
    for (int32_t oy = y0; oy < y1; oy++) {
        int8_t *out = smg_row(*y, oy, p->y_w * p->y_c);
        for (int32_t ox = 0; ox < p->y_w; ox++, out += p->y_c) {
            const window at = find(p, *x, oy, ox);
            const int32_t count = taps(&at);
            int32_t c = 0, sums[4];
            for (; c + 4 <= p->y_c && count <= MOST; c += 4) {
                add_up(&at, c, sums);
                for (int32_t n = 0; n < 4; n++)
                    out[c + n] = (int8_t)smg_clamp(mean(sums[n], count), p->lo, p->hi);
            }
            for (; c < p->y_c; c++) out[c] = (int8_t)smg_clamp(mean(alone(&at, c, 1), count), p->lo, p->hi);
        }
    }
}
