/* Where gradients pass: a bit for each element that its activation did not clamp. */
#include "smidgen_training.h"

#include "arithmetic.h"
#include "vec8.h"

/* One bit for each of up to eight elements that lie strictly between the limits. */
static inline uint8_t inside(const int8_t *y, int32_t count, int32_t lo, int32_t hi) {
    uint32_t bits = 0;
    for (int32_t k = 0; k < count; k++) bits |= (uint32_t)(y[k] > lo && y[k] < hi) << k;
    return (uint8_t)bits;
}

void smg_mask_s8(const smg_mask_s8_params *p, const int8_t *y, uint8_t *mask) {
    int32_t done = 0;
#if defined(SMG_VNNI)
    const __m512i lo = _mm512_set1_epi8((int8_t)p->lo), hi = _mm512_set1_epi8((int8_t)p->hi);
    for (; p->n - done >= 64; done += 64) {
        const __m512i x = _mm512_loadu_si512(y + done);
        const uint64_t bits = _mm512_cmpgt_epi8_mask(x, lo) & _mm512_cmplt_epi8_mask(x, hi);
        memcpy(mask + done / 8, &bits, sizeof bits);
    }
#elif defined(SMG_VEC8)
    const smg_bytes lo = smg_bytes_all((int8_t)p->lo), hi = smg_bytes_all((int8_t)p->hi);
    for (; p->n - done >= 16; done += 16) {
        const uint32_t bits = smg_bytes_between(smg_bytes_load16(y + done), lo, hi);
        mask[done / 8] = (uint8_t)bits;
        mask[done / 8 + 1] = (uint8_t)(bits >> 8);
    }
#endif
    for (; done < p->n; done += 8) mask[done / 8] = inside(y + done, smg_min(8, p->n - done), p->lo, p->hi);
}
