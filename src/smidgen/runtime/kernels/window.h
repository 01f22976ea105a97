/* Where a spatial kernel's taps fall: rows of maps that may be rings, and windows cut off at the border. */
#ifndef SMIDGEN_WINDOW_H
#define SMIDGEN_WINDOW_H

#include "smidgen.h"

static inline int8_t *smg_row(smg_map map, int32_t r, int32_t row_bytes) {
    return map.data + (r < map.rows ? r : r % map.rows) * row_bytes; /* the division only where there is a ring */
}

/* The taps [from, to) that lie inside the map, for a window whose first tap is at `start`. */
typedef struct {
    int32_t from, to;
} smg_taps;

static inline smg_taps smg_taps_inside(int32_t start, int32_t taps, int32_t dilation, int32_t size) {
    smg_taps inside = {0, taps};
    if (start < 0) inside.from = (-start + dilation - 1) / dilation;
    if (start + (taps - 1) * dilation >= size) inside.to = start < size ? (size - 1 - start) / dilation + 1 : 0;
    if (inside.from > inside.to) inside.from = inside.to;
    return inside;
}

#endif
