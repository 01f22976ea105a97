/* Products of one row of int8 numbers with several, in which recurrent layers spend their time. */
#ifndef SMIDGEN_DOTS_H
#define SMIDGEN_DOTS_H

#include <stdint.h>

/* sums[r] = Σ (x[i] - zero) * w[r * apart + i] over i < count, at most 2^15 of them, for r < rows, 1 to 4. */
void smg_dots(int32_t *sums, int32_t rows, const int8_t *x, const int8_t *w, int32_t apart, int32_t count,
              int32_t zero);

#endif
