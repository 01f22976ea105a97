/* Depthwise convolution of 3×3 windows in the words of AVX-512 with VNNI: sixteen channels of four neighbouring output
 * pixels at once, in registers from input to output.
 *
 * Four rows' bytes lie side by side in every lane, as in strips_vnni.h. Where rows follow each other they are two
 * windows: one begins with the first of them, the other, whose weights lie a byte higher, with the second. */
#ifndef SMIDGEN_DEPTHWISE3_VNNI_H
#define SMIDGEN_DEPTHWISE3_VNNI_H

#include "depthwise_vnni.h"

#if defined(SMG_VNNI)
/* A block of channels of a layer, and the weights of windows that begin a row lower. */
typedef struct {
    const smg_depthwise_s8_params *p;
    const smg_vnni_source *x;
    const smg_vnni_lanes *of;
    __m512i lower[3][SMG_VNNI_PARTS];
    int whole; /* sixteen bytes may be read of every pixel */
} smg_vnni_three;

/* Whether this file computes such a layer: one column lies before the map. */
static inline int smg_vnni_is_three(const smg_depthwise_s8_params *p, const smg_vnni_limits *limits) {
    return p->k_h == 3 && p->k_w == 3 && p->stride_w == p->stride_h && p->stride_w <= 2 && p->dilation_h == 1 &&
           p->dilation_w == 1 && p->pad_w == 1 && p->x_c == p->y_c && limits->how != SMG_VNNI_ANY;
}

/* Four columns, a stride apart, of one row, of which some may lie beyond the map. */
static __attribute__((noinline)) __m512i smg_vnni_last_columns(const smg_vnni_three *t, const int8_t *row, int32_t column) {
    const int32_t c = t->x->c, stride = t->p->stride_w;
    __m128i one[4];
    for (int32_t q = 0; q < 4; q++, column += stride)
        one[q] = column < t->p->x_w ? _mm_maskz_loadu_epi8(t->of->channels, row + column * c)
                                    : _mm_set1_epi8((int8_t)t->p->x_zero);
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(one[0]), one[1], 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(one[2]), one[3], 1);
    return _mm512_xor_si512(smg_vnni_raise(), _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
}

/* Four columns, a stride apart, of a row; one that is 0 lies outside the map. */
SMG_VNNI_PART __m512i smg_vnni_three_row(const smg_vnni_three *t, const int8_t *row, int32_t stride, int32_t column,
                                         int whole, __m512i outside) {
    const int32_t c = t->x->c;
    if (!row) return outside;
    if (!whole) return smg_vnni_last_columns(t, row, column);
    return smg_vnni_four(row + column * c, stride * c, stride == 1 && c == SMG_LANES);
}

/* The same of four rows, or three, beside each other. */
SMG_VNNI_PART void smg_vnni_three_columns(const smg_vnni_three *t, const int8_t *const *rows, int32_t stride,
                                          int32_t column, __m512i outside, __m512i *parts) {
    const int whole = t->whole && column + 3 * stride < t->p->x_w;
    __m512i four[4];
    four[0] = smg_vnni_three_row(t, rows[0], stride, column, whole, outside);
    four[1] = smg_vnni_three_row(t, rows[1], stride, column, whole, outside);
    four[2] = smg_vnni_three_row(t, rows[2], stride, column, whole, outside);
    four[3] = stride == 2 ? four[2] : smg_vnni_three_row(t, rows[3], stride, column, whole, outside);
    smg_vnni_interleave(four, parts);
}

/* Four times sixteen sums, scaled and stored. */
SMG_VNNI_PART void smg_vnni_three_put(const smg_vnni_three *t, const __m512i *out, int32_t pixels, int8_t *to) {
    const __m512i all = smg_vnni_within(&t->of->limits, smg_vnni_bytes_of(out[0], out[1], out[2], out[3]));
    if (pixels >= SMG_VNNI_PIXELS && t->of->channels == 0xffff)
        smg_vnni_put_four(all, t->p->y_c, to);
    else
        smg_vnni_put(all, smg_min(SMG_VNNI_PIXELS, pixels), t->p->y_c, t->of->channels, to);
}

/* Sums of all parts, column by column: neighbouring instructions do not wait for each other. */
SMG_VNNI_PART void smg_vnni_three_sums(const smg_vnni_three *t, const __m512i *left, const __m512i *middle,
                                       const __m512i *right, const __m512i (*w)[SMG_VNNI_PARTS], __m512i *out) {
    for (int32_t k = 0; k < SMG_VNNI_PARTS; k++) out[k] = _mm512_dpbusd_epi32(t->of->start[k], left[k], w[0][k]);
    for (int32_t k = 0; k < SMG_VNNI_PARTS; k++) out[k] = _mm512_dpbusd_epi32(out[k], middle[k], w[1][k]);
    for (int32_t k = 0; k < SMG_VNNI_PARTS; k++) out[k] = _mm512_dpbusd_epi32(out[k], right[k], w[2][k]);
}

