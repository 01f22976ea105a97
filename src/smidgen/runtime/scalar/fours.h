/* Sums become a gradient four at a time, where one random word serves four: in Thumb's first instruction set. */
#ifndef SMIDGEN_FOURS_H
#define SMIDGEN_FOURS_H

#include <stdint.h>

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
void smg_round_fours(smg_fours *fours, const int32_t *sums, const int32_t *multiplier, int8_t *to);

#endif
