/* Strips of one channel: every pixel's byte of it as a word, neighbours side by side. */
#ifndef SMIDGEN_SCALAR_STRIPS_H
#define SMIDGEN_SCALAR_STRIPS_H

#include <stdint.h>

/* Where a strip comes from and goes to; assembly knows the fields by their places. */
typedef struct {
    const int8_t *from; /* its first pixel's first channel */
    int32_t *to;
    int32_t count; /* at least 1 */
} smg_strip;

/* to[i] = from[c + i * step] for every strip up to `end`. */
void smg_pick(const smg_strip *strip, const smg_strip *end, int32_t c, int32_t step);

/* to[i] = w[i] for i < count, a multiple of four; w is aligned to four bytes. Both are in assembly, for Thumb. */
void smg_pick_thumb(const smg_strip *strip, const smg_strip *end, int32_t c, int32_t step);
void smg_widen_thumb(int32_t *to, const int8_t *w, int32_t count);

#endif
