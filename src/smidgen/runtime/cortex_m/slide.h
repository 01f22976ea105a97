/* Filters slid over strips of packed halfwords: one channel, four neighbouring outputs at a time.
 *
 * A word holds one column of two rows, one below the other; so do the words of a filter. Where windows step over every
 * other column, a strip holds the even columns first, then the odd ones, and a row of the filter likewise. */
#ifndef SMIDGEN_SLIDE_H
#define SMIDGEN_SLIDE_H

#include <stdint.h>

/* From one row of outputs to the next: bytes on in the strips and in the filter. */
typedef struct {
    int32_t x, w;
} smg_stride;

/* All rows and columns of some channels, one channel after another. */
typedef struct {
    const int32_t *bias;
    int32_t channels;
    const uint32_t *x, *w; /* of the first channel, and bytes from channel to channel */
    int32_t x_on, w_on;
    int8_t *y;
    int32_t y_width, rows;    /* bytes of a row from its first output to behind the last */
    smg_stride stride, other; /* after one row, after the next, and so on in turn */
    int32_t y_c, zero;        /* zero: twice the zero point and 1 */
    int32_t kind;             /* the filter's width - 3, and 1 more where columns are stepped over */
    int32_t down, across;     /* bytes from strip to strip of a window, and to its odd half */
    int32_t y_on, y_row;      /* bytes from a row's end to the next one's start, from row to row */
    const int32_t *multiplier;
    const void *shift;
    int32_t narrow;      /* shifts are bytes, not words */
    int32_t last, share; /* bytes to the last strip of a window, and how many less from the third channel on */
    int32_t bytes;       /* of an output: 1, or 4 where it is the sum itself */
} smg_slides;

/* Slide, multiply, scale. */
void smg_slide(const smg_slides *slides);

#endif
