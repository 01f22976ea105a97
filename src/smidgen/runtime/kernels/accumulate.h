/* The sum of rows, scaled or not, in which the gradients of weighted layers spend their time. */
#ifndef SMIDGEN_ACCUMULATE_H
#define SMIDGEN_ACCUMULATE_H

#include <stdint.h>

/* sums[n] += Σ d[i * d_step] * rows[i * row_step + n] over i < count, for n < c. Gradients d lie within ±127. */
void smg_accumulate(int32_t *sums, int32_t c, const int8_t *d, int32_t d_step, const int8_t *rows, int32_t row_step,
                    int32_t count);

/* sums[n] = Σ rows[i * c + n] over i < count, for n < c. */
void smg_sum_rows(int32_t *sums, int32_t c, const int8_t *rows, int32_t count);

/* Take off what a zero point added: sums[n] -= zero * total, for n < c. */
static inline void smg_take_zero(int32_t *sums, int32_t c, int32_t zero, int32_t total) {
    const uint32_t part = (uint32_t)zero * (uint32_t)total;
    for (int32_t n = 0; n < c; n++) sums[n] = (int32_t)((uint32_t)sums[n] - part);
}

#endif