/* A row of output pixels, or `both` where windows are neighbours. */
SMG_VNNI_PART void smg_vnni_three_rows(const smg_vnni_three *t, const int8_t *const *rows, int32_t stride, int both,
                                       int how, int8_t *first, int8_t *second) {
    const smg_depthwise_s8_params *p = t->p;
    const __m512i outside = _mm512_set1_epi8((int8_t)(p->x_zero + 128));
    __m512i before[SMG_VNNI_PARTS], now[SMG_VNNI_PARTS], next[SMG_VNNI_PARTS];
    __m512i left[SMG_VNNI_PARTS], right[SMG_VNNI_PARTS], out[SMG_VNNI_PARTS], lower[SMG_VNNI_PARTS];
    for (int32_t k = 0; k < SMG_VNNI_PARTS; k++) before[k] = next[k] = outside;
    if (stride == 1) smg_vnni_three_columns(t, rows, stride, 0, outside, next);
    for (int32_t ox = 0; ox < p->y_w; ox += SMG_VNNI_PIXELS) {
        const int32_t column = stride * ox;
        for (int32_t k = 0; k < SMG_VNNI_PARTS; k++) now[k] = stride == 1 ? next[k] : outside;
        if (stride == 2) smg_vnni_three_columns(t, rows, stride, column, outside, now);
        if (stride == 2)
            smg_vnni_three_columns(t, rows, stride, column + 1, outside, next);
        else if (column + SMG_VNNI_PIXELS < p->x_w)
            smg_vnni_three_columns(t, rows, stride, column + SMG_VNNI_PIXELS, outside, next);
        else
            for (int32_t k = 0; k < SMG_VNNI_PARTS; k++) next[k] = outside;
        for (int32_t k = 0; k < SMG_VNNI_PARTS; k++) {
            left[k] = _mm512_alignr_epi64(stride == 1 ? now[k] : next[k], before[k], 6);
            right[k] = stride == 1 ? _mm512_alignr_epi64(next[k], now[k], 2) : next[k];
            before[k] = stride == 1 ? now[k] : next[k];
        }
        smg_vnni_three_sums(t, left, now, right, t->of->w, out);
        if (both) smg_vnni_three_sums(t, left, now, right, t->lower, lower);
        for (int32_t k = 0; k < SMG_VNNI_PARTS; k++) {
            const smg_vnni_scale q = t->of->scales[k];
            out[k] = smg_vnni_scaled(&q, &t->of->limits, out[k], how);
            if (both) lower[k] = smg_vnni_scaled(&q, &t->of->limits, lower[k], how);
        }
        smg_vnni_three_put(t, out, p->y_w - ox, first + ox * p->y_c);
        if (both) smg_vnni_three_put(t, lower, p->y_w - ox, second + ox * p->y_c);
    }
}

#define SMG_VNNI_THREE(name, stride, both, how)                                                                         \
    SMG_VNNI_LOOP smg_vnni_three_##name(const smg_vnni_three *t, const int8_t *const *rows, int8_t *first,              \
                                        int8_t *second) {                                                               \
        smg_vnni_three_rows(t, rows, stride, both, how, first, second);                                                 \
    }
SMG_VNNI_THREE(both, 1, 1, SMG_VNNI_POSITIVE)
SMG_VNNI_THREE(both_usual, 1, 1, SMG_VNNI_USUAL)
SMG_VNNI_THREE(one_usual, 1, 0, SMG_VNNI_USUAL)
SMG_VNNI_THREE(by_two, 2, 0, SMG_VNNI_POSITIVE)
SMG_VNNI_THREE(by_two_usual, 2, 0, SMG_VNNI_USUAL)

/* Rows [y0, y1) of one block of channels, whose weights are laid out. */
static inline void smg_vnni_depthwise_three(const smg_depthwise_s8_params *p, const smg_vnni_source *x,
                                            const smg_vnni_lanes *of, smg_map y, int32_t first, int32_t y0, int32_t y1) {
    const int32_t rows_at_once = p->stride_w == 1 ? 2 : 1;
    const int positive = of->limits.how == SMG_VNNI_POSITIVE;
    smg_vnni_three t;
    t.p = p;
    t.x = x;
    t.of = of;
    t.whole = of->channels == 0xffff || x->c == SMG_LANES;
    for (int32_t j = 0; j < 3; j++)
        for (int32_t k = 0; k < SMG_VNNI_PARTS; k++) t.lower[j][k] = _mm512_slli_epi32(of->w[j][k], 8);
    for (int32_t oy = y0; oy < y1; oy += rows_at_once) {
        const int8_t *rows[4];
        int8_t *to = smg_row(y, oy, p->y_w * p->y_c) + first;
        int8_t *second = oy + 1 < y1 && rows_at_once == 2 ? smg_row(y, oy + 1, p->y_w * p->y_c) + first : 0;
        for (int32_t i = 0; i < 4; i++) {
            const int32_t r = oy * p->stride_h - p->pad_h + i, needed = i < (second ? 4 : 3);
            rows[i] = needed && r >= 0 && r < p->x_h ? smg_row(x->map, r, x->width * x->c) + x->first : 0;
        }
        if (p->stride_w == 2)
            (positive ? smg_vnni_three_by_two : smg_vnni_three_by_two_usual)(&t, rows, to, 0);
        else if (second)
            (positive ? smg_vnni_three_both : smg_vnni_three_both_usual)(&t, rows, to, second);
        else
            smg_vnni_three_one_usual(&t, rows, to, 0);
    }
}
#endif

#endif
