/* The sum of scaled rows. Rows whose factor is zero, behind a mask most of them, are left out; the others are added in
 * halfwords, two by one multiplication (see pairs.h), as long as these hold the sums. */
#include "accumulate.h"

#include "arithmetic.h"
#include "noinline.h"
#include "pairs.h"

/* Rows that are added in halfwords at most, and channels taken at once. */
enum { RUN = 32, LANES = 8 };

/* sums[n] += Σ factor * row[n] from channel `from` on, of any rows. */
static SMG_NOINLINE void add_bytes(int32_t *sums, int32_t from, int32_t c, const smg_scaled_row *rows,
                                   const smg_scaled_row *end) {
    for (int32_t n = from; n < c; n++) {
        uint32_t sum = (uint32_t)sums[n];
        for (const smg_scaled_row *p = rows; p != end; p++) sum += (uint32_t)(p->factor * p->row[n]);
        sums[n] = (int32_t)sum;
    }
}

/* sums[n] += Σ factor * row[n] for n < c, of rows whose factors add up to few, and to `total`. */
static inline void add_rows(int32_t *sums, int32_t c, const smg_scaled_row *rows, const smg_scaled_row *end,
                            int32_t total, int32_t aligned) {
    const uint32_t raised = (uint32_t)(128 * total);
    const int32_t words = aligned ? c & -LANES : 0;
    if (rows == end) return;
    if (words) smg_add_words(sums, sums + words, rows, end, 0u - raised - (raised << 16));
    if (words < c) add_bytes(sums, words, c, rows, end);
}

static inline int32_t is_aligned(const int8_t *rows, int32_t step) {
    return ((uintptr_t)rows | (uintptr_t)step) % 4 == 0;
}

/* The same factors for rows and, where `two` says so, for others. */
static inline void accumulate(int32_t *sums, int32_t c, int32_t *own_sums, int32_t own_c, const int8_t *d,
                              int32_t d_step, const int8_t *rows, int32_t row_step, const int8_t *own, int32_t own_step,
                              int32_t count, const int two) {
    const int32_t aligned = is_aligned(rows, row_step), own_aligned = two && is_aligned(own, own_step);
    const int8_t *const last = d + count * d_step;
    smg_scaled_row some[RUN], others[RUN];
    while (d != last) {
        int32_t found = 0, left = SMG_FEW, total = 0;
        for (; d != last && found != RUN; d += d_step, rows += row_step, own += two ? own_step : 0) {
            const int32_t factor = *d;
            const smg_scaled_row row = {rows, factor}, other = {own, factor};
            if (!factor) continue;
            left -= smg_magnitude(factor);
            if (left < 0) break;
            total += factor;
            some[found] = row;
            if (two) others[found] = other;
            found++;
        }
        add_rows(sums, c, some, some + found, total, aligned);
        if (two) add_rows(own_sums, own_c, others, others + found, total, own_aligned);
    }
}

void smg_accumulate(int32_t *sums, int32_t c, const int8_t *d, int32_t d_step, const int8_t *rows, int32_t row_step,
                    int32_t count) {
    accumulate(sums, c, 0, 0, d, d_step, rows, row_step, rows, 0, count, 0);
}

void smg_accumulate_two(int32_t *sums, int32_t c, int32_t *own_sums, int32_t own_c, const int8_t *d, const int8_t *rows,
                        const int8_t *own, int32_t count) {
    accumulate(sums, c, own_sums, own_c, d, 1, rows, c, own, own_c, count, 1);
}

void smg_sum_rows(int32_t *sums, int32_t c, const int8_t *rows, int32_t count) {
    for (int32_t n = 0; n < c; n++) {
        const int8_t *from = rows + n;
        int32_t sum = 0;
        for (int32_t i = 0; i < count; i++, from += c) sum += *from;
        sums[n] = sum;
    }
}
