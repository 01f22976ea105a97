/* A rectifier with slopes in int8. The output may be the first input's memory. */
#include "smidgen.h"

#include "arithmetic.h"

void smg_prelu_s8(const smg_prelu_s8_params *p, const int8_t *x, const int8_t *slope, int8_t *y, int32_t count) {
    for (int32_t i = 0, k = 0; i < count; i++) {
        const int32_t steps = x[i] - p->x_zero;
        const int32_t scaled = steps >= 0 ? smg_multiply(steps, p->multiplier, p->shift)
                                          : smg_multiply(steps * (slope[k] - p->slope_zero), p->slope_multiplier,
                                                         p->slope_shift);
        y[i] = smg_to_int8(scaled, p->y_zero, -128, 127);
        k = k + 1 == p->slope_period ? 0 : k + 1;
    }
}
