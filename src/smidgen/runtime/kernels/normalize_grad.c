/* The gradient of a normalization with respect to what it normalized, by integers alone. */
#include "smidgen_training.h"

#include "normalize.h"
#include "rounding.h"

static inline int64_t coarse(const smg_statistics *s, int8_t q) {
    return smg_score(s, q) >> (SMG_SCORE_BITS - SMG_COARSE_BITS);
}

/* The elements of a group: at[i * apart + c] of a tensor, from channel `first` on. */
typedef struct {
    smg_group g;
    int32_t first, start; /* the first channel, and where it lies in the tensor */
} place;

static void group(const smg_normalize_grad_g8_params *p, smg_rounding *r, const place *at, const int8_t *dy,
                  const int8_t *x, const int16_t *scale, const uint8_t *mask, int8_t *dx) {
    const smg_group *g = &at->g;
    const smg_statistics s = smg_statistics_of(g, x + at->start, SMG_EPSILON(p));
    int64_t mean = 0, along = 0;
    for (int32_t i = 0; i < g->positions; i++)
        for (int32_t c = 0; c < g->width; c++) {
            const int32_t e = at->start + i * g->apart + c, d = dy[e] * scale[at->first + c];
            mean += d;
            along += d * coarse(&s, x[e]);
        }
    mean /= s.n;
    along /= s.n;
    const int64_t factor = (s.inverse * s.n) >> p->size_bits;
    const int32_t right = smg_clamp(SMG_ROOT_BITS - s.half - p->size_bits - p->fraction, 0, 63);
    for (int32_t i = 0; i < g->positions; i++)
        for (int32_t c = 0, count; c < g->width; c += count) {
            const int32_t e = at->start + i * g->apart + c;
            int32_t sums[SMG_SUMS];
            count = smg_min(SMG_SUMS, g->width - c);
            for (int32_t k = 0; k < count; k++) {
                const int32_t d = dy[e + k] * scale[at->first + c + k];
                const int64_t rest = d - mean - ((coarse(&s, x[e + k]) * along) >> (2 * SMG_COARSE_BITS));
                sums[k] = (int32_t)((rest * factor) >> right);
            }
            smg_round_sums(r, sums, count, at->first + c, e, mask, dx + e);
        }
}

void smg_normalize_grad_g8(const smg_normalize_grad_g8_params *p, const int8_t *dy, const int8_t *x,
                           const int16_t *scale, const uint8_t *mask, const int32_t *step_state, int8_t *dx,
                           int32_t *peak_bits) {
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    const int32_t channels = p->groups * p->width, size = p->positions * channels;
    for (int32_t row = 0; row < p->rows; row++)
        for (int32_t c = 0; c < channels; c += p->width) {
            const place at = {{p->positions, p->width, channels}, c, row * size + c};
            group(p, &r, &at, dy, x, scale, mask, dx);
        }
    *peak_bits = (int32_t)r.peak_bits;
}
