/* Depthwise windows slide over strips of words, in C. */
#include "slide.h"

#include "slide_thumb.h"
#include "working_scalar.h"

#if !defined(__thumb__)
static inline void add_taps(uint32_t *restrict sums, const int32_t *restrict x, const smg_tap *restrict tap,
                            const smg_tap *restrict end, uint32_t start) {
    uint32_t a = start, b = start, c = start, d = start;
    for (; tap < end; tap++) {
        a += (uint32_t)(x[0] * tap->w);
        b += (uint32_t)(x[1] * tap->w);
        c += (uint32_t)(x[2] * tap->w);
        d += (uint32_t)(x[3] * tap->w);
        x = (const int32_t *)((const int8_t *)(x + SMG_TILE) + tap->onward);
    }
    sums[0] = a;
    sums[1] = b;
    sums[2] = c;
    sums[3] = d;
}
#endif

void smg_slide(smg_sliding *of) {
#if defined(__thumb__)
    smg_slide_thumb(of);
#else
    for (int32_t r = 0; r < of->rows; r++) {
        for (int32_t t = 0; t < of->tiles; t++, of->sums += SMG_TILE)
            add_taps(of->sums, of->x + t * SMG_TILE, of->taps, of->end, of->start);
        of->x = (const int32_t *)((const int8_t *)of->x + of->down);
    }
#endif
}
