/* One pass: how far features lie from the nearest class, each operation in one fixed order. */
#include "exact_floats.h"
#include "sums.h"

/* Of a mean of n samples, a sample that it was not made of lies (n + 1) / n as far as of the true one. */
void smg_distance_s8(const smg_distance_s8_params *p, const int32_t *n, const int32_t *m, const int8_t *x,
                     const float *limit, float *distance) {
    int found = 0;
    *distance = 0;
    if (!(*limit > 0)) return;
    for (int32_t c = 0; c < p->classes; c++, m += p->d) {
        if (n[c] <= 0) continue;
        float sum = 0;
        for (int32_t i = 0; i < p->d; i++) {
            const float away = (float)smg_plus(smg_times(n[c], x[i] - p->zero), smg_times(-1, m[i]));
            sum += away * away;
        }
        const float share = sum / ((float)n[c] * ((float)n[c] + 1.0f) * *limit);
        if (!found || share < *distance) *distance = share;
        found = 1;
    }
}
