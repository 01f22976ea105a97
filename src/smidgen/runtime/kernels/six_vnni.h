/* Six words against four vectors, again and again: twenty-four sums in registers, each named, as compilers that see an
 * array of so many put it into memory. */
#ifndef SMIDGEN_SIX_VNNI_H
#define SMIDGEN_SIX_VNNI_H

#include "vnni.h"

#if defined(SMG_VNNI)
enum { SMG_VNNI_SIX = 6 };

static inline __m512i smg_vnni_word(const void *from) {
    int32_t four;
    memcpy(&four, from, sizeof four);
    return _mm512_set1_epi32(four);
}

/* acc[n][k] += words of d[n], `step` bytes apart, times x[i][k] for i < count. One of both factors is unsigned: the words
 * where `raised`, else the vectors. */
SMG_VNNI_PART void smg_vnni_six(__m512i *acc, const char *const *d, int32_t step, const __m512i *x, int32_t count,
                                int raised) {
    const char *d0 = d[0], *d1 = d[1], *d2 = d[2], *d3 = d[3], *d4 = d[4], *d5 = d[5];
#define SMG_LOAD(n) __m512i p##n = acc[4 * n], q##n = acc[4 * n + 1], r##n = acc[4 * n + 2], s##n = acc[4 * n + 3]
    SMG_LOAD(0);
    SMG_LOAD(1);
    SMG_LOAD(2);
    SMG_LOAD(3);
    SMG_LOAD(4);
    SMG_LOAD(5);
#undef SMG_LOAD
#define SMG_TIMES(sum, x) sum = raised ? _mm512_dpbusd_epi32(sum, word, x) : _mm512_dpbusd_epi32(sum, x, word)
#define SMG_ADD(n)                                 \
    {                                              \
        const __m512i word = smg_vnni_word(d##n);  \
        SMG_TIMES(p##n, x0);                       \
        SMG_TIMES(q##n, x1);                       \
        SMG_TIMES(r##n, x2);                       \
        SMG_TIMES(s##n, x3);                       \
        d##n += step;                              \
    }
    for (int32_t i = 0; i < count; i++, x += 4) {
        const __m512i x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
        SMG_ADD(0)
        SMG_ADD(1)
        SMG_ADD(2)
        SMG_ADD(3)
        SMG_ADD(4)
        SMG_ADD(5)
    }
#undef SMG_ADD
#undef SMG_TIMES
#define SMG_STORE(n) acc[4 * n] = p##n, acc[4 * n + 1] = q##n, acc[4 * n + 2] = r##n, acc[4 * n + 3] = s##n
    SMG_STORE(0);
    SMG_STORE(1);
    SMG_STORE(2);
    SMG_STORE(3);
    SMG_STORE(4);
    SMG_STORE(5);
#undef SMG_STORE
}
#endif

#endif
