/* The gradient of a 1x1 convolution's input in the words of AVX-512 with VNNI: sixty-four channels of six pixels at once,
 * four outputs each instruction. */
#ifndef SMIDGEN_CONV2D_GRAD_VNNI_H
#define SMIDGEN_CONV2D_GRAD_VNNI_H

#include "smidgen_training.h"

#include "rounding_vnni.h"
#include "six_vnni.h"

#if defined(SMG_VNNI)
/* Quads of outputs whose weights, and gradients of six pixels, the stack holds. */
enum { SMG_VNNI_BACK_QUADS = 256 };

/* Up to sixty-four input channels, and what belongs to them. */
typedef struct {
    int32_t first, count, quads;
    __m512i start[SMG_VNNI_PARTS];
    smg_vnni_factor factors[SMG_VNNI_PARTS];
    __m512i w[SMG_VNNI_BACK_QUADS][SMG_VNNI_PARTS];
} smg_vnni_back;

/* Whether every pixel of the input meets that of the output; bytes of masks are not shared by pixels. */
static inline int smg_vnni_back_fits(const smg_conv2d_grad_g8_params *p) {
    return p->groups == 1 && p->k_h * p->k_w == 1 && p->stride_h * p->stride_w == 1 && p->pad_h + p->pad_w == 0 &&
           p->x_h == p->y_h && p->x_w == p->y_w && p->x_c % 8 == 0 && p->y_c <= 4 * SMG_VNNI_BACK_QUADS;
}

/* The weights of four outputs from o on, of the channels taken, interleaved; trained ones over frozen ones. */
static inline void smg_vnni_lay_back(const smg_conv2d_grad_g8_params *p, smg_weights w, smg_vnni_trained trained,
                                     int32_t o, smg_vnni_back *of) {
    const __mmask64 some = smg_vnni_bytes(of->count);
    __m512i four[4];
    for (int32_t i = 0; i < 4; i++) {
        const int32_t row = smg_min(o + i, p->y_c - 1);
        four[i] = _mm512_maskz_loadu_epi8(o + i < p->y_c ? some : 0, w.data + row * p->x_c + of->first);
        if (trained.channels && o + i < p->y_c)
            four[i] = smg_vnni_retrain(four[i], trained.channels, w.trained + row * w.count + trained.first);
    }
    smg_vnni_interleave(four, of->w[o / 4]);
}

static inline void smg_vnni_begin_back(const smg_conv2d_grad_g8_params *p, smg_weights w, int32_t first,
                                       smg_vnni_back *of) {
    const __m512i raised = _mm512_set1_epi32(-128);
    __m512i multiplier[SMG_VNNI_PARTS];
    of->first = first;
    of->count = smg_min(64, p->x_c - first);
    of->quads = (p->y_c + 3) / 4;
    const smg_vnni_trained trained = smg_vnni_trained_of(w, first);
    for (int32_t o = 0; o < p->y_c; o += 4) smg_vnni_lay_back(p, w, trained, o, of);
    for (int32_t k = 0; k < SMG_VNNI_PARTS; k++) {
        const __mmask16 some = smg_vnni_first(smg_clamp(of->count - k * SMG_LANES, 0, SMG_LANES));
        __m512i total = _mm512_setzero_si512();
        for (int32_t i = 0; i < of->quads; i++) total = _mm512_dpbusd_epi32(total, _mm512_set1_epi8(1), of->w[i][k]);
        of->start[k] = _mm512_mullo_epi32(total, raised);
        multiplier[k] = p->factors > 1 ? _mm512_maskz_loadu_epi32(some, p->multiplier + first + k * SMG_LANES)
                                       : _mm512_set1_epi32(p->multiplier[0]);
    }
    smg_vnni_turn_quarters(multiplier, multiplier + 1, multiplier + 2, multiplier + 3);
    for (int32_t k = 0; k < SMG_VNNI_PARTS; k++) of->factors[k] = smg_vnni_factor_of(multiplier[k]);
}

/* out[pixel][part] of six pixels, whose raised gradients are `step` bytes apart. */
SMG_VNNI_LOOP smg_vnni_multiply_back(const smg_vnni_back *of, const uint8_t *dy, int32_t step, __m512i *out) {
    const char *d[SMG_VNNI_SIX];
    for (int32_t n = 0; n < SMG_VNNI_SIX; n++) {
        d[n] = (const char *)dy + n * step;
        for (int32_t k = 0; k < SMG_VNNI_PARTS; k++) out[n * SMG_VNNI_PARTS + k] = of->start[k];
    }
    smg_vnni_six(out, d, 4, of->w[0], of->quads, 1);
}

/* Round the sums of one pixel, whose first channel is at `index`, to `to`. */
static inline void smg_vnni_round_pixel(const smg_vnni_back *of, const __m512i *sums, int32_t index,
                                        const uint8_t *mask, int8_t *to, smg_vnni_rounder *all) {
    const __mmask64 some = smg_vnni_bytes(of->count);
    const __m512i words = smg_vnni_words(all->key, _mm512_add_epi32(_mm512_set1_epi32(index / 4), smg_vnni_counted()));
    uint64_t keep = ~(uint64_t)0;
    if (mask && of->count == 64)
        memcpy(&keep, mask + index / 8, 8);
    else if (mask)
        memcpy(&keep, mask + index / 8, (size_t)of->count / 8);
    const __m512i out = smg_vnni_round_parts(all, sums, of->factors, keep & some, words);
    if (of->count == 64)
        _mm512_storeu_si512(to, out);
    else
        _mm512_mask_storeu_epi8(to, some, out);
}

/* The whole kernel; 0 where its geometry is unusual. */
static inline int smg_conv2d_grad_vnni(const smg_conv2d_grad_g8_params *p, smg_rounding *r, const int8_t *dy,
                                       smg_weights w, const uint8_t *mask, int8_t *dx) {
    const int32_t pixels = p->x_h * p->x_w;
    smg_vnni_rounder all = smg_vnni_rounder_of(r);
    smg_vnni_back of;
    uint8_t raised[SMG_VNNI_SIX * SMG_VNNI_BACK_QUADS * 4 + 64];
    __m512i out[SMG_VNNI_SIX * SMG_VNNI_PARTS];
    if (!smg_vnni_back_fits(p)) return 0;
    memset(raised, 0, (size_t)(SMG_VNNI_SIX * p->y_c + 64));
    for (int32_t first = 0; first < p->x_c; first += 64) {
        smg_vnni_begin_back(p, w, first, &of);
        for (int32_t n = 0, some; n < pixels; n += some) {
            some = smg_min(SMG_VNNI_SIX, pixels - n);
            smg_vnni_copy(dy + n * p->y_c, some * p->y_c, raised);
            smg_vnni_multiply_back(&of, raised, p->y_c, out);
            for (int32_t i = 0; i < some; i++) {
                const int32_t index = (n + i) * p->x_c + first;
                smg_vnni_round_pixel(&of, out + i * SMG_VNNI_PARTS, index, mask, dx + index, &all);
            }
        }
    }
    smg_vnni_end_rounding(&all, r);
    return 1;
}
#endif

#endif
