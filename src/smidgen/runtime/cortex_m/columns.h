/* Eight channels at a time: sums of a block of channels become gradients in one passage. */
#ifndef SMIDGEN_COLUMNS_H
#define SMIDGEN_COLUMNS_H

#include "rounding.h"
#include "working_packed.h"

/* Elements whose sums a kernel holds on its stack at once. */
enum { SMG_ELEMENTS = SMG_SUMS / SMG_COLUMNS };

/* Round sums[element][channel] of the channels [c, c + 8) of `count` elements. The first lies at `index` in the
 * tensor, the next `step` further on, and `to` is where the first goes; both are multiples of 8. */
void smg_round_columns(smg_rounding *r, const int32_t *sums, int32_t count, int32_t c, int32_t index, int32_t step,
                       const uint8_t *mask, int8_t *to);

#endif
