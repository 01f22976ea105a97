/* The projection of features: sums of all of them with signs, by the fast transform of Hadamard's matrix. */
#include "smidgen.h"

#include "arithmetic.h"
#include "stochastic.h"

/* Features with their random signs, and zeros up to the width of the matrix. */
static void begin(const smg_project_s8_params *p, const int8_t *x, int32_t *sums) {
    uint32_t signs = 0;
    for (int32_t c = 0; c < p->d; c++, signs >>= 1) {
        if (c % 32 == 0) signs = smg_word(1, (uint32_t)c / 32);
        const int32_t centred = x[c] - p->zero;
        sums[c] = signs & 1 ? -centred : centred;
    }
    for (int32_t c = p->d; c < p->width; c++) sums[c] = 0;
}

/* Sums with the signs of every row of the matrix, in place. */
static void transform(int32_t *sums, int32_t width) {
    for (int32_t half = 1; half < width; half *= 2)
        for (int32_t at = 0; at < width; at += 2 * half)
            for (int32_t i = at; i < at + half; i++) {
                const int32_t a = sums[i], b = sums[i + half];
                sums[i] = a + b;
                sums[i + half] = a - b;
            }
}

void smg_project_s8(const smg_project_s8_params *p, const int8_t *x, int8_t *y, void *scratch) {
    int32_t *const sums = scratch;
    begin(p, x, sums);
    transform(sums, p->width);
    const uint32_t last = (uint32_t)p->width - 1;
    for (int32_t i = 0; i < p->count; i++) {
        const int32_t sum = sums[((uint32_t)i * 0x9E3779B9u) & last];
        y[i] = smg_to_int8(smg_shift_right(sum, p->shift), 0, -128, 127);
    }
}
