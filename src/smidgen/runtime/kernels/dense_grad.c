/* The fully connected layer, backward: the gradient of its input, of its weights, and the step its weights take. */
#include "smidgen_training.h"

#include "accumulate.h"
#include "rounding.h"
#include "step.h"

void smg_dense_grad_g8(const smg_dense_grad_g8_params *p, const int8_t *dy, const int8_t *w, const uint8_t *mask,
                       const int32_t *step_state, int8_t *dx, int32_t *peak_bits) {
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    for (int32_t row = 0; row < p->rows; row++) {
        for (int32_t c = 0; c < p->x_c; c += SMG_SUMS) {
            const int32_t count = smg_min(SMG_SUMS, p->x_c - c), index = row * p->x_c + c;
            int32_t sums[SMG_SUMS] = {0};
            smg_accumulate(sums, count, dy + row * p->y_c, 1, w + c, p->x_c, p->y_c);
            smg_round_sums(&r, sums, count, c, index, mask, dx + index);
        }
    }
    *peak_bits = (int32_t)r.peak_bits;
}

typedef smg_dense_grad_weight_g8_params shape;

/* The gradient of output n's weights: sums[k] = Σ dy[n] (x[k] − zero) over the rows. */
static void output(const shape *p, const int8_t *x, const int8_t *dy, int32_t n, int32_t *sums) {
    int32_t total = 0;
    for (int32_t k = 0; k < p->x_c; k++) sums[k] = 0;
    smg_accumulate(sums, p->x_c, dy + n, p->y_c, x, p->x_c, p->rows);
    for (int32_t r = 0; r < p->rows; r++) total += dy[r * p->y_c + n];
    smg_take_zero(sums, p->x_c, p->x_zero, total);
}

void smg_dense_grad_weight_g8(const smg_dense_grad_weight_g8_params *p, const int8_t *x, const int8_t *dy,
                              int32_t *dw) {
    for (int32_t n = 0; n < p->y_c; n++) output(p, x, dy, n, dw + n * p->x_c);
}

void smg_dense_weight_step(const smg_dense_weight_step_params *p, int8_t *w, uint8_t *fraction, int16_t *buffer,
                           const int8_t *x, const int8_t *dy, const int32_t *rate, const int32_t *step_state,
                           void *scratch) {
    const smg_step s = SMG_BEGIN_WEIGHTS(p, buffer, rate, step_state);
    const shape sizes = {p->rows, p->x_c, p->y_c, p->x_zero};
    int32_t *sums = scratch;
    for (int32_t n = 0; n < p->y_c; n++) {
        output(&sizes, x, dy, n, sums);
        smg_step_weights(&s, sums, p->x_c, n, 0, n * p->x_c, w, fraction, buffer);
    }
}
