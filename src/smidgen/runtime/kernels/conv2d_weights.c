/* The gradient of a convolution's weights, and the step they take. */
#include "smidgen_training.h"

#include "conv2d_weights_vnni.h"
#include "step_vnni.h"
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
            const int32_t wide = of.groups * 64;
            if (o % SMG_VNNI_SIX == 0) smg_vnni_outer_sums(p, dy, o, &of, of.sums, wide);
            memcpy(dw + o * row, of.sums + o % SMG_VNNI_SIX * wide, (size_t)row * sizeof *dw);
        }
        return;
    }
#endif
    for (int32_t o = 0; o < p->y_c; o++) smg_weight_taps(p, x, dy, o, dw + o * row);
}

#if defined(SMG_VNNI)
/* The step of weights of few inputs: those of several outputs together. */
static void step_few(const smg_step *s, const shape *p, int32_t inner, const int8_t *dy, smg_vnni_outer *of, int8_t *w,
                     uint8_t *fraction, int16_t *buffer) {
    for (int32_t first = 0; first < p->y_c; first += SMG_VNNI_CHANNELS) {
        const int32_t count = smg_min(SMG_VNNI_CHANNELS, p->y_c - first);
        for (int32_t o = 0; o < count; o += SMG_VNNI_SIX)
            smg_vnni_outer_sums(p, dy, first + o, of, of->sums + o * inner, inner);
        smg_vnni_step_channels(s, of->sums, count, inner, first, w, fraction, buffer);
    }
}

/* The same of many inputs: output by output. */
static void step_many(const smg_step *s, const shape *p, int32_t inner, const int8_t *dy, smg_vnni_outer *of, int8_t *w,
                      uint8_t *fraction, int16_t *buffer) {
    const int32_t wide = of->groups * 64;
    for (int32_t o = 0; o < p->y_c; o++) {
        if (o % SMG_VNNI_SIX == 0) smg_vnni_outer_sums(p, dy, o, of, of->sums, wide);
        smg_step_weights(s, of->sums + o % SMG_VNNI_SIX * wide, inner, o, 0, o * inner, w, fraction, buffer);
    }
}
#endif

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
        if (p->inner <= SMG_VNNI_INNER)
            step_few(&s, &geometry, p->inner, dy, &of, w, fraction, buffer);
        else
            step_many(&s, &geometry, p->inner, dy, &of, w, fraction, buffer);
        return;
    }
#endif
    for (int32_t o = 0; o < p->c; o++) {
        smg_weight_taps(&geometry, x, dy, o, sums);
        smg_step_weights(&s, sums, p->inner, o, 0, o * p->inner, w, fraction, buffer);
    }
}
