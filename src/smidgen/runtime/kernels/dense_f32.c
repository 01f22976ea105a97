/* The float32 classifier: forward, backward and its step, each sum in one fixed order. */
#include "smidgen_training.h"

#include "exact_floats.h"
#include "float32.h"
#include "stochastic.h"
#include "unroll.h"

/* Partial sums of a dot product; LANES of the graph's op. */
enum { SMG_LANES = 8 };

/* What rate times dy is kept within, 2^30: float32 rounds away what is added to 2^25 times as much, so that weights stay
 * numbers however many steps there are. */
#define SMG_STEP_LIMIT 1073741824.0f

/* Lane i sums every eighth product from i on, then the lanes fold in halves. */
static inline float dot(const float *x, const float *w, int32_t count) {
    float lanes[SMG_LANES] = {0};
    int32_t k = 0;
    for (; k + SMG_LANES <= count; k += SMG_LANES) {
        SMG_UNROLL_ALL
        for (int32_t i = 0; i < SMG_LANES; i++) lanes[i] += x[k + i] * w[k + i];
    }
    for (int32_t i = 0; k + i < count; i++) lanes[i] += x[k + i] * w[k + i];
    for (int32_t half = SMG_LANES / 2; half > 0; half /= 2)
        for (int32_t i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
}

void smg_dense_f32(const smg_dense_f32_params *p, const float *x, const float *w, const float *b, float *y) {
    for (int32_t r = 0; r < p->rows; r++, x += p->x_c, y += p->y_c)
        for (int32_t n = 0; n < p->y_c; n++) y[n] = dot(x, w + n * p->x_c, p->x_c) + b[n];
}

void smg_dense_grad_f32(const smg_dense_grad_f32_params *p, const float *dy, const float *w, float *dx) {
    for (int32_t r = 0; r < p->rows; r++, dy += p->y_c, dx += p->x_c) {
        for (int32_t k = 0; k < p->x_c; k++) dx[k] = 0;
        for (int32_t n = 0; n < p->y_c; n++)
            for (int32_t k = 0; k < p->x_c; k++) dx[k] += dy[n] * w[n * p->x_c + k];
    }
}

/* w[k] -= d * x[k]. */
static inline void step(float *restrict w, const float *restrict x, float d, int32_t count) {
    for (int32_t k = 0; k < count; k++) w[k] -= d * x[k];
}

/* The same through a buffer: it gathers steps, and at the last of some samples lets them through and decays. */
static inline void step_buffered(float *restrict w, float *restrict buffer, const float *restrict x, float d,
                                 int32_t count, float decay, int due) {
    for (int32_t k = 0; k < count; k++) {
        const float full = buffer[k] + d * x[k];
        buffer[k] = due ? full * decay : full;
        if (due) w[k] -= full;
    }
}

void smg_dense_step_f32(const smg_dense_step_f32_params *p, float *w, float *b, float *w_buffer, float *b_buffer,
                        const float *x, const float *dy, const float *learning_rate, const int32_t *step_state) {
    const int due = smg_due(step_state, p->rule.accumulate);
    const float one = 1, rate = *learning_rate >= 0 && *learning_rate <= FLT_MAX ? *learning_rate : 0;
    for (int32_t n = 0; n < p->y_c; n++, w += p->x_c) {
        const float d = smg_limit(dy[n] * rate, SMG_STEP_LIMIT);
        if (w_buffer) {
            step_buffered(w, w_buffer + n * p->x_c, x, d, p->x_c, p->rule.decay, due);
            step_buffered(b + n, b_buffer + n, &one, d, 1, p->rule.decay, due);
        } else {
            step(w, x, d, p->x_c);
            b[n] -= d;
        }
    }
}
