/* Sums that become int8 gradients, sixteen at a time. */
#ifndef SMIDGEN_SIXTEENS_H
#define SMIDGEN_SIXTEENS_H

#include "rounding.h"

enum { SMG_SIXTEEN = 16 };

/* What the assembly reads: keep the order. Steps are how far things go on after sixteen sums. */
typedef struct {
    const int32_t *sums, *multiplier;
    int8_t *to;
    const uint8_t *mask;
    int32_t lift, move; /* bits to the left, before and after the multiplication */
    uint32_t key;       /* of the first random word */
    int32_t multiplier_step, to_step, mask_step;
    uint32_t key_step;
    int32_t lanes, count; /* elements that there are of each sixteen; sixteens: one at least */
    uint32_t peak[4];     /* gets the bits that occur, in any of its bytes */
    uint32_t wide[4];     /* gets those of sixteens of which some saturate, before that */
} smg_sixteens;

/* Scale, mask, round at random and saturate; gives 0 where nothing saturates. Where `move` is to the left, nothing else
 * counts if something does. */
int32_t smg_round_sixteens(smg_sixteens *job);

/* Round sums[element][16] of the channels [c, c + lanes) of `count` elements. The first lies at `index` in the tensor,
 * the next `step` further on, and `to` is where the first goes; both are multiples of 8. */
void smg_round_channels(smg_rounding *r, const int32_t *sums, int32_t count, int32_t lanes, int32_t c, int32_t index,
                        int32_t step, const uint8_t *mask, int8_t *to);

#endif
