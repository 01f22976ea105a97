/* Filters of channels, four at a time, against windows of pixels. */
#ifndef SMIDGEN_PIXELS_H
#define SMIDGEN_PIXELS_H

#include <stdint.h>

/* What the assembly reads: keep the order. */
typedef struct {
    int32_t k, count; /* elements of a window, pixels: one at least */
    const int8_t *x;
    int32_t fours; /* channels, four at a time: one at least */
    int32_t x_on;  /* bytes from window to window */
    int32_t y_on, x_zero, y_zero, lo, hi;
    int8_t *room;    /* [4][k], with k rounded up to a whole vector, where it is more than SMG_UNPACKED */
    const int8_t *w; /* from here on: of the first channel */
    const int32_t *bias, *multiplier;
    const int8_t *shift; /* to the right, so negative */
    int8_t *y;
} smg_pixels;

/* Multiply, scale and limit. What is said of the first channel becomes what is behind the last, and `fours` nothing. */
void smg_multiply_pixels(smg_pixels *job);

#endif
