/* Depthwise windows slide over one channel's strips of words, four outputs at a time. */
#ifndef SMIDGEN_SLIDE_H
#define SMIDGEN_SLIDE_H

#include <stdint.h>

/* A weight, and how many bytes the next tap's input lies behind the fourth output's of this one. */
typedef struct {
    int32_t w, onward;
} smg_tap;

/* What one call computes; assembly knows the fields by their places. */
typedef struct {
    uint32_t *sums;      /* [row][tile][pixel] */
    const int32_t *x;    /* the first window's first tap */
    const smg_tap *taps; /* up to `end` */
    const smg_tap *end;
    int32_t tiles, rows; /* of outputs */
    int32_t down;        /* bytes from a row of windows to the next */
    uint32_t start;      /* what sums begin with */
    int32_t run;         /* so many taps, one after the other, lie side by side: a row of them, or 1 */
} smg_sliding;

/* Sums of every window; what is to be done is used up. */
void smg_slide(smg_sliding *of);

/* The same in assembly, for RISC-V, where three taps or more lie side by side and tiles are an even number, at least 2. */
void smg_slide_riscv(smg_sliding *of);

#endif
