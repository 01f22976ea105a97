/* The sum of scaled rows. Rows whose factor is zero, behind a mask most of them, are left out; the others are taken
 * four at once: two products of a gradient and an int8 fit 16 bits, so they are added there first. */
#include "accumulate.h"

#include "arithmetic.h"

/* Rows that are looked through at once, and added at once. */
enum { RUN = 64, ROWS = 4 };

/* Channels are best taken in multiples of WIDE, or of NARROW where they are fewer. */
enum { WIDE = 16, NARROW = 8 };

/* Rows that count, with their factors; filled up with zeros to a multiple of ROWS. */
typedef struct {
    int16_t factor[RUN];
    int32_t at[RUN];
    int32_t count;
} picked;

static inline void pick(picked *p, const int8_t *d, int32_t d_step, int32_t row_step, int32_t count) {
    int32_t found = 0;
    for (int32_t i = 0; i < count; i++) {
        p->factor[found] = d[i * d_step];
        p->at[found] = i * row_step;
        found += d[i * d_step] != 0;
    }
    for (; found % ROWS; found++) p->factor[found] = 0, p->at[found] = 0;
    p->count = found;
}

static inline void add(int32_t *sum, int32_t x) { *sum = (int32_t)((uint32_t)*sum + (uint32_t)x); }

/* sums[n] += Σ factor[i] * rows[at[i] + n] over four i. */
static inline void four(int32_t *restrict sums, int32_t c, const int16_t *restrict factor, const int32_t *restrict at,
                        const int8_t *restrict rows) {
    const int16_t d0 = factor[0], d1 = factor[1], d2 = factor[2], d3 = factor[3];
    const int8_t *a0 = rows + at[0], *a1 = rows + at[1], *a2 = rows + at[2], *a3 = rows + at[3];
    for (int32_t n = 0; n < c; n++) {
        const int16_t first = (int16_t)(d0 * a0[n] + d1 * a1[n]), second = (int16_t)(d2 * a2[n] + d3 * a3[n]);
        add(sums + n, first + second);
    }
}

static void add_rows(int32_t *sums, int32_t c, const picked *p, const int8_t *rows) {
    for (int32_t i = 0; i < p->count; i += ROWS) four(sums, c, p->factor + i, p->at + i, rows);
}

/* The same for NARROW channels, whose sums stay in registers. */
static void add_narrow_rows(int32_t *sums, const picked *p, const int8_t *rows) {
    int32_t acc[NARROW];
    for (int32_t n = 0; n < NARROW; n++) acc[n] = sums[n];
    for (int32_t i = 0; i < p->count; i += 2) {
        const int16_t d0 = p->factor[i], d1 = p->factor[i + 1];
        const int8_t *a0 = rows + p->at[i], *a1 = rows + p->at[i + 1];
        for (int32_t n = 0; n < NARROW; n++) add(acc + n, (int16_t)(d0 * a0[n] + d1 * a1[n]));
    }
    for (int32_t n = 0; n < NARROW; n++) sums[n] = acc[n];
}

void smg_accumulate(int32_t *sums, int32_t c, const int8_t *d, int32_t d_step, const int8_t *rows, int32_t row_step,
                    int32_t count) {
    /* Channels beyond a multiple of `lanes` are the end of lanes of their own, which overlap those before them. */
    const int32_t lanes = c < WIDE ? NARROW : WIDE, rest = c > lanes ? c % lanes : 0;
    int32_t last[WIDE] = {0};
    picked p;
    for (int32_t start = 0; start < count; start += RUN) {
        pick(&p, d + start * d_step, d_step, row_step, smg_min(RUN, count - start));
        for (int32_t part = 0; part < (rest ? 2 : 1); part++) {
            const int8_t *from = rows + start * row_step + (part ? c - lanes : 0);
            const int32_t width = part ? lanes : c - rest;
            if (width == NARROW)
                add_narrow_rows(part ? last : sums, &p, from);
            else
                add_rows(part ? last : sums, width, &p, from);
        }
    }
    for (int32_t n = 0; n < rest; n++) add(sums + c - rest + n, last[lanes - rest + n]);
}

void smg_sum_rows(int32_t *sums, int32_t c, const int8_t *rows, int32_t count) {
    for (int32_t n = 0; n < c; n++) sums[n] = 0;
    for (int32_t i = 0; i < count; i++, rows += c)
        for (int32_t n = 0; n < c; n++) add(sums + n, rows[n]);
}
