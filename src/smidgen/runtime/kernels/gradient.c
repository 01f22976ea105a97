/* Gradients element by element: through a requantization, of sums, products and repetitions, from float32. */
#include "smidgen_training.h"

#include "float32.h"
#include "rounding.h"

/* Elements whose channels differ in their factors; where one factor serves all, the tensor is one row. */
static inline int32_t row_length(int32_t n, int32_t c, int32_t factors) { return factors > 1 ? c : n; }

void smg_requantize_grad_g8(const smg_requantize_grad_g8_params *p, const int8_t *dy, const uint8_t *mask,
                            const int32_t *step_state, int8_t *dx, int32_t *peak_bits) {
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    const int32_t row = row_length(p->n, p->c, p->factors);
    int32_t sums[SMG_SUMS];
    for (int32_t at = 0, count; at < p->n; at += count) {
        count = smg_min(SMG_SUMS, row - at % row);
        for (int32_t i = 0; i < count; i++) sums[i] = dy[at + i];
        smg_round_sums(&r, sums, count, at % row, at, mask, dx + at);
    }
    *peak_bits = (int32_t)r.peak_bits;
}

/* g * 2^by, as shifts to the left and to the right, one of which is none. */
typedef struct {
    int32_t left, right;
} shifts;

static inline shifts shifts_of(int32_t by) {
    const shifts both = {smg_max(by, 0), smg_clamp(-by, 0, 31)};
    return both;
}

static inline int32_t align(int32_t g, shifts by) { return smg_shift_left(g, by.left) >> by.right; }

void smg_sum_g8(const smg_sum_g8_params *p, const int8_t *a, const int8_t *b, const uint8_t *mask,
                const int32_t *step_state, int8_t *dx, int32_t *peak_bits) {
    /* Both are taken in units of the smaller exponent, but no further below the larger than `reach`. */
    const int32_t a_exponent = smg_exponent(step_state, p->slot_in), b_exponent = smg_exponent(step_state, p->slot_b);
    const int32_t low = smg_min(a_exponent, b_exponent), high = smg_max(a_exponent, b_exponent);
    const int32_t unit = smg_max(low, high - p->reach);
    smg_rounding r = SMG_BEGIN(p, step_state, unit);
    const int32_t row = row_length(p->n, p->c, p->factors);
    const shifts a_by = shifts_of(a_exponent - unit), b_by = shifts_of(b_exponent - unit);
    int32_t sums[SMG_SUMS];
    for (int32_t at = 0, count; at < p->n; at += count) {
        count = smg_min(SMG_SUMS, row - at % row);
        for (int32_t i = 0; i < count; i++) sums[i] = align(a[at + i], a_by) + align(b[at + i], b_by);
        smg_round_sums(&r, sums, count, at % row, at, mask, dx + at);
    }
    *peak_bits = (int32_t)r.peak_bits;
}

void smg_mul_grad_g8(const smg_mul_grad_g8_params *p, const int8_t *dy, const int8_t *b, const uint8_t *mask,
                     const int32_t *step_state, int8_t *dx, int32_t *peak_bits) {
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    const int32_t row = row_length(p->n, p->c, p->factors);
    int32_t sums[SMG_SUMS];
    for (int32_t at = 0, count; at < p->n; at += count) {
        count = smg_min(SMG_SUMS, row - at % row);
        for (int32_t i = 0; i < count; i++) sums[i] = dy[at + i] * (b[(at + i) % p->b_period] - p->b_zero);
        smg_round_sums(&r, sums, count, at % row, at, mask, dx + at);
    }
    *peak_bits = (int32_t)r.peak_bits;
}

void smg_repeat_grad_g8(const smg_repeat_grad_g8_params *p, const int8_t *dy, const uint8_t *mask,
                        const int32_t *step_state, int8_t *dx, int32_t *peak_bits) {
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    const int32_t row = row_length(p->n, p->c, p->factors);
    for (int32_t at = 0, count; at < p->n; at += count) {
        int32_t sums[SMG_SUMS] = {0};
        count = smg_min(SMG_SUMS, row - at % row);
        for (int32_t k = 0; k < p->repeats; k++)
            for (int32_t i = 0; i < count; i++) sums[i] += dy[k * p->n + at + i];
        smg_round_sums(&r, sums, count, at % row, at, mask, dx + at);
    }
    *peak_bits = (int32_t)r.peak_bits;
}

void smg_from_float_g8(const smg_from_float_g8_params *p, const float *dy, const float *g0, const int32_t *step_state,
                       int8_t *dx, int32_t *peak_bits) {
    const float unit = *g0 > p->tiny ? 1.0f / *g0 : 0.0f, factor = p->scale * unit, most = 536870912.0f; /* 2^29 */
    const float power = smg_power_of_two(p->bits - smg_exponent(step_state, p->slot));
    const int32_t half = 1 << 30; /* raised by one bit, sums come through it as they are */
    smg_rounding r = smg_begin(&half, 1, 1, p->bits, smg_stream_key(step_state, p->stream));
    int32_t sums[SMG_SUMS];
    for (int32_t at = 0; at < p->n; at += SMG_SUMS) {
        const int32_t count = smg_min(SMG_SUMS, p->n - at);
        for (int32_t i = 0; i < count; i++) {
            const float scaled = smg_limit(dy[at + i] * factor * power, most);
            const int32_t whole = (int32_t)scaled;
            sums[i] = whole - (scaled < (float)whole);
        }
        smg_round_sums(&r, sums, count, 0, at, 0, dx + at);
    }
    *peak_bits = (int32_t)r.peak_bits;
}
