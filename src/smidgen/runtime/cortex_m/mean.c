/* The mean of each channel over a whole map, four channels at a time in packed halfwords. */
#include "smidgen.h"

#include <arm_acle.h>

#include "arithmetic.h"

/* Pixels whose sum a halfword holds: 256 times −128 is its least number. */
enum { RUN = 256 };

static int8_t mean(const smg_mean_s8_params *p, uint32_t sum) {
    const uint32_t zeros = (uint32_t)(p->x_h * p->x_w) * (uint32_t)p->x_zero;
    return smg_to_int8(smg_multiply((int32_t)(sum - zeros), p->multiplier, p->shift), p->y_zero, -128, 127);
}

/* Sums of channels 0 to 3; unsigned, for that of a very large map wraps, as in the contract. */
static void add_pixels(const int8_t *x, int32_t stride, int32_t pixels, uint32_t sums[4]) {
    int16x2_t even = 0, odd = 0;
    for (int32_t i = 0; i < pixels; i++) {
        uint32_t word;
        __builtin_memcpy(&word, x + i * stride, sizeof word);
        even = __sadd16(even, __sxtb16((int8x4_t)word));
        odd = __sadd16(odd, __sxtb16((int8x4_t)(word >> 8 | word << 24)));
    }
    sums[0] += (uint32_t)(int16_t)even;
    sums[1] += (uint32_t)(int16_t)odd;
    sums[2] += (uint32_t)((int32_t)even >> 16);
    sums[3] += (uint32_t)((int32_t)odd >> 16);
}

void smg_mean_s8(const smg_mean_s8_params *p, const int8_t *x, int8_t *y) {
    const int32_t pixels = p->x_h * p->x_w, stride = p->x_c;
    int32_t c = 0;
    for (; c + 4 <= p->x_c; c += 4) {
        uint32_t sums[4] = {0};
        for (int32_t i = 0; i < pixels; i += RUN) add_pixels(x + i * stride + c, stride, smg_min(RUN, pixels - i), sums);
        for (int32_t j = 0; j < 4; j++) y[c + j] = mean(p, sums[j]);
    }
    for (; c < p->x_c; c++) {
        uint32_t sum = 0;
        for (int32_t i = 0; i < pixels; i++) sum += (uint32_t)x[i * stride + c];
        y[c] = mean(p, sum);
    }
}
