/* The sum of scaled rows. Rows whose factor is zero, behind a mask most of them, are left out; of the others one
 * multiplication scales two bytes of a word, raised by 128 so that they have no signs. Rows are added in halfwords as
 * long as these hold the sums: until factors of one sign come to SMG_MOST. */
#include "accumulate.h"

#include "arithmetic.h"
#include "noinline.h"

/* Rows that are added in halfwords at most, channels taken at once, and 255 * MOST < 2^15. */
enum { RUN = 32, LANES = 8, MOST = 128 };

static inline void add(int32_t *sum, int32_t x) { *sum = (int32_t)((uint32_t)*sum + (uint32_t)x); }

typedef struct {
    const int8_t *row;
    int32_t factor;
} picked;

/* Where words begin. */
typedef uint32_t __attribute__((may_alias)) word;

/* sums[n] += Σ factor * row[n] for n < c, a multiple of LANES, of aligned rows; `total` is Σ factor. */
static SMG_NOINLINE void add_words(int32_t *sums, int32_t c, const picked *rows, const picked *end, int32_t total) {
    const uint32_t even = 0x00FF00FF, raise = 0x80808080;
    for (int32_t n = 0; n < c; n += LANES, sums += LANES) {
        uint32_t a = 0, b = 0, d = 0, e = 0;
        for (const picked *p = rows; p != end; p++) {
            const word *from = (const word *)(const void *)(p->row + n);
            const uint32_t first = from[0] ^ raise, second = from[1] ^ raise, factor = (uint32_t)p->factor;
            a += (first & even) * factor;
            b += (first >> 8 & even) * factor;
            d += (second & even) * factor;
            e += (second >> 8 & even) * factor;
        }
        const uint32_t found[LANES / 2] = {a, b, d, e};
        for (int32_t k = 0; k < LANES / 2; k++) {
            int32_t *to = sums + (k & 2) * 2 + (k & 1);
            const int32_t low = (int16_t)found[k];
            add(to, low - total);
            add(to + 2, ((int32_t)(found[k] - (uint32_t)low) >> 16) - total);
        }
    }
}

/* The same for any number of channels of any rows. */
static SMG_NOINLINE void add_bytes(int32_t *sums, int32_t c, const picked *rows, const picked *end, int32_t from) {
    for (int32_t n = from; n < c; n++) {
        int32_t sum = 0;
        for (const picked *p = rows; p != end; p++) sum += p->factor * p->row[n];
        add(sums + n, sum);
    }
}

void smg_accumulate(int32_t *sums, int32_t c, const int8_t *d, int32_t d_step, const int8_t *rows, int32_t row_step,
                    int32_t count) {
    const int32_t aligned = ((uintptr_t)rows | (uintptr_t)row_step) % sizeof(word) == 0, words = aligned ? c & -LANES : 0;
    picked some[RUN];
    while (count) {
        int32_t up = 0, down = 0;
        picked *end = some;
        for (; count; count--, d += d_step, rows += row_step) {
            const int32_t factor = *d;
            if (!factor) continue;
            if (factor > 0) {
                if (up + factor > MOST) break;
                up += factor;
            } else {
                if (down - factor > MOST) break;
                down -= factor;
            }
            end->row = rows;
            end++->factor = factor;
            if (end == some + RUN) {
                count--, d += d_step, rows += row_step;
                break;
            }
        }
        if (words) add_words(sums, words, some, end, 128 * (up - down));
        if (words < c) add_bytes(sums, c, some, end, words);
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
