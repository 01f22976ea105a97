/* One pass: sums of integers over samples, to which samples and other devices' sums are added, and taken out again. */
#include "sums.h"

/* Add a sample's features and their products, or take them out. */
static void add(const smg_observe_s8_params *p, int32_t *m, int32_t *g, const int8_t *x, int32_t sign) {
    for (int32_t i = 0; i < p->d; i++) {
        const int32_t xi = sign * (x[i] - p->zero);
        m[i] = smg_plus(m[i], xi);
        for (int32_t j = 0; j <= i; j++) g[j] = smg_plus(g[j], xi * (x[j] - p->zero));
        g += i + 1;
    }
}

void smg_observe_s8(const smg_observe_s8_params *p, int32_t *n, int32_t *m, int32_t *g, const int8_t *x,
                    const int32_t *sample, int32_t *code) {
    const int32_t label = sample[0], sign = sample[1] > 0 ? 1 : -1;
    const int64_t samples = smg_samples(n, p->classes);
    if (label < 0 || label >= p->classes) {
        *code = SMG_SUMS_NO_CLASS;
        return;
    }
    if (sign > 0 ? samples < 0 || samples >= SMG_MOST_SAMPLES : n[label] < 1 || samples < 1 || samples > SMG_MOST_SAMPLES) {
        *code = sign > 0 ? SMG_SUMS_FULL : SMG_SUMS_FEWER;
        return;
    }
    int32_t *row = m + label * p->d;
    n[label] = smg_plus(n[label], sign);
    add(p, row, g, x, sign);
    *code = SMG_SUMS_DONE;
    if (sign < 0 && !(smg_row_holds(row, p->d, n[label]) && smg_products_hold(g, p->d, samples - 1))) {
        n[label] = smg_plus(n[label], 1);
        add(p, row, g, x, 1);
        *code = SMG_SUMS_FEWER;
    }
}

/* to += sign * from. */
static void add_all(int32_t *to, const int32_t *from, int32_t sign, int32_t count) {
    for (int32_t i = 0; i < count; i++) to[i] = smg_plus(to[i], smg_times(sign, from[i]));
}

static void add_sums(const smg_merge_sums_params *p, int32_t *n, int32_t *m, int32_t *g, const int32_t *other_n,
                     const int32_t *other_m, const int32_t *other_g, int32_t sign) {
    add_all(n, other_n, sign, p->classes + 1);
    add_all(m, other_m, sign, p->classes * p->d);
    add_all(g, other_g, sign, p->d * (p->d + 1) / 2);
}

void smg_merge_sums(const smg_merge_sums_params *p, int32_t *n, int32_t *m, int32_t *g, const int32_t *other_n,
                    const int32_t *other_m, const int32_t *other_g, const int32_t *sign, int32_t *code) {
    const int32_t way = *sign > 0 ? 1 : -1;
    const int64_t samples = smg_samples(n, p->classes) + smg_samples(other_n, p->classes);
    if (!smg_sums_hold(n, m, g, p->classes, p->d) || !smg_sums_hold(other_n, other_m, other_g, p->classes, p->d)) {
        *code = SMG_SUMS_UNSOUND;
        return;
    }
    if (way > 0 && samples > SMG_MOST_SAMPLES) {
        *code = SMG_SUMS_FULL;
        return;
    }
    add_sums(p, n, m, g, other_n, other_m, other_g, way);
    *code = SMG_SUMS_DONE;
    if (way < 0 && !smg_sums_hold(n, m, g, p->classes, p->d)) {
        add_sums(p, n, m, g, other_n, other_m, other_g, 1);
        *code = SMG_SUMS_FEWER;
    }
}

/* The class's products about its rounded mean stay: their sum is what its features and that mean are taken out of. */
void smg_forget_class(const smg_forget_class_params *p, int32_t *n, int32_t *m, int32_t *g, const int32_t *label,
                      int32_t *code) {
    if (!smg_sums_hold(n, m, g, p->classes, p->d)) {
        *code = SMG_SUMS_UNSOUND;
        return;
    }
    if (*label < 0 || *label >= p->classes || !n[*label]) {
        *code = *label < 0 || *label >= p->classes ? SMG_SUMS_NO_CLASS : SMG_SUMS_FEWER;
        return;
    }
    int32_t *row = m + *label * p->d, samples = n[*label];
    for (int32_t i = 0; i < p->d; i++) {
        const int32_t centre = smg_centre(row[i], samples), rest = row[i] - samples * centre;
        for (int32_t j = 0; j <= i; j++)
            g[j] = smg_plus(g[j], -smg_plus(centre * row[j], rest * smg_centre(row[j], samples)));
        g += i + 1;
    }
    for (int32_t i = 0; i < p->d; i++) row[i] = 0;
    n[p->classes] += samples;
    n[*label] = 0;
    *code = SMG_SUMS_DONE;
}
