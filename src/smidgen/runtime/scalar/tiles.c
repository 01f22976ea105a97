/* Tiles of four pixels multiplied with filters, in C. */
#include "tiles.h"

void smg_spread(const int8_t *restrict x, int32_t count, int32_t zero, int32_t *restrict to) {
    for (; count >= 4; count -= 4, x += 4, to += 16) {
        to[0] = x[0] - zero;
        to[4] = x[1] - zero;
        to[8] = x[2] - zero;
        to[12] = x[3] - zero;
    }
    for (int32_t i = 0; i < count; i++) to[4 * i] = x[i] - zero;
}

static inline void multiply(uint32_t *restrict sums, int32_t apart, const int32_t *restrict x,
                            const smg_filter_element *restrict w, int32_t length) {
    uint32_t acc[SMG_FILTERS][SMG_TILE];
    for (int32_t f = 0; f < SMG_FILTERS; f++)
        for (int32_t n = 0; n < SMG_TILE; n++) acc[f][n] = sums[f * apart + n];
    for (int32_t i = 0; i < length; i++, x += SMG_TILE)
        for (int32_t f = 0; f < SMG_FILTERS; f++)
            for (int32_t n = 0; n < SMG_TILE; n++) acc[f][n] += (uint32_t)(x[n] * w[f * length + i]);
    for (int32_t f = 0; f < SMG_FILTERS; f++)
        for (int32_t n = 0; n < SMG_TILE; n++) sums[f * apart + n] = acc[f][n];
}

void smg_multiply_tiles(uint32_t *restrict sums, int32_t apart, const int32_t *restrict x,
                        const smg_filter_element *restrict w, int32_t length, int32_t tiles) {
    for (int32_t t = 0; t < tiles; t++) multiply(sums + t * SMG_TILE, apart, x + t * length * SMG_TILE, w, length);
}
