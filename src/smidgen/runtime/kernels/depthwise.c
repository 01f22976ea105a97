/* Depthwise convolution: each input channel has its own filters. */
#include "smidgen.h"

#include "arithmetic.h"
#include "window.h"

/* Channels are taken a block at a time, their accumulators on the stack. */
enum { BLOCK = 32 };

static inline void finish(const smg_depthwise_s8_params *p, const int32_t *acc, int32_t c, int32_t count, int8_t *y) {
    for (int32_t i = 0; i < count; i++)
        y[i] = smg_to_int8(smg_multiply(acc[i], p->multiplier[c + i], p->shift[c + i]), p->y_zero, p->lo, p->hi);
}

/* `count` output channels of one pixel from channel c on. */
static inline void pixel(const smg_depthwise_s8_params *p, smg_map x, const int8_t *w, const int32_t *b, int32_t oy,
                         int32_t ox, int32_t c, int32_t count, int8_t *y) {
    const int32_t top = oy * p->stride_h - p->pad_h, left = ox * p->stride_w - p->pad_w, times = p->y_c / p->x_c;
    const smg_taps rows = smg_taps_inside(top, p->k_h, p->dilation_h, p->x_h);
    const smg_taps columns = smg_taps_inside(left, p->k_w, p->dilation_w, p->x_w);
    uint32_t acc[BLOCK];
    for (int32_t n = 0; n < count; n++) acc[n] = (uint32_t)b[c + n];
    for (int32_t i = rows.from; i < rows.to; i++) {
        const int8_t *row = smg_row(x, top + i * p->dilation_h, p->x_w * p->x_c);
        for (int32_t j = columns.from; j < columns.to; j++) {
            const int8_t *taps = row + (left + j * p->dilation_w) * p->x_c;
            const int8_t *weights = w + (i * p->k_w + j) * p->y_c + c;
            for (int32_t n = 0; n < count; n++)
                acc[n] += (uint32_t)((taps[(c + n) / times] - p->x_zero) * weights[n]);
        }
    }
    finish(p, (const int32_t *)acc, c, count, y + c);
}

void smg_depthwise_s8(const smg_depthwise_s8_params *p, smg_map x, const int8_t *w, const int32_t *b, smg_map y,
                      int32_t y0, int32_t y1) {
    for (int32_t oy = y0; oy < y1; oy++) {
        int8_t *out = smg_row(y, oy, p->y_w * p->y_c);
        for (int32_t ox = 0; ox < p->y_w; ox++, out += p->y_c)
            for (int32_t c = 0; c < p->y_c; c += BLOCK)
                pixel(p, x, w, b, oy, ox, c, smg_min(BLOCK, p->y_c - c), out);
    }
}
