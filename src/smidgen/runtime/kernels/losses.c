/* Losses other than softmax cross-entropy, in float32: each a mean, and d, its gradient with respect to the logits. */
#include "smidgen_training.h"

#include "exp_log.h"

/* Errors are kept within 2^50, so that a sum of their squares is a number. */
static const float ERROR_LIMIT = 1.12589991e+15f;

/* In this order a NaN becomes 0. */
static float within_one(float target) {
    const float above = target > 0 ? target : 0.0f;
    return above < 1 ? above : 1.0f;
}

void smg_sigmoid_cross_entropy_f32(const smg_sigmoid_cross_entropy_f32_params *p, const float *logits,
                                   const float *target, float *loss, float *d) {
    const float n = (float)p->n;
    float sum = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const float z = smg_limit(logits[i], SMG_LOGIT_LIMIT), t = within_one(target[i]);
        const float e = smg_exp_negative(z > 0 ? -z : z), total = 1.0f + e;
        sum += ((z > 0 ? z : 0.0f) - z * t) + smg_log_positive(total);
        d[i] = ((z > 0 ? 1.0f : e) / total - t) / n;
    }
    *loss = sum / n;
}

void smg_mean_squared_error_f32(const smg_mean_squared_error_f32_params *p, const float *y, const float *target,
                                float *loss, float *d) {
    const float n = (float)p->n;
    float sum = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const float error = smg_limit(y[i] - target[i], ERROR_LIMIT);
        sum += error * error;
        d[i] = (error + error) / n;
    }
    *loss = sum / n;
}

void smg_reconstruction_error_f32(const smg_reconstruction_error_f32_params *p, const float *y, const int8_t *x,
                                  float *loss, float *d) {
    const float n = (float)p->n;
    float sum = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const float error = smg_limit(y[i] - p->scale * (float)(x[i] - p->zero), ERROR_LIMIT);
        sum += error * error;
        d[i] = (error + error) / n;
    }
    *loss = sum / n;
}

/* The cross-entropy of one cell whose label is a class, and its part of the gradient, where `n` cells have one. */
static float cell(int32_t classes, const float *logits, int32_t label, float n, float *d) {
    float highest = -SMG_LOGIT_LIMIT, total = 0;
    for (int32_t i = 0; i < classes; i++) {
        const float limited = smg_limit(logits[i], SMG_LOGIT_LIMIT);
        highest = limited > highest ? limited : highest;
    }
    for (int32_t i = 0; i < classes; i++) {
        d[i] = smg_exp_negative(smg_limit(logits[i], SMG_LOGIT_LIMIT) - highest);
        total += d[i];
    }
    for (int32_t i = 0; i < classes; i++) d[i] = (d[i] / total - (i == label ? 1.0f : 0.0f)) / n;
    return smg_log_positive(total) - (smg_limit(logits[label], SMG_LOGIT_LIMIT) - highest);
}

void smg_cell_cross_entropy_f32(const smg_cell_cross_entropy_f32_params *p, const float *logits,
                                const uint8_t *labels, float *loss, float *d) {
    const int32_t classes = p->classes;
    int32_t known = 0;
    float sum = 0;
    for (int32_t i = 0; i < p->cells; i++) known += labels[i] < classes;
    for (int32_t i = 0; i < p->cells; i++) {
        if (labels[i] < classes)
            sum += cell(classes, logits + i * classes, labels[i], (float)known, d + i * classes);
        else
            for (int32_t j = 0; j < classes; j++) d[i * classes + j] = 0;
    }
    *loss = known ? sum / (float)known : 0.0f;
}
