/* Products of one row of int8 numbers with several, sixteen at a time. */
#include <arm_mve.h>

#include "dots.h"

enum { SIXTEEN = 16 };

/* The zero point is taken off at the end, as often as the weights' sum says. */
static int32_t one_row(const int8_t *x, const int8_t *w, int32_t count, int32_t zero) {
    int32_t sum = 0, weights = 0;
    for (; count > 0; count -= SIXTEEN, x += SIXTEEN, w += SIXTEEN) {
        const mve_pred16_t some = vctp8q((uint32_t)count);
        const int8x16_t row = vldrbq_z_s8(w, some);
        sum = vmladavaq_p_s8(sum, vldrbq_z_s8(x, some), row, some);
        weights = vaddvaq_p_s8(weights, row, some);
    }
    return sum - zero * weights;
}

void smg_dots(int32_t *sums, int32_t rows, const int8_t *x, const int8_t *w, int32_t apart, int32_t count,
              int32_t zero) {
    for (int32_t r = 0; r < rows; r++) sums[r] = one_row(x, w + r * apart, count, zero);
}
