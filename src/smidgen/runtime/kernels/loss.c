/* Softmax cross-entropy in float32 with an exp and a log of our own, and what a step takes from its gradient. */
#include "smidgen_training.h"

#include "float32.h"

static const float LOG2_E = 1.44269502f, LN2_HIGH = 0.693145752f, LN2_LOW = 1.42860677e-06f;

/* Below, e^x is taken as 0: it cannot show in a float32 sum that holds a 1. */
static const float EXP_LEAST = -80;

/* Logits are kept within 2^100, so that their differences are numbers. */
static const float LOGIT_LIMIT = 1.26765060e+30f;

/* e^x for x <= 0. */
static float exp_negative(float x) {
    const float limited = x > EXP_LEAST ? x : EXP_LEAST;
    const int32_t n = (int32_t)(limited * LOG2_E - 0.5f);
    const float whole = (float)n, r = (limited - whole * LN2_HIGH) - whole * LN2_LOW;
    float p = 0.00138888892f; /* Taylor: 1/6!, 1/5!, ... */
    p = p * r + 0.00833333377f;
    p = p * r + 0.0416666679f;
    p = p * r + 0.166666672f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return x < EXP_LEAST ? 0.0f : p * smg_power_of_two(n);
}

/* ln x for normal x > 0: x = m 2^e with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh((m - 1) / (m + 1)). */
static float log_positive(float x) {
    const int32_t bits = smg_bits(x), e = (bits - 0x3F3504F3) >> 23;
    const float m = smg_from_bits(bits - e * (1 << 23)), exponent = (float)e;
    const float s = (m - 1.0f) / (m + 1.0f), s2 = s * s;
    float p = 0.222222224f;
    p = p * s2 + 0.285714298f;
    p = p * s2 + 0.400000006f;
    p = p * s2 + 0.666666687f;
    p = p * s2 + 2.0f;
    return (exponent * LN2_LOW + s * p) + exponent * LN2_HIGH;
}

static int is_class(int32_t label, int32_t classes) { return label >= 0 && label < classes; }

void smg_softmax_cross_entropy_f32(const smg_softmax_cross_entropy_f32_params *p, const float *logits,
                                   const int32_t *label, float *loss, float *probabilities) {
    float highest = -LOGIT_LIMIT, total = 0;
    for (int32_t i = 0; i < p->classes; i++) {
        const float limited = smg_limit(logits[i], LOGIT_LIMIT);
        highest = limited > highest ? limited : highest;
    }
    for (int32_t i = 0; i < p->classes; i++) {
        probabilities[i] = exp_negative(smg_limit(logits[i], LOGIT_LIMIT) - highest);
        total += probabilities[i];
    }
    *loss = is_class(*label, p->classes)
                ? log_positive(total) - (smg_limit(logits[*label], LOGIT_LIMIT) - highest)
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
