/* The passages between float32 and int8. */
#include "smidgen.h"

#include "arithmetic.h"
#include "exact_floats.h"

void smg_quantize_f32_s8(const smg_quantize_f32_s8_params *p, const float *x, int8_t *y, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        const float real = x[i] / p->scale;
        /* In this order a NaN becomes the lower limit. */
        const float above = real > -1e6f ? real : -1e6f;
        const float scaled = above < 1e6f ? above : 1e6f;
        const float size = scaled < 0 ? -scaled : scaled;
        const int32_t whole = (int32_t)size;
        const int32_t rounded = whole + (size - (float)whole >= 0.5f);
        y[i] = smg_to_int8(scaled < 0 ? -rounded : rounded, p->zero, -128, 127);
    }
}

/* The product is exact before its one rounding, so float32 gives what double would. */
void smg_dequantize_s8_f32(const smg_dequantize_s8_f32_params *p, const int8_t *x, float *y, int32_t count) {
    for (int32_t i = 0; i < count; i++) y[i] = p->scale * (float)(x[i] - p->zero);
}
