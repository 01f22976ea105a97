/* One filter against tiles of four pixels, in assembly, for Thumb. */
#ifndef SMIDGEN_FILTERS_H
#define SMIDGEN_FILTERS_H

#include <stdint.h>

/* What one call computes; assembly knows the fields by their places. */
typedef struct {
    uint32_t *sums;       /* [tile][pixel] */
    const uint32_t *from; /* what those of a tile begin with */
    int32_t onward;       /* bytes from there to what the next begins with */
    const int32_t *x;     /* [tile][element][pixel] */
    const int32_t *w;     /* up to `end`: a multiple of four elements */
    const int32_t *end;
    int32_t tiles; /* at least 1 */
} smg_filtering;

/* sums[tile][pixel] = from[tile][pixel] + the products of the elements and the pixel's; what is computed is used up. */
void smg_filter_tiles(smg_filtering *of);

#endif
