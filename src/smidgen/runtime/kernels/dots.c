/* Products of one row of int8 numbers with several. */
#include "dots.h"

void smg_dots(int32_t *sums, int32_t rows, const int8_t *x, const int8_t *w, int32_t apart, int32_t count,
              int32_t zero) {
    for (int32_t r = 0; r < rows; r++, w += apart) {
        int32_t acc = 0;
        for (int32_t i = 0; i < count; i++) acc += (int16_t)(x[i] - zero) * (int16_t)w[i];
        sums[r] = acc;
    }
}
