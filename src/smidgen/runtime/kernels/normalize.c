/* Layer, group and instance normalization, by integers alone. */
#include "smidgen.h"

#include "arithmetic.h"
#include "normalize.h"

static inline int8_t element(const smg_normalize_s8_params *p, int64_t score, int32_t scale, int32_t shift) {
    const int64_t product = (score * scale) >> SMG_SCALE_BITS;
    const int64_t moved = ((product * p->multiplier) >> (31 - p->shift)) + shift;
    const int64_t step = ((moved + (1 << (SMG_SHIFT_BITS - 1))) >> SMG_SHIFT_BITS) + p->y_zero;
    return (int8_t)(step < -128 ? -128 : step > 127 ? 127 : step);
}

static void group(const smg_normalize_s8_params *p, const smg_group *g, const int8_t *x, const int16_t *scale,
                  const int32_t *shift, int8_t *y) {
    const smg_statistics s = smg_statistics_of(g, x, SMG_EPSILON(p));
    for (int32_t i = 0; i < g->positions; i++, x += g->apart, y += g->apart)
        for (int32_t c = 0; c < g->width; c++) y[c] = element(p, smg_score(&s, x[c]), scale[c], shift[c]);
}

void smg_normalize_s8(const smg_normalize_s8_params *p, const int8_t *x, const int16_t *scale, const int32_t *shift,
                      int8_t *y) {
    const smg_group g = {p->positions, p->width, p->groups * p->width};
    const int32_t size = p->positions * g.apart;
    for (int32_t r = 0; r < p->rows; r++)
        for (int32_t c = 0; c < g.apart; c += p->width)
            group(p, &g, x + r * size + c, scale + c, shift + c, y + r * size + c);
}
