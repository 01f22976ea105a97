/* The gradient of a convolution's weights, and the step they take. */
#include "smidgen_training.h"

#include "conv2d_weights_vnni.h"
#include "step_vnni.h"
#include "weight_taps.h"

typedef smg_conv2d_grad_weight_g8_params shape;

#if defined(SMG_VNNI)
/* Rows of so many sums, from that of output o on. */
typedef struct {
    const int32_t *sums;
    int32_t o, count, inner;
} rows;

/* Rows in turn; an object of the caller's comes along. */
typedef void take(void *to, rows some);

/* Of outputs with few inputs many rows at once, else six. 0 where the geometry is not one for vectors. */
static int vector_rows(const shape *p, const int8_t *x, const int8_t *dy, take *each, void *to) {
    smg_vnni_outer of;
    if (!smg_vnni_begin_outer(p, &of)) return 0;
    if (of.inner <= SMG_VNNI_ROW) {
        for (int32_t o = 0; o < p->y_c; o += SMG_VNNI_LAID) {
            const rows some = {of.sums, o, smg_min(SMG_VNNI_LAID, p->y_c - o), of.inner};
            smg_vnni_outer_all(p, x, dy, o, &of);
            each(to, some);
        }
        return 1;
    }
    smg_vnni_lay_inputs(p, x, 0, &of);
    for (int32_t o = 0; o < p->y_c; o += SMG_VNNI_SIX) {
        const rows some = {of.sums, o, smg_min(SMG_VNNI_SIX, p->y_c - o), of.inner};
        if (o % SMG_VNNI_LAID == 0) smg_vnni_lay_outputs(p, dy, o, &of);
        smg_vnni_outer_sums(p, &of, o % SMG_VNNI_LAID, 0, of.sums, of.inner);
        each(to, some);
    }
    return 1;
}

static void keep(void *to, rows some) {
    memcpy((int32_t *)to + some.o * some.inner, some.sums, (size_t)(some.count * some.inner) * sizeof *some.sums);
}

/* What a step moves. */
typedef struct {
    const smg_step *step;
    int8_t *w;
    uint8_t *fraction;
    int16_t *buffer;
} moved;

static void move(void *to, rows some) {
    const moved *m = to;
    if (some.inner <= SMG_VNNI_INNER) {
        smg_vnni_step_channels(m->step, some.sums, some.count, some.inner, some.o, m->w, m->fraction, m->buffer);
        return;
    }
    for (int32_t i = 0; i < some.count; i++)
        smg_step_weights(m->step, some.sums + i * some.inner, some.inner, some.o + i, 0, (some.o + i) * some.inner,
                         m->w, m->fraction, m->buffer);
}
#endif

void smg_conv2d_grad_weight_g8(const smg_conv2d_grad_weight_g8_params *p, const int8_t *x, const int8_t *dy,
                               int32_t *dw) {
#if defined(SMG_VNNI)
    if (vector_rows(p, x, dy, keep, dw)) return;
#endif
    for (int32_t o = 0; o < p->y_c; o++) smg_weight_taps(p, x, dy, o, dw + o * (p->k_h * p->k_w * (p->x_c / p->groups)));
}

void smg_conv2d_weight_step(const smg_conv2d_weight_step_params *p, int8_t *w, uint8_t *fraction, int16_t *buffer,
                            const int8_t *x, const int8_t *dy, const int32_t *rate, const int32_t *step_state,
                            void *scratch) {
    const smg_step s = SMG_BEGIN_WEIGHTS(p, buffer, rate, step_state);
    const shape geometry = {SMG_WINDOW_OF(p), p->groups, p->x_zero};
    int32_t *sums = scratch;
#if defined(SMG_VNNI)
    moved m = {&s, w, fraction, buffer};
    if (vector_rows(&geometry, x, dy, move, &m)) return;
#endif
    for (int32_t o = 0; o < p->c; o++) {
        smg_weight_taps(&geometry, x, dy, o, sums);
        smg_step_weights(&s, sums, p->inner, o, 0, o * p->inner, w, fraction, buffer);
    }
}
