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

void smg_accumulate(int32_t *sums, int32_t c, const int8_t *d, int32_t d_step, const int8_t *rows, int32_t row_step,
                    int32_t count) {
    const int32_t aligned = ((uintptr_t)rows | (uintptr_t)row_step) % 4 == 0, words = aligned ? c & -LANES : 0;
    const int8_t *const last = d + count * d_step;
    smg_scaled_row some[RUN];
    while (d != last) {
        smg_scaled_row *end = some;
        int32_t left = SMG_FEW, total = 0;
        for (; d != last && end != some + RUN; d += d_step, rows += row_step) {
            const int32_t factor = *d;
            if (!factor) continue;
            left -= smg_magnitude(factor);
            if (left < 0) break;
            total += factor;
            end->row = rows;
            end++->factor = factor;
        }
        const uint32_t raised = (uint32_t)(128 * total);
        if (words && end != some) smg_add_words(sums, sums + words, some, end, 0u - raised - (raised << 16));
        if (words < c) add_bytes(sums, words, c, some, end);
    }
}

void smg_sum_rows(int32_t *sums, int32_t c, const int8_t *rows, int32_t count) {
    for (int32_t n = 0; n < c; n++) {
        const int8_t *from = rows + n;
        int32_t sum = 0;
        for (int32_t i = 0; i < count; i++, from += c) sum += *from;
        sums[n] = sum;
    }
}
