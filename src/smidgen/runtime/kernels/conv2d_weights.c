/* The gradient of a convolution's weights, and the step they take. */
#include "smidgen_training.h"

#include "conv2d_weights_vnni.h"
#include "step.h"
#include "weight_taps.h"

typedef smg_conv2d_grad_weight_g8_params shape;

void smg_conv2d_grad_weight_g8(const smg_conv2d_grad_weight_g8_params *p, const int8_t *x, const int8_t *dy,
                               int32_t *dw) {
    const int32_t row = p->k_h * p->k_w * (p->x_c / p->groups);
#if defined(SMG_VNNI)
    if (smg_vnni_outer_fits(p)) {
        smg_vnni_outer of;
        smg_vnni_lay_inputs(p, x, &of);
        for (int32_t o = 0; o < p->y_c; o++) {
            if (o % SMG_VNNI_SIX == 0) smg_vnni_outer_sums(p, dy, o, &of);
            memcpy(dw + o * row, of.sums[o % SMG_VNNI_SIX], (size_t)row * sizeof *dw);
        }
        return;
    }
#endif
    for (int32_t o = 0; o < p->y_c; o++) smg_weight_taps(p, x, dy, o, dw + o * row);
}

void smg_conv2d_weight_step(const smg_conv2d_weight_step_params *p, int8_t *w, uint8_t *fraction, int16_t *buffer,
                            const int8_t *x, const int8_t *dy, const int32_t *rate, const int32_t *step_state,
                            void *scratch) {
    const smg_step s = SMG_BEGIN_WEIGHTS(p, buffer, rate, step_state);
    const shape geometry = {SMG_WINDOW_OF(p), p->groups, p->x_zero};
    int32_t *sums = scratch;
#if defined(SMG_VNNI)
    if (smg_vnni_outer_fits(&geometry)) {
        smg_vnni_outer of;
        smg_vnni_lay_inputs(&geometry, x, &of);
        for (int32_t o = 0; o < p->c; o++) {
            if (o % SMG_VNNI_SIX == 0) smg_vnni_outer_sums(&geometry, dy, o, &of);
            smg_step_weights(&s, of.sums[o % SMG_VNNI_SIX], p->inner, o, 0, o * p->inner, w, fraction, buffer);
        }
        return;
    }
#endif
    for (int32_t o = 0; o < p->c; o++) {
        smg_weight_taps(&geometry, x, dy, o, sums);
        smg_step_weights(&s, sums, p->inner, o, 0, o * p->inner, w, fraction, buffer);
    }
}
