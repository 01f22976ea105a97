/* The sum of scaled rows. Rows whose factor is zero, behind a mask most of them, are left out; the others are taken
 * four at once: two products of a gradient and an int8 fit 16 bits, so they are added there first. */
#include "accumulate.h"

#include "arithmetic.h"
#include "vec8.h"

/* Rows that are looked through at once, and added at once. */
enum { RUN = 64, ROWS = 4 };

#if defined(SMG_VNNI)
/* Rows that count, with their factors, zeros after the last; and what raised rows add to a sum: 128 times those. */
typedef struct {
    int8_t factor[RUN + SMG_LANES];
    int32_t at[RUN + SMG_LANES];
    int32_t count, extra;
} picked;

static inline void pick(picked *p, const int8_t *d, int32_t d_step, int32_t row_step, int32_t count) {
    const __m512i counted = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i at = _mm512_mullo_epi32(counted, _mm512_set1_epi32(row_step)), total = _mm512_setzero_si512();
    int8_t together[RUN];
    if (d_step != 1) {
        for (int32_t i = 0; i < count; i++) together[i] = d[i * d_step];
        d = together;
    }
    p->count = 0;
    for (int32_t i = 0; i < count; i += SMG_LANES) {
        const __mmask16 some = smg_vnni_first(smg_min(SMG_LANES, count - i));
        const __m512i x = _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(some, d + i));
        const __mmask16 found = _mm512_test_epi32_mask(x, x);
        const __m512i factors = _mm512_maskz_compress_epi32(found, x);
        _mm_storeu_si128((__m128i *)(p->factor + p->count), _mm512_cvtepi32_epi8(factors));
        _mm512_storeu_si512(p->at + p->count, _mm512_maskz_compress_epi32(found, at));
        p->count += _mm_popcnt_u32(found);
        at = _mm512_add_epi32(at, _mm512_set1_epi32(SMG_LANES * row_step));
        total = _mm512_add_epi32(total, x);
    }
    _mm_storeu_si128((__m128i *)(p->factor + p->count), _mm_setzero_si128());
    _mm512_storeu_si512(p->at + p->count, _mm512_setzero_si512());
    p->extra = 128 * _mm512_reduce_add_epi32(total);
}

static inline __m512i four_factors(const picked *p, int32_t i) {
    int32_t word;
    memcpy(&word, p->factor + i, sizeof word);
    return _mm512_set1_epi32(word);
}

/* sums[n] += x[n] for n < count. */
static inline void add_vector(int32_t *sums, int32_t count, __m512i x) {
    const __mmask16 some = smg_vnni_first(smg_clamp(count, 0, SMG_LANES));
    _mm512_mask_storeu_epi32(sums, some, _mm512_add_epi32(_mm512_maskz_loadu_epi32(some, sums), x));
}

/* Up to sixteen channels. */
static inline void add_sixteen(int32_t *sums, int32_t c, const picked *p, const int8_t *rows) {
    const int8_t *const all[ROWS] = {rows, rows, rows, rows};
    __m512i acc = _mm512_set1_epi32(-p->extra);
    for (int32_t i = 0; i < p->count; i += ROWS)
        acc = _mm512_dpbusd_epi32(acc, smg_vnni_quad(all, p->at + i, smg_vnni_first(c)), four_factors(p, i));
    add_vector(sums, c, acc);
}

/* Up to sixty-four: their rows' bytes are interleaved within quarters of vectors, which are put in order at the end. */
static inline void add_sixty_four(int32_t *sums, int32_t c, const picked *p, const int8_t *rows) {
    const __mmask64 some = smg_vnni_bytes(c);
    __m512i acc[ROWS], x[ROWS];
    for (int32_t k = 0; k < ROWS; k++) acc[k] = _mm512_set1_epi32(-p->extra);
    for (int32_t i = 0; i < p->count; i += ROWS) {
        for (int32_t k = 0; k < ROWS; k++)
            x[k] = _mm512_xor_si512(smg_vnni_raise(), _mm512_maskz_loadu_epi8(some, rows + p->at[i + k]));
        const __m512i low = _mm512_unpacklo_epi8(x[0], x[1]), high = _mm512_unpackhi_epi8(x[0], x[1]);
        const __m512i low2 = _mm512_unpacklo_epi8(x[2], x[3]), high2 = _mm512_unpackhi_epi8(x[2], x[3]);
        const __m512i four = four_factors(p, i);
        acc[0] = _mm512_dpbusd_epi32(acc[0], _mm512_unpacklo_epi16(low, low2), four);
        acc[1] = _mm512_dpbusd_epi32(acc[1], _mm512_unpackhi_epi16(low, low2), four);
        acc[2] = _mm512_dpbusd_epi32(acc[2], _mm512_unpacklo_epi16(high, high2), four);
        acc[3] = _mm512_dpbusd_epi32(acc[3], _mm512_unpackhi_epi16(high, high2), four);
    }
    smg_vnni_turn_quarters(acc, acc + 1, acc + 2, acc + 3);
    for (int32_t k = 0; k < ROWS && k * SMG_LANES < c; k++) add_vector(sums + k * SMG_LANES, c - k * SMG_LANES, acc[k]);
}

