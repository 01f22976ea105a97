/* The gradient of a convolution's input. That of a 1x1 convolution is dot products with columns of weights, which are
 * laid out four at a time; elsewhere rows of weights are summed up (see accumulate.c). */
#include "smidgen_training.h"

#include "dot_pixels.h"
#include "grad_any.h"
#include "laying.h"
#include "sixteens.h"
#include "working_helium.h"

enum { COLUMNS = 4 };

/* The columns [c, c + COLUMNS) of the weights: where one is trained, its own weights. */
static void lay_columns(smg_weights w, int32_t rows, int32_t step, int32_t c, int8_t *to) {
    for (int32_t n = 0; n < COLUMNS; n++) smg_pack_column(w.data + c + n, step, rows, to + n * 16);
    for (int32_t i = 0; i < w.count; i++) {
        const int32_t n = w.channel[i] - c;
        if (n >= 0 && n < COLUMNS) smg_pack_column(w.trained + i, w.count, rows, to + n * 16);
    }
}

/* `count` elements, the first at `at`, of a 1x1 convolution. */
static void round_pixels(const smg_conv2d_grad_g8_params *p, smg_rounding *r, const int8_t *dy, smg_weights w,
                         const uint8_t *mask, int32_t at, int32_t count, int8_t *dx, int32_t *sums) {
    int8_t *columns = (int8_t *)(sums + count * SMG_SIXTEEN);
    smg_dot_job job = {columns, p->y_c, count, dy + at * p->y_c, sums, 4 * SMG_SIXTEEN};
    for (int32_t i = 0; i < count * SMG_SIXTEEN; i += 4) vstrwq_s32(sums + i, vdupq_n_s32(0));
    for (int32_t c = 0; c < p->x_c; c += SMG_SIXTEEN) {
        const int32_t lanes = smg_min(SMG_SIXTEEN, p->x_c - c), index = at * p->x_c + c;
        for (int32_t n = 0; n < lanes; n += COLUMNS) {
            lay_columns(w, p->y_c, p->x_c, c + n, columns);
            job.sums = sums + n;
            smg_dot_pixels(&job);
        }
        smg_round_channels(r, sums, count, lanes, c, index, p->x_c, mask, dx + index);
    }
}

/* Working memory is there for 1x1 convolutions alone. */
void smg_conv2d_grad_g8(const smg_conv2d_grad_g8_params *p, const int8_t *dy, const smg_weights *w,
                        const uint8_t *mask, const int32_t *step_state, int8_t *dx, int32_t *peak_bits, void *scratch) {
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    if (scratch) {
        const int32_t pixels = p->x_h * p->x_w, parts = (pixels + SMG_DOT_PIXELS - 1) / SMG_DOT_PIXELS;
        const int32_t part = (pixels + parts - 1) / parts;
        for (int32_t at = 0; at < pixels; at += part)
            round_pixels(p, &r, dy, *w, mask, at, smg_min(part, pixels - at), dx, scratch);
    } else {
        smg_conv2d_grad_any(p, &r, dy, *w, mask, dx);
    }
    *peak_bits = (int32_t)r.peak_bits;
}
