/* How the fully connected layer scales its sums: this layer alone in double, as TFLite does. */
#ifndef SMIDGEN_DENSE_H
#define SMIDGEN_DENSE_H

#include <stdint.h>

#include "exact_floats.h"

/* acc * factor as TFLite's reference kernel rounds it: halves away from zero. */
static inline int32_t smg_scale_double(int32_t acc, double factor) {
    const double product = (double)acc * factor, limit = 1e9;
    const double limited = product > limit ? limit : product < -limit ? -limit : product;
    const int32_t whole = (int32_t)limited;
    const double rest = limited - (double)whole;
    return whole + (rest >= 0.5) - (rest <= -0.5);
}

#endif
