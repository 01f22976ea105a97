/* A filter of one channel that slides over a strip. */
#ifndef SMIDGEN_SLIDE_WINDOWS_H
#define SMIDGEN_SLIDE_WINDOWS_H

#include <stdint.h>

/* What the assembly reads: keep the order. */
typedef struct {
    const int8_t *x, *w;
    int32_t bias, multiplier;
    int32_t shift; /* to the right, so negative */
    int32_t zero, lo, hi;
    int32_t tiles; /* of four pixels: one at least */
    int32_t step;  /* bytes from window to window */
    int8_t *y;
    int32_t y_on;
    int32_t vectors; /* of sixteen taps: 1, 2 or 4 */
} smg_slide_job;

/* Multiply, scale and limit. */
void smg_slide_windows(const smg_slide_job *job);

#endif
