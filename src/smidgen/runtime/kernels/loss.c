/* Softmax cross-entropy in float32, and what a step takes from its gradient. */
#include "smidgen_training.h"

#include "exp_log.h"

static int is_class(int32_t label, int32_t classes) { return label >= 0 && label < classes; }

void smg_softmax_cross_entropy_f32(const smg_softmax_cross_entropy_f32_params *p, const float *logits,
                                   const int32_t *label, float *loss, float *probabilities) {
    float highest = -SMG_LOGIT_LIMIT, total = 0;
    for (int32_t i = 0; i < p->classes; i++) {
        const float limited = smg_limit(logits[i], SMG_LOGIT_LIMIT);
        highest = limited > highest ? limited : highest;
    }
    for (int32_t i = 0; i < p->classes; i++) {
        probabilities[i] = smg_exp_negative(smg_limit(logits[i], SMG_LOGIT_LIMIT) - highest);
        total += probabilities[i];
    }
    *loss = is_class(*label, p->classes)
                ? smg_log_positive(total) - (smg_limit(logits[*label], SMG_LOGIT_LIMIT) - highest)
                : 0.0f;
    for (int32_t i = 0; i < p->classes; i++) probabilities[i] /= total;
}

/* d may lie in the probabilities' place. */
void smg_cross_entropy_grad_f32(const smg_cross_entropy_grad_f32_params *p, const float *probabilities,
                                const int32_t *label, float *d) {
    const int known = is_class(*label, p->classes);
    for (int32_t i = 0; i < p->classes; i++) d[i] = known ? probabilities[i] : 0.0f;
    if (known) d[*label] -= 1.0f;
}

void smg_max_abs_f32(const smg_max_abs_f32_params *p, const float *x, float *largest) {
    *largest = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const float size = x[i] < 0 ? -x[i] : x[i];
        if (size > *largest) *largest = size;
    }
}

/* The rate as a mantissa of 31 bits and an exponent; 0 where its own exponent is out of range. */
void smg_rate_f32(const smg_rate_f32_params *p, const float *learning_rate, const float *g0, int32_t *rate) {
    const int32_t bits = smg_bits(*learning_rate * *g0), exponent = bits >> 23;
    const int use = exponent >= p->least && exponent <= p->largest;
    rate[0] = use ? ((bits & 0x7FFFFF) | 0x800000) << 7 : 0;
    rate[1] = use ? exponent - 126 : 0;
}
