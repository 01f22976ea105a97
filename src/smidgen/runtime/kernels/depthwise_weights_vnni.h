/* The gradient of a depthwise convolution's weights in the words of AVX-512 with VNNI: sixteen channels at once, four
 * output rows each instruction. */
#ifndef SMIDGEN_DEPTHWISE_WEIGHTS_VNNI_H
#define SMIDGEN_DEPTHWISE_WEIGHTS_VNNI_H

#include "smidgen_training.h"

#include "vnni.h"

#if defined(SMG_VNNI)
/* Columns of a row, and taps, that the stack holds. */
enum { SMG_VNNI_LINE = 256, SMG_VNNI_WINDOW = 64 };

/* Up to sixteen channels: of four rows the bytes of each column and channel side by side. */
typedef struct {
    int32_t columns; /* of the input under a row of outputs */
    __mmask16 channels;
    __m512i x[SMG_VNNI_LINE]; /* raised */
    __m512i dy[SMG_VNNI_LINE];
    __m512i sums[SMG_VNNI_WINDOW]; /* of each tap */
} smg_vnni_deep;

/* Whether there is room. */
static inline int smg_vnni_begin_deep(const smg_depthwise_grad_weight_g8_params *p, smg_vnni_deep *of) {
    of->columns = (p->y_w - 1) * p->stride_w + (p->k_w - 1) * p->dilation_w + 1;
    return p->x_c == p->y_c && p->k_h * p->k_w <= SMG_VNNI_WINDOW && of->columns <= SMG_VNNI_LINE &&
           p->y_w <= SMG_VNNI_LINE;
}

/* Four rows, or NULL, from which `columns` columns of c channels are taken; `none` is what a row that is not there holds. */
static inline void smg_vnni_lay_rows(const int8_t *const *rows, const int8_t *none, int32_t c, int32_t columns,
                                     __mmask16 channels, __m512i *to) {
    const int8_t *from[4];
    int32_t at[4] = {0, 0, 0, 0}, step[4];
    for (int32_t i = 0; i < 4; i++) from[i] = rows[i] ? rows[i] : none, step[i] = rows[i] ? c : 0;
    for (int32_t n = 0; n < columns; n++) {
        to[n] = smg_vnni_quad(from, at, channels);
        for (int32_t i = 0; i < 4; i++) at[i] += step[i];
    }
}

/* The gradients of four output rows from oy on; their sums are added to `total`. */
static inline __m512i smg_vnni_lay_gradients(const smg_depthwise_grad_weight_g8_params *p, const int8_t *dy, int32_t oy,
                                             smg_vnni_deep *of, __m512i total) {
    const int8_t none[SMG_LANES] = {0};
    const int8_t *rows[4];
    for (int32_t i = 0; i < 4; i++) rows[i] = oy + i < p->y_h ? dy + (oy + i) * p->y_w * p->y_c : 0;
    smg_vnni_lay_rows(rows, none, p->y_c, p->y_w, of->channels, of->dy);
    for (int32_t n = 0; n < p->y_w; n++) {
        of->dy[n] = _mm512_xor_si512(smg_vnni_raise(), of->dy[n]);
        total = _mm512_dpbusd_epi32(total, _mm512_set1_epi8(1), of->dy[n]);
    }
    return total;
}

/* What lies under row i of the windows of four output rows from oy on; outside of the map that is the zero point. */
static inline void smg_vnni_lay_taps(const smg_depthwise_grad_weight_g8_params *p, const int8_t *x, int32_t oy,
                                     int32_t i, smg_vnni_deep *of) {
    const int32_t left = smg_min(p->pad_w, of->columns), inside = smg_clamp(of->columns - left, 0, p->x_w);
    const __m512i zero = _mm512_set1_epi8((int8_t)(p->x_zero + 128));
    int8_t none[SMG_LANES];
    const int8_t *rows[4];
    _mm_storeu_si128((__m128i *)none, _mm_set1_epi8((int8_t)p->x_zero));
    for (int32_t n = 0; n < 4; n++) {
        const int32_t r = (oy + n) * p->stride_h + i * p->dilation_h - p->pad_h;
        rows[n] = r >= 0 && r < p->x_h ? x + r * p->x_w * p->x_c : 0;
    }
    for (int32_t n = 0; n < left; n++) of->x[n] = zero;
    smg_vnni_lay_rows(rows, none, p->x_c, inside, of->channels, of->x + left);
    for (int32_t n = left + inside; n < of->columns; n++) of->x[n] = zero;
}

/* sums[j] of one row of windows. The compiler knows `taps`. */
SMG_VNNI_PART void smg_vnni_add_taps(const smg_vnni_deep *of, int32_t pixels, int32_t stride, int32_t dilation,
                                     int32_t taps, __m512i *sums) {
    __m512i acc[7];
    for (int32_t j = 0; j < taps; j++) acc[j] = sums[j];
    for (int32_t n = 0; n < pixels; n++)
        for (int32_t j = 0; j < taps; j++)
            acc[j] = _mm512_dpbusd_epi32(acc[j], of->x[n * stride + j * dilation], of->dy[n]);
    for (int32_t j = 0; j < taps; j++) sums[j] = acc[j];
}

SMG_VNNI_LOOP smg_vnni_add_row(const smg_depthwise_grad_weight_g8_params *p, smg_vnni_deep *of, __m512i *sums) {
    if (p->k_w == 3)
        smg_vnni_add_taps(of, p->y_w, p->stride_w, p->dilation_w, 3, sums);
    else if (p->k_w == 5)
        smg_vnni_add_taps(of, p->y_w, p->stride_w, p->dilation_w, 5, sums);
    else if (p->k_w == 7)
        smg_vnni_add_taps(of, p->y_w, p->stride_w, p->dilation_w, 7, sums);
    else
        for (int32_t j = 0; j < p->k_w; j++)
            for (int32_t n = 0; n < p->y_w; n++)
                sums[j] = _mm512_dpbusd_epi32(sums[j], of->x[n * p->stride_w + j * p->dilation_w], of->dy[n]);
}

/* of->sums of `count` channels from `first` on. */
static inline void smg_vnni_deep_sums(const smg_depthwise_grad_weight_g8_params *p, const int8_t *x, const int8_t *dy,
                                      int32_t first, int32_t count, smg_vnni_deep *of) {
    const int32_t taps = p->k_h * p->k_w;
    __m512i total = _mm512_setzero_si512();
    of->channels = smg_vnni_first(count);
    for (int32_t t = 0; t < taps; t++) of->sums[t] = _mm512_setzero_si512();
    for (int32_t oy = 0; oy < p->y_h; oy += 4) {
        total = smg_vnni_lay_gradients(p, dy + first, oy, of, total);
        for (int32_t i = 0; i < p->k_h; i++) {
            smg_vnni_lay_taps(p, x + first, oy, i, of);
            smg_vnni_add_row(p, of, of->sums + i * p->k_w);
        }
    }
    const __m512i raised = _mm512_mullo_epi32(total, _mm512_set1_epi32(128 + p->x_zero));
    for (int32_t t = 0; t < taps; t++) of->sums[t] = _mm512_sub_epi32(of->sums[t], raised);
}
#endif

#endif
