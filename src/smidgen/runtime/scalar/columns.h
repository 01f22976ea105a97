/* One channel of a gradient, pixel after pixel: where a mask stops most of it, no more is computed than passes. */
#ifndef SMIDGEN_COLUMNS_H
#define SMIDGEN_COLUMNS_H

#include "rounding.h"

/* Pixels whose sums a kernel holds on its stack at once. */
enum { SMG_COLUMN = 64 };

/* Whether the gradient of an element passes; all do where there is no mask. */
static inline int smg_passes(const uint8_t *mask, int32_t index) {
    return !mask || (mask[index >> 3] >> (index & 7) & 1);
}

/* Round the sums of `count` elements of channel c, the first at `index` in the tensor, the others `step` further each;
 * `to` is the first's. What is masked has a sum of 0, which stays 0. */
void smg_round_column(smg_rounding *r, const int32_t *sums, int32_t count, int32_t c, int32_t index, int32_t step,
                      int8_t *to);

#endif
