/* Filters of four channels against windows of pixels. */
#ifndef SMIDGEN_PIXELS_H
#define SMIDGEN_PIXELS_H

#include <stdint.h>

/* What the assembly reads: keep the order. */
typedef struct {
    const int8_t *w[4];
    int32_t k, count; /* elements of a window, pixels: one at least */
    const int8_t *x;
    int32_t x_on; /* bytes from window to window */
    int8_t *y;
    int32_t y_on, x_zero, y_zero, lo, hi;
    struct {
        int32_t bias, multiplier, shift; /* to the right, so negative */
    } scale[4];
} smg_pixels;

/* Multiply, scale and limit. The zero point is taken into the biases, which change. */
void smg_multiply_pixels(smg_pixels *job);

#endif
