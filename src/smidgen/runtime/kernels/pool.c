/* Max and average pooling: a window over each channel. */
#include "smidgen.h"

#include "arithmetic.h"
#include "window.h"

/* Channels are taken a block at a time, their accumulators on the stack. */
enum { BLOCK = 32 };

typedef void tap(int32_t *acc, const int8_t *x, int32_t count);

static inline void add_tap(int32_t *acc, const int8_t *x, int32_t count) {
    for (int32_t i = 0; i < count; i++) acc[i] += x[i];
}

static inline void max_tap(int32_t *acc, const int8_t *x, int32_t count) {
    for (int32_t i = 0; i < count; i++) acc[i] = smg_max(acc[i], x[i]);
}

/* Accumulate `count` channels of one output pixel from channel `c` on; gives the number of taps inside the map. */
static inline int32_t accumulate(const smg_max_pool_s8_params *p, smg_map x, int32_t oy, int32_t ox, int32_t c,
                                 int32_t count, int32_t *acc, tap *each) {
    const int32_t top = oy * p->stride_h - p->pad_h, left = ox * p->stride_w - p->pad_w;
    const smg_taps rows = smg_taps_inside(top, p->k_h, 1, p->x_h), columns = smg_taps_inside(left, p->k_w, 1, p->x_w);
    for (int32_t i = rows.from; i < rows.to; i++) {
        const int8_t *row = smg_row(x, top + i, p->x_w * p->x_c) + c;
        for (int32_t j = columns.from; j < columns.to; j++) each(acc, row + (left + j) * p->x_c, count);
    }
    return (rows.to - rows.from) * (columns.to - columns.from);
}

/* An accumulator and the number of taps in it to a result. */
typedef int32_t finish(int32_t acc, int32_t taps);

static inline int32_t largest(int32_t acc, int32_t taps) {
    (void)taps;
    return acc;
}

/* Halves away from zero. */
static inline int32_t mean(int32_t acc, int32_t taps) {
    return (acc < 0 ? acc - taps / 2 : acc + taps / 2) / taps;
}

static inline void pool(const smg_max_pool_s8_params *p, smg_map x, smg_map y, int32_t y0, int32_t y1, int32_t start,
                        tap *each, finish *result) {
    for (int32_t oy = y0; oy < y1; oy++) {
        int8_t *out = smg_row(y, oy, p->y_w * p->y_c);
        for (int32_t ox = 0; ox < p->y_w; ox++, out += p->y_c) {
            for (int32_t c = 0; c < p->y_c; c += BLOCK) {
                const int32_t count = smg_min(BLOCK, p->y_c - c);
                int32_t acc[BLOCK];
                for (int32_t i = 0; i < BLOCK; i++) acc[i] = start;
                const int32_t taps = accumulate(p, x, oy, ox, c, count, acc, each);
                for (int32_t i = 0; i < count; i++) out[c + i] = (int8_t)smg_clamp(result(acc[i], taps), p->lo, p->hi);
            }
        }
    }
}

void smg_max_pool_s8(const smg_max_pool_s8_params *p, const smg_map *x, const smg_map *y, int32_t y0, int32_t y1) {
    pool(p, *x, *y, y0, y1, -128, max_tap, largest);
}

void smg_avg_pool_s8(const smg_avg_pool_s8_params *p, const smg_map *x, const smg_map *y, int32_t y0, int32_t y1) {
    pool(p, *x, *y, y0, y1, 0, add_tap, mean);
}
