/* The fully connected layer. */
#include "smidgen.h"

#include "arithmetic.h"
#include "dense.h"
#include "vec8.h"

#if defined(SMG_VNNI)
/* Sums wrap, so that runs need not be told apart; what raised inputs add is taken off by the weights' own sum. */
static inline int32_t dot(const int8_t *x, const int8_t *w, int32_t k, int32_t x_zero) {
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i sum = _mm512_setzero_si512(), total = _mm512_setzero_si512();
    for (int32_t i = 0; i < k; i += 64) {
        const __mmask64 some = smg_vnni_bytes(k - i);
        const __m512i weights = _mm512_maskz_loadu_epi8(some, w + i);
        const __m512i raised = _mm512_xor_si512(smg_vnni_raise(), _mm512_maskz_loadu_epi8(some, x + i));
        sum = _mm512_dpbusd_epi32(sum, raised, weights);
        total = _mm512_dpbusd_epi32(total, ones, weights);
    }
    const __m512i zeros = _mm512_mullo_epi32(total, _mm512_set1_epi32(128 + x_zero));
    return _mm512_reduce_add_epi32(_mm512_sub_epi32(sum, zeros));
}
#elif defined(SMG_VEC8)
static inline int32_t dot(const int8_t *x, const int8_t *w, int32_t k, int32_t x_zero) {
    const smg_vec8 zeros = smg_vec8_words((int16_t)x_zero);
    smg_vec8 sum = smg_vec8_all(0);
    int32_t lanes[SMG_VEC8_LANES], i = 0;
    uint32_t total = 0;
    for (; i + 16 <= k; i += 16) {
        const smg_vec8 given = smg_vec8_sub_words(smg_vec8_wide(smg_bytes_load16(x + i)), zeros);
        sum = smg_vec8_multiply(sum, smg_vec8_wide(smg_bytes_load16(w + i)), given);
    }
    smg_vec8_store(lanes, sum);
    for (int32_t n = 0; n < SMG_VEC8_LANES; n++) total += (uint32_t)lanes[n];
    for (; i < k; i++) total += (uint32_t)((x[i] - x_zero) * w[i]);
    return (int32_t)total;
}
#else
/* Sums of this many products fit in 32 bits; longer rows are summed in runs, whose total wraps as in the contract. */
enum { RUN = 1 << 15 };

static inline int32_t dot(const int8_t *x, const int8_t *w, int32_t k, int32_t x_zero) {
    uint32_t total = 0;
    for (int32_t start = 0; start < k; start += RUN) {
        const int32_t end = smg_min(start + RUN, k);
        int32_t acc = 0;
        for (int32_t i = start; i < end; i++) acc += (int16_t)(x[i] - x_zero) * (int16_t)w[i];
        total += (uint32_t)acc;
    }
    return (int32_t)total;
}
#endif

void smg_dense_s8(const smg_dense_s8_params *p, const int8_t *x, const int8_t *w, const int32_t *b, int8_t *y) {
    for (int32_t r = 0; r < p->rows; r++, x += p->x_c, y += p->y_c) {
        for (int32_t n = 0; n < p->y_c; n++) {
            const uint32_t acc = (uint32_t)dot(x, w + n * p->x_c, p->x_c, p->x_zero) + (uint32_t)b[n];
            y[n] = smg_to_int8(smg_scale_double((int32_t)acc, p->factor[n]), p->y_zero, p->lo, p->hi);
        }
    }
}
