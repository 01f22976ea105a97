/* The sum of two tensors in int8, four elements at a time. TFLite halves the one of the larger scale exactly. */
#include <arm_mve.h>

#include "smidgen.h"

#include "arithmetic.h"
#include "noinline.h"

enum { HEADROOM = 20, FOUR = 4 }; /* bits TFLite gives the sum of two int8 tensors */

/* How smg_multiply scales, with shifts of vectors: to the left, what is taken off negative numbers so that halves go
 * away from zero, and to the right. */
typedef struct {
    int32_t multiplier, left, sign, right;
} scale;

static scale scale_of(int32_t multiplier, int32_t shift) {
    const scale s = {multiplier, smg_max(shift, 0), shift < 0 ? -31 : -32, smg_min(shift, 0)};
    return s;
}

static inline int32x4_t scaled(int32x4_t x, scale s) {
    const int32x4_t high = vqrdmulhq_n_s32(vshlq_r_s32(x, s.left), s.multiplier);
    const uint32x4_t negative = vshlq_r_u32(vreinterpretq_u32_s32(high), s.sign);
    return vrshlq_n_s32(vqsubq_s32(high, vreinterpretq_s32_u32(negative)), s.right);
}

static inline int32x4_t scaled_down(int32x4_t x, int32_t multiplier, int32_t shift) {
    const int32x4_t high = vqrdmulhq_n_s32(x, multiplier);
    return vrshlq_n_s32(vqaddq_s32(high, vshrq_n_s32(high, 31)), shift);
}

static inline int32x4_t limited(const smg_add_s8_params *p, int32x4_t x) {
    return vminq_s32(vmaxq_s32(vqaddq_n_s32(x, p->y_zero), vdupq_n_s32(p->lo)), vdupq_n_s32(p->hi));
}

/* Elements of which one is halved, and the sum and the other are scaled down. */
static SMG_NOINLINE void add_half(const smg_add_s8_params *p, const int8_t *half, const int8_t *other, int32_t swapped,
                                  int8_t *y, int32_t count) {
    const int32_t multiplier = swapped ? p->a_multiplier : p->b_multiplier, shift = swapped ? p->a_shift : p->b_shift;
    const int32_t half_zero = swapped ? p->b_zero : p->a_zero, other_zero = swapped ? p->a_zero : p->b_zero;
    const int32_t minus = -half_zero * (1 << (HEADROOM - 1)), y_multiplier = p->y_multiplier, y_shift = p->y_shift;
    for (; count > 0; count -= FOUR, half += FOUR, other += FOUR, y += FOUR) {
        const mve_pred16_t some = vctp32q((uint32_t)count);
        const int32x4_t b = vshlq_n_s32(vsubq_n_s32(vldrbq_z_s32(other, some), other_zero), HEADROOM);
        const int32x4_t both = vaddq_n_s32(scaled_down(b, multiplier, shift), minus);
        const int32x4_t sum = vmlaq_n_s32(both, vldrbq_z_s32(half, some), 1 << (HEADROOM - 1));
        vstrbq_p_s32(y, limited(p, scaled_down(sum, y_multiplier, y_shift)), some);
    }
}

/* Elements however their tensors are scaled. */
static SMG_NOINLINE void add_any(const smg_add_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y,
                                 int32_t count) {
    const scale of_a = scale_of(p->a_multiplier, p->a_shift), of_b = scale_of(p->b_multiplier, p->b_shift);
    const scale of_y = scale_of(p->y_multiplier, p->y_shift);
    for (; count > 0; count -= FOUR, a += FOUR, b += FOUR, y += FOUR) {
        const mve_pred16_t some = vctp32q((uint32_t)count);
        const int32x4_t left = vshlq_n_s32(vsubq_n_s32(vldrbq_z_s32(a, some), p->a_zero), HEADROOM);
        const int32x4_t right = vshlq_n_s32(vsubq_n_s32(vldrbq_z_s32(b, some), p->b_zero), HEADROOM);
        vstrbq_p_s32(y, limited(p, scaled(vaddq_s32(scaled(left, of_a), scaled(right, of_b)), of_y)), some);
    }
}

static int halves(int32_t multiplier, int32_t shift) { return multiplier == 1 << 30 && shift == 0; }

static void add(const smg_add_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y, int32_t count) {
    if (halves(p->a_multiplier, p->a_shift) && p->b_shift < 0 && p->y_shift < 0)
        add_half(p, a, b, 0, y, count);
    else if (halves(p->b_multiplier, p->b_shift) && p->a_shift < 0 && p->y_shift < 0)
        add_half(p, b, a, 1, y, count);
    else
        add_any(p, a, b, y, count);
}

void smg_add_s8(const smg_add_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y, int32_t count) {
    for (int32_t i = 0, length; i < count; i += length) {
        length = smg_min(p->b_period, count - i);
        add(p, a + i, b, y + i, length);
    }
}
