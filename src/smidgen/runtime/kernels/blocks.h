/* Elements a block at a time, as int32 in local memory. */
#ifndef SMIDGEN_BLOCKS_H
#define SMIDGEN_BLOCKS_H

#include "arithmetic.h"

/* A block is finished in local memory before it is stored, so that compilers need not fear y == a; it is always
 * computed whole, in loops of a fixed count, of which only `length` elements are real. */
enum { SMG_BLOCK = 32 };

typedef struct {
    int32_t x[SMG_BLOCK];
} smg_block;

static inline void smg_load(smg_block *to, const int8_t *from, int32_t length, int32_t zero) {
    if (length == SMG_BLOCK)
        for (int32_t i = 0; i < SMG_BLOCK; i++) to->x[i] = from[i] - zero;
    else
        for (int32_t i = 0; i < SMG_BLOCK; i++) to->x[i] = i < length ? from[i] - zero : 0;
}

/* Elements start, start + 1, … of a tensor that repeats every `period` elements. */
static inline void smg_load_repeated(smg_block *to, const int8_t *from, int32_t start, int32_t length, int32_t period,
                                     int32_t zero) {
    int32_t at = start < period ? start : start % period;
    if (at + length <= period) {
        smg_load(to, from + at, length, zero);
        return;
    }
    for (int32_t i = 0; i < SMG_BLOCK; i++) {
        to->x[i] = from[at] - zero;
        if (++at == period) at = 0;
    }
}

static inline void smg_store(int8_t *to, const smg_block *from, int32_t length, int32_t zero, int32_t lo, int32_t hi) {
    int8_t out[SMG_BLOCK];
    for (int32_t i = 0; i < SMG_BLOCK; i++) out[i] = smg_to_int8(from->x[i], zero, lo, hi);
    if (length == SMG_BLOCK)
        for (int32_t i = 0; i < SMG_BLOCK; i++) to[i] = out[i];
    else
        for (int32_t i = 0; i < length; i++) to[i] = out[i];
}

static inline void smg_scale(smg_block *x, int32_t multiplier, int32_t shift) {
    const int32_t left = smg_max(shift, 0), right = smg_max(-shift, 0);
    for (int32_t i = 0; i < SMG_BLOCK; i++)
        x->x[i] = smg_shift_right(smg_high_mul(smg_shift_left(x->x[i], left), multiplier), right);
}

#endif
