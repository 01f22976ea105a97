/* The gradient of a convolution's weights, and the step they take. That of a 1x1 convolution is dot products over all
 * positions, for which columns of both maps are laid out; elsewhere rows are summed up (see accumulate.c). */
#include "smidgen_training.h"

#include "dot_pixels.h"
#include "laying.h"
#include "step.h"
#include "weight_taps.h"
#include "working_helium.h"

typedef smg_conv2d_grad_weight_g8_params shape;

enum { FOUR = 4 };

void smg_conv2d_grad_weight_g8(const smg_conv2d_grad_weight_g8_params *p, const int8_t *x, const int8_t *dy,
                               int32_t *dw) {
    const int32_t row = p->k_h * p->k_w * (p->x_c / p->groups);
    for (int32_t o = 0; o < p->y_c; o++) smg_weight_taps(p, x, dy, o, dw + o * row);
}

/* Columns of both maps, and the sums of four output channels. */
typedef struct {
    int32_t positions, room; /* input channels that are laid out at once: a multiple of four */
    int32_t *sums;           /* [4][room] */
    int8_t *x, *dy;          /* [room][positions]; four columns, packed */
} columns;

/* The sums of four output channels with `count` input channels. */
static void multiply(const columns *c, int32_t count, int32_t zero) {
    int32_t found[FOUR * FOUR];
    smg_dot_job job = {c->dy, c->positions, FOUR, c->x, found, FOUR * 4};
    int32_t zeros[FOUR];
    for (int32_t i = 0; i < FOUR; i++) {
        int32_t total = 0, left = c->positions;
        const int8_t *from = c->dy + i * 16;
        for (int32_t some = ((left - 1) & 15) + 1; left > 0; left -= some, some = 16, from += 64)
            total = vaddvaq_p_s8(total, vldrbq_s8(from), vctp8q((uint32_t)some));
        zeros[i] = (int32_t)((uint32_t)zero * (uint32_t)total);
    }
    for (int32_t n = 0; n < count; n += FOUR, job.x += FOUR * c->positions) {
        smg_dot_pixels(&job);
        const int32x4x4_t all = vld4q_s32(found);
        for (int32_t i = 0; i < FOUR; i++) vstrwq_s32(c->sums + i * c->room + n, vsubq_n_s32(all.val[i], zeros[i]));
    }
}

/* Steps of a 1x1 convolution, some input channels at a time. */
static void step_pixels(const smg_conv2d_weight_step_params *p, const smg_step *s, int8_t *w, uint8_t *fraction,
                        int16_t *buffer, const int8_t *x, const int8_t *dy, void *scratch) {
    columns c = {.positions = p->x_h * p->x_w, .sums = scratch};
    c.room = smg_min(smg_max(SMG_WEIGHT_ROOM / c.positions & ~3, FOUR), (p->x_c + 3) & ~3);
    c.dy = (int8_t *)(c.sums + FOUR * c.room);
    c.x = c.dy + FOUR * ((c.positions + 15) & ~15);
    for (int32_t n = 0; n < p->x_c; n += c.room) {
        const int32_t count = smg_min(c.room, p->x_c - n);
        for (int32_t i = 0; i < count; i++)
            smg_lay_column(x + n + i, p->x_c, c.positions, c.x + i * c.positions);
        for (int32_t o = 0; o < p->y_c; o += FOUR) {
            const int32_t there = smg_min(FOUR, p->y_c - o);
            for (int32_t i = 0; i < there; i++)
                smg_pack_column(dy + o + i, p->y_c, c.positions, c.dy + i * 16);
            multiply(&c, count, p->x_zero);
            for (int32_t i = 0; i < there; i++)
                smg_step_weights(s, c.sums + i * c.room, count, o + i, 0, (o + i) * p->x_c + n, w, fraction, buffer);
        }
    }
}

static int pixels(const smg_conv2d_weight_step_params *p) {
    return p->k_h * p->k_w * p->stride_h * p->stride_w * p->groups == 1 && p->x_h == p->y_h && p->x_w == p->y_w &&
           p->pad_h == 0 && p->pad_w == 0 && p->x_c <= SMG_WIDEST && p->y_c <= SMG_WIDEST;
}

void smg_conv2d_weight_step(const smg_conv2d_weight_step_params *p, int8_t *w, uint8_t *fraction, int16_t *buffer,
                            const int8_t *x, const int8_t *dy, const int32_t *rate, const int32_t *step_state,
                            void *scratch) {
    const smg_step s = SMG_BEGIN_WEIGHTS(p, buffer, rate, step_state);
    const shape geometry = {SMG_WINDOW_OF(p), p->groups, p->x_zero};
    int32_t *sums = scratch;
    if (pixels(p)) {
        step_pixels(p, &s, w, fraction, buffer, x, dy, scratch);
        return;
    }
    for (int32_t o = 0; o < p->c; o++) {
        smg_weight_taps(&geometry, x, dy, o, sums);
        smg_step_weights(&s, sums, p->inner, o, 0, o * p->inner, w, fraction, buffer);
    }
}
