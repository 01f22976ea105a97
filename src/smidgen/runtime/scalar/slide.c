/* Depthwise windows slide over strips of words, in C. */
#include "slide.h"

#include "slide_thumb.h"
#include "working_scalar.h"

#if !defined(__thumb__)
static inline const int32_t *onward(const int32_t *x, const smg_tap *tap) {
    return (const int32_t *)((const int8_t *)(x + SMG_TILE) + tap->onward);
}

static inline void add_taps(uint32_t *restrict sums, const int32_t *restrict x, const smg_tap *restrict tap,
                            const smg_tap *restrict end, uint32_t start) {
    uint32_t a = start, b = start, c = start, d = start;
    for (; tap < end; x = onward(x, tap), tap++) {
        a += (uint32_t)(x[0] * tap->w);
        b += (uint32_t)(x[1] * tap->w);
        c += (uint32_t)(x[2] * tap->w);
        d += (uint32_t)(x[3] * tap->w);
    }
    sums[0] = a;
    sums[1] = b;
    sums[2] = c;
    sums[3] = d;
}

/* Two tiles at once. */
static inline void add_taps_twice(uint32_t *restrict sums, const int32_t *restrict x, const smg_tap *restrict tap,
                                  const smg_tap *restrict end, uint32_t start) {
    uint32_t a = start, b = start, c = start, d = start, e = start, f = start, g = start, h = start;
    for (; tap < end; x = onward(x, tap), tap++) {
        const int32_t w = tap->w;
        a += (uint32_t)(x[0] * w);
        b += (uint32_t)(x[1] * w);
        c += (uint32_t)(x[2] * w);
        d += (uint32_t)(x[3] * w);
        e += (uint32_t)(x[4] * w);
        f += (uint32_t)(x[5] * w);
        g += (uint32_t)(x[6] * w);
        h += (uint32_t)(x[7] * w);
    }
    sums[0] = a;
    sums[1] = b;
    sums[2] = c;
    sums[3] = d;
    sums[4] = e;
    sums[5] = f;
    sums[6] = g;
    sums[7] = h;
}
#endif

void smg_slide(smg_sliding *of) {
#if defined(__thumb__)
    smg_slide_thumb(of);
#else
#if defined(__riscv)
    if (of->run >= 3 && of->tiles % 2 == 0) {
        smg_slide_riscv(of);
        return;
    }
#endif
    for (int32_t r = 0; r < of->rows; r++) {
        const int32_t *x = of->x;
        int32_t left = of->tiles;
        for (; left >= 2; left -= 2, x += 2 * SMG_TILE, of->sums += 2 * SMG_TILE)
            add_taps_twice(of->sums, x, of->taps, of->end, of->start);
        for (; left; left--, x += SMG_TILE, of->sums += SMG_TILE)
            add_taps(of->sums, x, of->taps, of->end, of->start);
        of->x = (const int32_t *)((const int8_t *)of->x + of->down);
    }
#endif
}
