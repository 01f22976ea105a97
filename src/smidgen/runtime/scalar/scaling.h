/* Sums become int8: exactly TFLite's two roundings, set up once for all sums of a channel. */
#ifndef SMIDGEN_SCALING_H
#define SMIDGEN_SCALING_H

#include <stdint.h>

/* `half` holds half a unit and the zero point less the lower limit, both times 2^right; `range` is between the limits.
 * Assembly knows the fields by their places. */
typedef struct {
    int32_t multiplier, half, right, range, lo, zero;
} smg_scaling;

/* The largest product of a weight and an input less its zero point. */
#define SMG_LARGEST_PRODUCT 32640

/* How to scale by multiplier * 2^(shift - 31) sums of a bias and `count` products. */
smg_scaling smg_scaling_of(int32_t multiplier, int32_t shift, int32_t bias, int32_t count, int32_t zero, int32_t lo,
                           int32_t hi);

/* to[step * i] from sums[i], for i < count. */
void smg_scale_sums(int8_t *to, int32_t step, const uint32_t *sums, int32_t count, const smg_scaling *scaling);

/* The same where right is not negative, and for at least one sum: in assembly, for Thumb. */
void smg_scale_thumb(int8_t *to, int32_t step, const uint32_t *sums, int32_t count, const smg_scaling *scaling);

#endif
