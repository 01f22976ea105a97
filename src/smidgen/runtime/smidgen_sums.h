/* Learning in one pass: the kernels that add samples up in integers and make a head of the sums. */
#ifndef SMIDGEN_SUMS_H
#define SMIDGEN_SUMS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of `d` features that count from `zero` and of `classes` classes: n has the samples of each class
 * and behind them those of classes forgotten by number, m the sums of features by class, g those of their products, the
 * lower triangle row by row. What works on sums says by a code how it went, and changes nothing unless that is 0. */
enum {
    SMG_SUMS_DONE,
    SMG_SUMS_NO_CLASS, /* the label is none of the classes */
    SMG_SUMS_FULL,     /* there would be more samples than SMG_MOST_SAMPLES */
    SMG_SUMS_FEWER,    /* what is to be taken out is not in the sums */
    SMG_SUMS_EMPTY,    /* no sample was observed */
    SMG_SUMS_UNSOUND,  /* no samples give such sums: they are damaged */
    SMG_SUMS_GONE      /* steps were made since, and the sums' memory is theirs */
};
enum { SMG_MOST_SAMPLES = 33025 }; /* of |x| <= 255: with one more, a sum of products might not fit 32 bits */

typedef struct {
    int32_t classes, d, zero;
} smg_observe_s8_params;

typedef struct {
    int32_t classes, d;
} smg_merge_sums_params;

typedef smg_merge_sums_params smg_forget_class_params;

typedef struct {
    int32_t classes, d;
    float scale; /* of the features */
} smg_solve_f32_params;

typedef smg_observe_s8_params smg_distance_s8_params;

/* Sums in place. A sample is a class and 1, or -1 to take it out; so is the sign of other sums. */
void smg_observe_s8(const smg_observe_s8_params *p, int32_t *n, int32_t *m, int32_t *g, const int8_t *x,
                    const int32_t *sample, int32_t *code);
void smg_merge_sums(const smg_merge_sums_params *p, int32_t *n, int32_t *m, int32_t *g, const int32_t *other_n,
                    const int32_t *other_m, const int32_t *other_g, const int32_t *sign, int32_t *code);
void smg_forget_class(const smg_forget_class_params *p, int32_t *n, int32_t *m, int32_t *g, const int32_t *label,
                      int32_t *code);
void smg_solve_f32(const smg_solve_f32_params *p, float *w, float *b, float *limit, const int32_t *n, const int32_t *m,
                   const int32_t *g, int32_t *code, void *scratch);

/* The squared distance of features to the nearest class's mean, over the limit that solving found: above 1 they are of
 * none of the classes. 0 where no limit is known. */
void smg_distance_s8(const smg_distance_s8_params *p, const int32_t *n, const int32_t *m, const int8_t *x,
                     const float *limit, float *distance);

#ifdef __cplusplus
}
#endif

#endif
