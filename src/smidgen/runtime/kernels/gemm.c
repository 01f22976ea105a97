/* The matrix product that convolutions and dense layers share. */
#include "gemm.h"

#include "arithmetic.h"

/* Sums of this many products fit in 32 bits; longer rows are summed in runs, the total wraps as in the contract. */
enum { RUN = 32768 };

static inline int32_t dot(const int16_t *x, const int8_t *w, int32_t k) {
    uint32_t total = 0;
    for (int32_t start = 0; start < k; start += RUN) {
        const int32_t end = smg_min(start + RUN, k);
        int32_t acc = 0;
        for (int32_t i = start; i < end; i++) acc += x[i] * w[i];
        total += (uint32_t)acc;
    }
    return (int32_t)total;
}

void smg_gemm_s8(const smg_requantize *q, const int16_t *x, int32_t pixels, int32_t k, const int8_t *w,
                 const int32_t *b, int32_t channels, int8_t *const *y) {
    for (int32_t n = 0; n < channels; n++) {
        for (int32_t p = 0; p < pixels; p++) {
            const int32_t acc = (int32_t)((uint32_t)dot(x + p * k, w + n * k, k) + (uint32_t)b[n]);
            y[p][n] = smg_to_int8(smg_multiply(acc, q->multiplier[n], q->shift[n]), q->y_zero, q->lo, q->hi);
        }
    }
}
