/* What normalization and its gradient share: the statistics of a group, all in integers. */
#ifndef SMIDGEN_NORMALIZE_H
#define SMIDGEN_NORMALIZE_H

#include <stdint.h>

/* Bits after the point: of normalized numbers, fine and in gradients; of scales; of shifts. And those of a root times
 * its reciprocal. */
enum { SMG_SCORE_BITS = 20, SMG_COARSE_BITS = 10, SMG_SCALE_BITS = 15, SMG_SHIFT_BITS = 10, SMG_ROOT_BITS = 61 };

#define SMG_EPSILON(p) ((int64_t)(p)->epsilon_high * ((int64_t)1 << 31) + (p)->epsilon_low)

/* Where the elements of a group lie: `positions` runs of `width`, `apart` from each other. */
typedef struct {
    int32_t positions, width, apart;
} smg_group;

/* The root of V is 1 / (inverse * 2^(half - SMG_ROOT_BITS)), where V = n * sum of squares - sum^2 + epsilon. */
typedef struct {
    int32_t n, total, half, right;
    int64_t inverse;
} smg_statistics;

static inline uint32_t smg_root(uint64_t x) {
    uint64_t root = 0;
    for (uint64_t bit = (uint64_t)1 << 31; bit; bit >>= 1)
        if ((root | bit) * (root | bit) <= x) root |= bit;
    return (uint32_t)root;
}

/* 1 / root of v, for v from 1 on, as inverse * 2^(half - SMG_ROOT_BITS). */
static inline int64_t smg_inverse_root(uint64_t v, int32_t *half) {
    for (*half = 0; !(v >> 60); ++*half) v <<= 2;
    const uint64_t inverse = ((uint64_t)1 << SMG_ROOT_BITS) / smg_root(v);
    return (int64_t)(inverse > INT32_MAX ? INT32_MAX : inverse);
}

static inline smg_statistics smg_statistics_of(const smg_group *g, const int8_t *x, int64_t epsilon) {
    smg_statistics s = {g->positions * g->width, 0, 0, 0, 0};
    int64_t squares = 0;
    for (int32_t i = 0; i < g->positions; i++)
        for (int32_t c = 0; c < g->width; c++) {
            const int32_t q = x[i * g->apart + c];
            s.total += q;
            squares += q * q;
        }
    const int64_t spread = s.n * squares - (int64_t)s.total * s.total + epsilon;
    s.inverse = smg_inverse_root((uint64_t)(spread > 1 ? spread : 1), &s.half);
    s.right = SMG_ROOT_BITS - SMG_SCORE_BITS - s.half;
    return s;
}

/* An element, normalized. */
static inline int64_t smg_score(const smg_statistics *s, int32_t q) {
    const int64_t far = (int64_t)s->n * q - s->total;
    return (far * s->inverse + ((int64_t)1 << (s->right - 1))) >> s->right;
}

#endif
