/* The fully connected layer. */
#include "smidgen.h"

#include "arithmetic.h"
#include "dense.h"

/* Sums of this many products fit in 32 bits; longer rows are summed in runs, whose total wraps as in the contract. */
enum { RUN = 1 << 15 };

static inline int32_t dot(const int8_t *x, const int8_t *w, int32_t k, int32_t x_zero) {
    uint32_t total = 0;
    for (int32_t start = 0; start < k; start += RUN) {
        const int32_t end = smg_min(start + RUN, k);
        int32_t acc = 0;
        for (int32_t i = start; i < end; i++) acc += (int16_t)(x[i] - x_zero) * (int16_t)w[i];
        total += (uint32_t)acc;
    }
    return (int32_t)total;
}

void smg_dense_s8(const smg_dense_s8_params *p, const int8_t *x, const int8_t *w, const int32_t *b, int8_t *y) {
    for (int32_t r = 0; r < p->rows; r++, x += p->x_c, y += p->y_c) {
        for (int32_t n = 0; n < p->y_c; n++) {
            const uint32_t acc = (uint32_t)dot(x, w + n * p->x_c, p->x_c, p->x_zero) + (uint32_t)b[n];
            y[n] = smg_to_int8(smg_scale_double((int32_t)acc, p->factor[n]), p->y_zero, p->lo, p->hi);
        }
    }
}
