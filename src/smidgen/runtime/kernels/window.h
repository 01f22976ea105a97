/* Where a spatial kernel's taps fall: rows of maps that may be rings, and windows cut off at the border. */
#ifndef SMIDGEN_WINDOW_H
#define SMIDGEN_WINDOW_H

#include "smidgen.h"

static inline int8_t *smg_row(smg_map map, int32_t r, int32_t row_bytes) {
    return map.data + (r < map.rows ? r : r % map.rows) * row_bytes; /* the division only where there is a ring */
}

/* The fields of SMG_WINDOW, to initialize another struct that begins with them. */
#define SMG_WINDOW_OF(p)                                                                                  \
    (p)->x_h, (p)->x_w, (p)->x_c, (p)->y_h, (p)->y_w, (p)->y_c, (p)->k_h, (p)->k_w, (p)->stride_h,        \
        (p)->stride_w, (p)->pad_h, (p)->pad_w, (p)->dilation_h, (p)->dilation_w

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

/* The output position whose tap at offset `tap` falls on `at` of the padded map, along one dimension; −1: none. */
static inline int32_t smg_output_of(int32_t at, int32_t tap, int32_t stride, int32_t count) {
    const int32_t start = at - tap;
    return start >= 0 && start % stride == 0 && start / stride < count ? start / stride : -1;
}

#endif
