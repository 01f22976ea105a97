/* Sums become a gradient four at a time, where one random word serves four; in assembly where registers are few. */
#ifndef SMIDGEN_FOURS_H
#define SMIDGEN_FOURS_H

#include "stochastic.h"

/* How, as smg_rounding says it, and the constants of smg_high_mul and smg_word; at the offsets the assembly names. */
typedef struct {
    int32_t lift, deep, shift, centre;
    int32_t half;                /* of what smg_high_mul loses */
    uint32_t next, first, second; /* what the key of a word lies above that of the one before; the factors of smg_mix */
    int32_t multiplier_step;     /* bytes to those of the next four */
    const int32_t *end;          /* of the sums */
    uint32_t key;                /* of the first word */
    uint32_t peak_bits;
} smg_fours;

/* One four or more, whose first index is a multiple of four. */
#if defined(__ARM_ARCH_6M__)
void smg_round_fours(smg_fours *fours, const int32_t *sums, const int32_t *multiplier, int8_t *to);
#else
static inline void smg_round_fours(smg_fours *fours, const int32_t *sums, const int32_t *multiplier, int8_t *to) {
    const smg_fours f = *fours;
    uint32_t peak_bits = 0;
    for (uint32_t key = f.key; sums != f.end; sums += 4, to += 4, multiplier += f.multiplier_step / 4, key += f.next) {
        uint32_t word = smg_mix(key);
        for (int32_t k = 0; k < 4; k++, word >>= 8) {
            const int32_t v = smg_high_mul(smg_shift_left(sums[k], f.lift), multiplier[k]) >> f.deep;
            const int32_t u = (v + f.centre + (int32_t)(((word & 255) << f.shift) >> 8)) >> f.shift;
            peak_bits |= (uint32_t)(u ^ (u >> 31));
            to[k] = (int8_t)smg_clamp(u, -127, 127);
        }
    }
    fours->peak_bits = peak_bits;
}
#endif

#endif
