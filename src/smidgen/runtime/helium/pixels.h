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
    const int32_t *bias, *multiplier;
    const int8_t *shift; /* to the right, so negative */
    int8_t *room;        /* [4][k], with k rounded up to a whole vector, where it is more than SMG_SHORT */
} smg_pixels;

/* Multiply, scale and limit. */
void smg_multiply_pixels(const smg_pixels *job);

#endif