void smg_accumulate(int32_t *sums, int32_t c, const int8_t *d, int32_t d_step, const int8_t *rows, int32_t row_step,
                    int32_t count) {
    picked p;
    for (int32_t start = 0; start < count; start += RUN, rows += RUN * row_step) {
        pick(&p, d + start * d_step, d_step, row_step, smg_min(RUN, count - start));
        for (int32_t n = 0; n < c; n += 64)
            if (c - n <= SMG_LANES)
                add_sixteen(sums + n, c - n, &p, rows + n);
            else
                add_sixty_four(sums + n, c - n, &p, rows + n);
    }
}

/* Rows whose sum of int8 fits 16 bits. */
enum { SUMMED = 256 };

void smg_sum_rows(int32_t *sums, int32_t c, const int8_t *rows, int32_t count) {
    for (int32_t n = 0; n < c; n += 2 * SMG_LANES) {
        const int32_t left = c - n;
        const __mmask32 some = left < 2 * SMG_LANES ? ((__mmask32)1 << left) - 1 : ~(__mmask32)0;
        __m512i low = _mm512_setzero_si512(), high = low;
        for (int32_t start = 0; start < count; start += SUMMED) {
            __m512i acc = _mm512_setzero_si512();
            for (int32_t i = start; i < smg_min(start + SUMMED, count); i++)
                acc = _mm512_add_epi16(acc, _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(some, rows + i * c + n)));
            low = _mm512_add_epi32(low, _mm512_cvtepi16_epi32(_mm512_castsi512_si256(acc)));
            high = _mm512_add_epi32(high, _mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(acc, 1)));
        }
        _mm512_mask_storeu_epi32(sums + n, (__mmask16)some, low);
        if (left > SMG_LANES) _mm512_mask_storeu_epi32(sums + n + SMG_LANES, (__mmask16)(some >> SMG_LANES), high);
    }
}
#else
static inline void add(int32_t *sum, int32_t x) { *sum = (int32_t)((uint32_t)*sum + (uint32_t)x); }

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

static void add_any_rows(int32_t *sums, int32_t c, const picked *p, const int8_t *rows) {
    for (int32_t i = 0; i < p->count; i += ROWS) four(sums, c, p->factor + i, p->at + i, rows);
}

#if defined(SMG_VEC8)
/* Of two rows, the words of eight channels side by side; the first eight of sixteen, or the others. */
static inline smg_vec8 two_rows(smg_bytes a, smg_bytes b, int upper) {
    return smg_vec8_wide(upper ? smg_bytes_high8(a, b) : smg_bytes_low8(a, b));
}

/* sums[n] += Σ factor[i] * rows[at[i] + n], sixteen sums in registers; fewer than NARROW channels as they come. */
static void add_rows(int32_t *sums, int32_t c, const picked *p, const int8_t *rows) {
    if (c % WIDE) {
        add_any_rows(sums, c, p, rows);
        return;
    }
    for (int32_t n = 0; n < c; n += WIDE) {
        smg_vec8 low = smg_vec8_load(sums + n), high = smg_vec8_load(sums + n + WIDE / 2);
        for (int32_t i = 0; i < p->count; i += 2) {
            const smg_bytes a = smg_bytes_load16(rows + p->at[i] + n), b = smg_bytes_load16(rows + p->at[i + 1] + n);
            const smg_vec8 factors = smg_vec8_pairs(p->factor + i);
            low = smg_vec8_multiply(low, two_rows(a, b, 0), factors);
            high = smg_vec8_multiply(high, two_rows(a, b, 1), factors);
        }
        smg_vec8_store(sums + n, low);
        smg_vec8_store(sums + n + WIDE / 2, high);
    }
}

/* The same for NARROW channels. */
static void add_narrow_rows(int32_t *sums, const picked *p, const int8_t *rows) {
    smg_vec8 acc = smg_vec8_load(sums);
    for (int32_t i = 0; i < p->count; i += 2) {
        const smg_bytes a = smg_bytes_load8(rows + p->at[i]), b = smg_bytes_load8(rows + p->at[i + 1]);
        acc = smg_vec8_multiply(acc, two_rows(a, b, 0), smg_vec8_pairs(p->factor + i));
    }
    smg_vec8_store(sums, acc);
}
#else
static void add_rows(int32_t *sums, int32_t c, const picked *p, const int8_t *rows) { add_any_rows(sums, c, p, rows); }

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
#endif

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
#endif
