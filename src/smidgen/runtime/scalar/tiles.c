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

void smg_spread_four(const int8_t *restrict x, int32_t step, int32_t count, int32_t zero, int32_t *restrict to) {
    const int8_t *second = x + step, *third = second + step, *fourth = third + step;
    for (int32_t i = 0; i < count; i++, to += SMG_TILE) {
        to[0] = x[i] - zero;
        to[1] = second[i] - zero;
        to[2] = third[i] - zero;
        to[3] = fourth[i] - zero;
    }
}

#if !defined(__thumb__) && !defined(__riscv)
/* Four sums, by name, so that all of them stay in registers. */
typedef struct {
    uint32_t a, b, c, d;
} four;

static inline four load(const uint32_t *from) {
    const four sums = {from[0], from[1], from[2], from[3]};
    return sums;
}

static inline void store(four sums, uint32_t *to) {
    to[0] = sums.a;
    to[1] = sums.b;
    to[2] = sums.c;
    to[3] = sums.d;
}

static inline four add(four sums, int32_t a, int32_t b, int32_t c, int32_t d, int32_t w) {
    const four added = {sums.a + (uint32_t)(a * w), sums.b + (uint32_t)(b * w), sums.c + (uint32_t)(c * w),
                        sums.d + (uint32_t)(d * w)};
    return added;
}

static inline void multiply(uint32_t *restrict sums, int32_t apart, const int32_t *restrict x,
                            const smg_filter_element *restrict w, int32_t wide, int32_t length) {
    const smg_filter_element *second = w + wide, *third = second + wide, *fourth = third + wide, *end = w + length;
    four p = load(sums), q = load(sums + apart), r = load(sums + 2 * apart), s = load(sums + 3 * apart);
    for (; w < end; w++, second++, third++, fourth++, x += SMG_TILE) {
        const int32_t a = x[0], b = x[1], c = x[2], d = x[3];
        p = add(p, a, b, c, d, *w);
        q = add(q, a, b, c, d, *second);
        r = add(r, a, b, c, d, *third);
        s = add(s, a, b, c, d, *fourth);
    }
    store(p, sums);
    store(q, sums + apart);
    store(r, sums + 2 * apart);
    store(s, sums + 3 * apart);
}
#endif

#if !defined(__thumb__)
void smg_multiply_tiles(uint32_t *restrict sums, int32_t apart, const int32_t *restrict x,
                        const smg_filter_element *restrict w, int32_t wide, int32_t length, int32_t tiles,
                        const int32_t *start) {
#if defined(__riscv)
    smg_tiles_riscv(sums, apart, x, w, wide, length, tiles, start);
#else
    for (int32_t f = 0; start && f < SMG_FILTERS; f++)
        for (int32_t i = 0; i < tiles * SMG_TILE; i++) sums[f * apart + i] = (uint32_t)start[f];
    for (int32_t t = 0; t < tiles; t++) multiply(sums + t * SMG_TILE, apart, x + t * length * SMG_TILE, w, wide, length);
#endif
}
#endif
