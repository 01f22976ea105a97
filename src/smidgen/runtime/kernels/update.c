/* The steps of biases, and of weights whose gradient is already summed. */
#include "smidgen_training.h"

#include "accumulate.h"
#include "step.h"

void smg_bias_step(const smg_bias_step_params *p, int32_t *b, int32_t *buffer, const int32_t *sums,
                   const int32_t *rate, const int32_t *step_state) {
    const smg_step s = SMG_BEGIN_STEP(p, 0, 0, rate, step_state);
    smg_step_biases(&s, sums, p->c, b, buffer);
}

void smg_channel_sum_g8(const smg_channel_sum_g8_params *p, const int8_t *dy, int32_t *sums) {
    smg_sum_rows(sums, p->c, dy, p->n);
}

void smg_bias_sum_step(const smg_bias_sum_step_params *p, int32_t *b, int32_t *buffer, const int8_t *dy,
                       const int32_t *rate, const int32_t *step_state, void *scratch) {
    const smg_step s = SMG_BEGIN_STEP(p, 0, 0, rate, step_state);
    smg_sum_rows(scratch, p->c, dy, p->n);
    smg_step_biases(&s, scratch, p->c, b, buffer);
}

void smg_difference_step(const smg_difference_step_params *p, int16_t *difference, int32_t *buffer,
                         const int32_t *sums, const int32_t *rate, const int32_t *step_state) {
    smg_step s = SMG_BEGIN_STEP(p, 0, 0, rate, step_state);
    s.unit = p->unit;
    smg_step_differences(&s, sums, p->c, difference, buffer);
}

void smg_difference_sum_step(const smg_difference_sum_step_params *p, int16_t *difference, int32_t *buffer,
                             const int8_t *dy, const int32_t *rate, const int32_t *step_state, void *scratch) {
    smg_step s = SMG_BEGIN_STEP(p, 0, 0, rate, step_state);
    s.unit = p->unit;
    smg_sum_rows(scratch, p->c, dy, p->n);
    smg_step_differences(&s, scratch, p->c, difference, buffer);
}

void smg_learned_bias(const smg_learned_bias_params *p, const int32_t *base, const int16_t *difference, int32_t *b) {
    for (int32_t i = 0; i < p->c; i++) { /* what is added has 31 bits, so a sum that wraps has the sign of neither */
        const int32_t moved = difference[i] * (1 << smg_unit(p->shift[i]));
        const int32_t sum = (int32_t)((uint32_t)base[i] + (uint32_t)moved);
        b[i] = ((base[i] ^ sum) & (moved ^ sum)) < 0 ? (moved < 0 ? INT32_MIN : INT32_MAX) : sum;
    }
}

void smg_weight_step(const smg_weight_step_params *p, int8_t *w, uint8_t *fraction, int16_t *buffer,
                     const int32_t *sums, const int32_t *rate, const int32_t *step_state) {
    const smg_step s = SMG_BEGIN_WEIGHTS(p, buffer, rate, step_state);
    /* Runs of one channel each, or, where neighbours are of different channels, runs of all channels. */
    const int32_t run = p->inner > 1 ? p->inner : p->c, c_step = p->inner > 1 ? 0 : 1;
    for (int32_t at = 0; at < p->n; at += run)
        smg_step_weights(&s, sums + at, run, c_step ? 0 : at / run % p->c, c_step, at, w, fraction, buffer);
}
