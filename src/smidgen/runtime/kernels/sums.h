/* What the kernels of one pass know of sums; integers wrap where sums are damaged, and never where they are sound. */
#ifndef SMIDGEN_SUMS_KERNELS_H
#define SMIDGEN_SUMS_KERNELS_H

#include "smidgen_sums.h"

enum { SMG_LARGEST = 255, SMG_SQUARE = 255 * 255 }; /* of a feature's magnitude, and of a product's */

static inline int32_t smg_plus(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }
static inline int32_t smg_times(int32_t a, int32_t b) { return (int32_t)((uint32_t)a * (uint32_t)b); }

static inline int smg_within(int32_t x, int64_t most) { return x <= most && x >= -most; }

/* The samples of all classes, of those that were forgotten, too. */
static inline int64_t smg_samples(const int32_t *n, int32_t classes) {
    int64_t total = 0;
    for (int32_t c = 0; c <= classes; c++) total += n[c];
    return total;
}

/* Whether so many samples can give these products, x^2 among them. */
static inline int smg_products_hold(const int32_t *g, int32_t d, int64_t samples) {
    int holds = 1;
    for (int32_t i = 0; i < d; i++) {
        for (int32_t j = 0; j <= i; j++) holds &= smg_within(g[j], samples * SMG_SQUARE);
        holds &= g[i] >= 0;
        g += i + 1;
    }
    return holds;
}

static inline int smg_row_holds(const int32_t *m, int32_t d, int64_t samples) {
    int holds = 1;
    for (int32_t i = 0; i < d; i++) holds &= smg_within(m[i], samples * SMG_LARGEST);
    return holds;
}

/* Whether samples could have given these sums, as far as their limits show. */
static inline int smg_sums_hold(const int32_t *n, const int32_t *m, const int32_t *g, int32_t classes, int32_t d) {
    const int64_t samples = smg_samples(n, classes);
    int holds = samples <= SMG_MOST_SAMPLES;
    for (int32_t c = 0; c <= classes; c++) holds &= n[c] >= 0;
    for (int32_t c = 0; c < classes; c++) holds &= smg_row_holds(m + c * d, d, n[c]);
    return holds && smg_products_hold(g, d, samples);
}

/* The mean of n samples with this sum, rounded, halves up. */
static inline int32_t smg_centre(int32_t m, int32_t n) {
    const int32_t above = 2 * m + n, whole = above / (2 * n);
    return above % (2 * n) < 0 ? whole - 1 : whole;
}

#endif
