/* Columns of a matrix of bytes turned into rows, four at a time. */
#ifndef SMIDGEN_TRANSPOSE_H
#define SMIDGEN_TRANSPOSE_H

#include "packed.h"

static inline void smg_store_four(int8_t *to, uint32_t word) { __builtin_memcpy(to, &word, sizeof word); }

/* Four columns of a matrix of `rows` rows, a multiple of four, as rows that lie `rows` bytes apart. */
static inline void smg_transpose(const int8_t *w, int32_t step, int32_t rows, int8_t *to) {
    const uint32_t even = 0x00FF00FFu;
    for (const int8_t *end = to + rows; to != end; to += 4, w += 4 * step) {
        const uint32_t a = smg_four(w), b = smg_four(w + step), c = smg_four(w + 2 * step), d = smg_four(w + 3 * step);
        const uint32_t ab = (a & even) | (b & even) << 8, cd = (c & even) | (d & even) << 8;
        const uint32_t ab_odd = (a >> 8 & even) | (b & ~even), cd_odd = (c >> 8 & even) | (d & ~even);
        smg_store_four(to, (ab & 0xFFFFu) | cd << 16);
        smg_store_four(to + rows, (ab_odd & 0xFFFFu) | cd_odd << 16);
        smg_store_four(to + 2 * rows, ab >> 16 | (cd & 0xFFFF0000u));
        smg_store_four(to + 3 * rows, ab_odd >> 16 | (cd_odd & 0xFFFF0000u));
    }
}

#endif
