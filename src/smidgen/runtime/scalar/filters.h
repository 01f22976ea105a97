/* One filter against tiles of four pixels, and sums made int8: what is written in assembly for Thumb. */
#ifndef SMIDGEN_FILTERS_H
#define SMIDGEN_FILTERS_H

#include <stdint.h>

/* sums[tile][pixel] += x[tile][i][pixel] * w[i] for i < length, a multiple of four, and at least one tile. */
void smg_filter_tiles(uint32_t *sums, const int32_t *x, const int32_t *w, int32_t length, int32_t tiles);

#endif
