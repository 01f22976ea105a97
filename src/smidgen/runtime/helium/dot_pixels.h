/* Products of four columns of weights with pixels. */
#ifndef SMIDGEN_DOT_PIXELS_H
#define SMIDGEN_DOT_PIXELS_H

#include <stdint.h>

/* What the assembly reads: keep the order. */
typedef struct {
    const int8_t *w; /* packed: see two_pixels.inc */
    int32_t k, count; /* pixels: one at least */
    const int8_t *x;  /* [count][k] */
    int32_t *sums;    /* four of each pixel */
    int32_t sums_on;  /* bytes from pixel to pixel */
} smg_dot_job;

/* Sum up. */
void smg_dot_pixels(const smg_dot_job *job);

#endif
