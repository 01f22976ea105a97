/* The mean of each channel over a whole map. */
#include "smidgen.h"

#include "arithmetic.h"

/* Channels are taken a block at a time, their accumulators on the stack. */
enum { BLOCK = 64 };

void smg_mean_s8(const smg_mean_s8_params *p, const int8_t *x, int8_t *y) {
    const int32_t pixels = p->x_h * p->x_w;
    for (int32_t c = 0; c < p->x_c; c += BLOCK) {
        const int32_t count = smg_min(BLOCK, p->x_c - c);
        uint32_t acc[BLOCK] = {0}; /* unsigned: the sum of a very large map wraps, as in the contract */
        for (int32_t i = 0; i < pixels; i++) {
            const int8_t *pixel = x + i * p->x_c + c;
            for (int32_t j = 0; j < count; j++) acc[j] += (uint32_t)(pixel[j] - p->x_zero);
        }
        for (int32_t j = 0; j < count; j++)
            y[c + j] = smg_to_int8(smg_multiply((int32_t)acc[j], p->multiplier, p->shift), p->y_zero, -128, 127);
    }
}
