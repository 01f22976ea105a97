/* The sum of scaled rows: two products of a gradient and an int8 fit 16 bits, so they are added there first. */
#include "accumulate.h"

/* Channels are best taken in multiples of this. */
enum { LANES = 16 };

static inline void add(int32_t *sum, int32_t x) { *sum = (int32_t)((uint32_t)*sum + (uint32_t)x); }

/* Four rows at once. */
static inline void four(int32_t *restrict sums, int32_t c, const int8_t *restrict d, int32_t d_step,
                        const int8_t *restrict a, int32_t row_step) {
    const int16_t d0 = d[0], d1 = d[d_step], d2 = d[2 * d_step], d3 = d[3 * d_step];
    const int8_t *a1 = a + row_step, *a2 = a1 + row_step, *a3 = a2 + row_step;
    for (int32_t n = 0; n < c; n++) {
        const int16_t first = (int16_t)(d0 * a[n] + d1 * a1[n]), second = (int16_t)(d2 * a2[n] + d3 * a3[n]);
        add(sums + n, first + second);
    }
}

static inline void one(int32_t *restrict sums, int32_t c, int16_t d, const int8_t *restrict a) {
    for (int32_t n = 0; n < c; n++) add(sums + n, (int16_t)(d * a[n]));
}

static void rows_of(int32_t *sums, int32_t c, const int8_t *d, int32_t d_step, const int8_t *rows, int32_t row_step,
                    int32_t count) {
    int32_t i = 0;
    for (; i + 4 <= count; i += 4) four(sums, c, d + i * d_step, d_step, rows + i * row_step, row_step);
    for (; i < count; i++) one(sums, c, d[i * d_step], rows + i * row_step);
}

void smg_accumulate(int32_t *sums, int32_t c, const int8_t *d, int32_t d_step, const int8_t *rows, int32_t row_step,
                    int32_t count) {
    const int32_t rest = c > LANES ? c % LANES : 0;
    rows_of(sums, c - rest, d, d_step, rows, row_step, count);
    if (rest) { /* the last lanes overlap those before them */
        int32_t last[LANES] = {0};
        rows_of(last, LANES, d, d_step, rows + c - LANES, row_step, count);
        for (int32_t n = 0; n < rest; n++) add(sums + c - rest + n, last[LANES - rest + n]);
    }
}
