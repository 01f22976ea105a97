/* Four pixels at a time: the width in which kernels multiply where nothing multiplies more than one pair at once.
 *
 * Pixels of a tile lie side by side as words, the zero point taken off: [element][pixel]. Thumb loads many words at
 * once, and has few registers: there a filter is widened to words, too, and taken by itself. Where more registers are
 * at hand, four filters are taken at once, as bytes. Both fill the same room. */
#ifndef SMIDGEN_TILES_H
#define SMIDGEN_TILES_H

#include <stdint.h>

#include "working_scalar.h"

#if defined(__thumb__)
#define SMG_FILTERS 1
typedef int32_t smg_filter_element;
#else
#define SMG_FILTERS SMG_CHANNELS
typedef int8_t smg_filter_element;
#endif

/* sums[filter][tile][pixel] += x[tile][i][pixel] * w[filter][i] for i < length, a multiple of four; a filter lies `wide`
 * elements from the next one, its sums `apart` from the next one's, which begin with start[filter] where that is given.
 * SMG_FILTERS filters are read. */
void smg_multiply_tiles(uint32_t *sums, int32_t apart, const int32_t *x, const smg_filter_element *w, int32_t wide,
                        int32_t length, int32_t tiles, const int32_t *start);

/* The same in assembly, for RISC-V: compilers run out of registers. There is at least one tile. */
void smg_tiles_riscv(uint32_t *sums, int32_t apart, const int32_t *x, const int8_t *w, int32_t wide, int32_t length,
                     int32_t tiles, const int32_t *start);

/* to[4i] = x[i] - zero. */
void smg_spread(const int8_t *x, int32_t count, int32_t zero, int32_t *to);

/* to[i][n] = x[n * step + i] - zero: four pixels at once. */
void smg_spread_four(const int8_t *x, int32_t step, int32_t count, int32_t zero, int32_t *to);

#endif
