/* Two products by one multiplication. With d = d0 + d1 * 2^16 and w = w1 + w0 * 2^16, modulo 2^32,
 *
 *     d * w = d0 w1 + (d0 w0 + d1 w1) * 2^16,
 *
 * whose upper half, rounded to the nearest, is the sum of both products as long as 16 bits hold it and what stands in
 * the lower half. Of sums of such words the same is true: of gradients whose magnitudes add up to SMG_FEW and of
 * weights down to -128 neither half leaves its 16 bits. Two gradients never come to more. */
#ifndef SMIDGEN_PAIRS_H
#define SMIDGEN_PAIRS_H

#include <stdint.h>

/* What magnitudes of gradients may add up to: 128 times as much is less than 2^15. */
enum { SMG_FEW = 255, SMG_HALF = 1 << 15 };

static inline uint32_t smg_gradient_pair(int32_t d0, int32_t d1) { return (uint32_t)d0 + ((uint32_t)d1 << 16); }
static inline uint32_t smg_weight_pair(int32_t w0, int32_t w1) { return (uint32_t)w1 + ((uint32_t)w0 << 16); }

/* Where four bytes are read as one word. */
typedef uint32_t __attribute__((may_alias)) smg_word_of_bytes;

/* The sum in a word to which SMG_HALF was added. */
static inline int32_t smg_upper(uint32_t word) { return (int32_t)word >> 16; }

static inline int32_t smg_magnitude(int32_t x) { return x < 0 ? -x : x; }

/* A row of int8 and its factor. */
typedef struct {
    const int8_t *row;
    int32_t factor;
} smg_scaled_row;

/* Rows of a window over gradients: words from one row of gradients up to the next, words of weights left out after each
 * row of them, and pairs of each row, SMG_WORDS at most. */
typedef struct {
    int32_t up, down, words;
} smg_row_steps;

enum { SMG_WORDS = 4 };

/* The dot product of pairs, four at a time, until that of weights ends: of gradients whose eights add up to few, and of
 * any. */
#if defined(__thumb__)
int32_t smg_dot_few(const uint32_t *w, const uint32_t *d, const uint32_t *end);
int32_t smg_dot_any(const uint32_t *w, const uint32_t *d, const uint32_t *end);
#else
static inline int32_t smg_dot_few(const uint32_t *w, const uint32_t *d, const uint32_t *end) {
    int32_t sum = 0;
    for (; w != end; w += 4, d += 4)
        sum += smg_upper(SMG_HALF + w[0] * d[0] + w[1] * d[1] + w[2] * d[2] + w[3] * d[3]);
    return sum;
}

static inline int32_t smg_dot_any(const uint32_t *w, const uint32_t *d, const uint32_t *end) {
    int32_t sum = 0;
    for (; w != end; w++, d++) sum += smg_upper(SMG_HALF + w[0] * d[0]);
    return sum;
}
#endif

/* As smg_accumulate, of `count` rows of c elements, and of as many of own_c. */
void smg_accumulate_two(int32_t *sums, int32_t c, int32_t *own_sums, int32_t own_c, const int8_t *d, const int8_t *rows,
                        const int8_t *own, int32_t count);

#if defined(__ARM_ARCH_6M__)
int32_t smg_rows_few(const uint32_t *d, const uint32_t *w, int32_t count, const smg_row_steps *by);
void smg_add_words(int32_t *sums, const int32_t *sums_end, const smg_scaled_row *rows, const smg_scaled_row *end,
                   uint32_t start);
#else
/* The dot product of `count` rows, one or more, each of so many words: every other one of gradients, which add up to
 * few. */
static inline int32_t smg_rows_of(const uint32_t *d, const uint32_t *w, int32_t count, smg_row_steps by,
                                  const int32_t words) {
    uint32_t sum = SMG_HALF;
    for (; count > 0; count--, d += by.up, w += words + by.down) {
        sum += d[0] * w[0];
        if (words > 1) sum += d[2] * w[1];
        if (words > 2) sum += d[4] * w[2];
        if (words > 3) sum += d[6] * w[3];
    }
    return smg_upper(sum);
}

static inline int32_t smg_rows_few(const uint32_t *d, const uint32_t *w, int32_t count, const smg_row_steps *by) {
    if (by->words == 2) return smg_rows_of(d, w, count, *by, 2);
    if (by->words == 3) return smg_rows_of(d, w, count, *by, 3);
    if (by->words == 4) return smg_rows_of(d, w, count, *by, 4);
    return smg_rows_of(d, w, count, *by, 1);
}

/* sums[n] = sums[n] + x, modulo 2^32. */
static inline void smg_add_to(int32_t *sum, int32_t x) { *sum = (int32_t)((uint32_t)*sum + (uint32_t)x); }

/* sums[n] += Σ factor * row[n], eight at a time, of rows of words whose factors add up to few. Bytes are raised by 128,
 * so that they have no signs; what that adds is taken off in the words that sums begin with. */
static inline void smg_add_words(int32_t *sums, const int32_t *sums_end, const smg_scaled_row *rows,
                                 const smg_scaled_row *end, uint32_t start) {
    const uint32_t even = 0x00FF00FF, raise = 0x80808080;
    for (int32_t n = 0; sums != sums_end; n += 8, sums += 8) {
        uint32_t found[4] = {start, start, start, start};
        for (const smg_scaled_row *p = rows; p != end; p++) {
            const smg_word_of_bytes *from = (const smg_word_of_bytes *)(const void *)(p->row + n);
            const uint32_t first = from[0] ^ raise, second = from[1] ^ raise, factor = (uint32_t)p->factor;
            found[0] += (first & even) * factor;
            found[1] += (first >> 8 & even) * factor;
            found[2] += (second & even) * factor;
            found[3] += (second >> 8 & even) * factor;
        }
        for (int32_t k = 0; k < 4; k++) {
            int32_t *to = sums + (k & 2) * 2 + (k & 1);
            const int32_t low = (int16_t)found[k];
            smg_add_to(to, low);
            smg_add_to(to + 2, (int32_t)(found[k] - (uint32_t)low) >> 16);
        }
    }
}
#endif

#endif
