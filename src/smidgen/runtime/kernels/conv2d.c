/* 2-D convolution: tiles of pixels are gathered, window by window, and multiplied by the weights. */
#include "smidgen.h"

#include "arithmetic.h"
#include "gemm.h"
#include "window.h"

/* Lay out the window of one output pixel, `channels` input channels from c on, zero where it leaves the map. */
static inline void gather(const smg_conv2d_s8_params *p, smg_map x, int32_t oy, int32_t ox, int32_t c,
                          int32_t channels, int16_t *to) {
    const int32_t top = oy * p->stride_h - p->pad_h, left = ox * p->stride_w - p->pad_w;
    for (int32_t i = 0; i < p->k_h; i++) {
        const int32_t iy = top + i * p->dilation_h;
        const int8_t *row = iy >= 0 && iy < p->x_h ? smg_row(x, iy, p->x_w * p->x_c) + c : 0;
        for (int32_t j = 0; j < p->k_w; j++, to += channels) {
            const int32_t ix = left + j * p->dilation_w;
            if (row && ix >= 0 && ix < p->x_w)
                for (int32_t n = 0; n < channels; n++) to[n] = (int16_t)(row[ix * p->x_c + n] - p->x_zero);
            else
                for (int32_t n = 0; n < channels; n++) to[n] = 0;
        }
    }
}

void smg_conv2d_s8(const smg_conv2d_s8_params *p, smg_map x, const int8_t *w, const int32_t *b, smg_map y,
                   int32_t y0, int32_t y1, void *scratch) {
    const int32_t in = p->x_c / p->groups, out = p->y_c / p->groups, k = p->k_h * p->k_w * in;
    int16_t *tile = scratch;
    int8_t *to[SMG_TILE];
    for (int32_t start = y0 * p->y_w; start < y1 * p->y_w; start += SMG_TILE) {
        const int32_t pixels = smg_min(SMG_TILE, y1 * p->y_w - start);
        for (int32_t g = 0; g < p->groups; g++) {
            const smg_requantize q = {p->multiplier + g * out, p->shift + g * out, p->y_zero, p->lo, p->hi};
            for (int32_t i = 0; i < pixels; i++) {
                const int32_t oy = (start + i) / p->y_w, ox = (start + i) % p->y_w;
                gather(p, x, oy, ox, g * in, in, tile + i * k);
                to[i] = smg_row(y, oy, p->y_w * p->y_c) + ox * p->y_c + g * out;
            }
            smg_gemm_s8(&q, tile, pixels, k, w + g * out * k, b + g * out, out, to);
        }
    }
}
