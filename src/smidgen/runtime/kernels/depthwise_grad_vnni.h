/* The gradient of a depthwise convolution's input in the words of AVX-512 with VNNI: a depthwise convolution of the
 * output's gradient, between whose elements zeros lie where the stride leaves some out, with the weights turned around. */
#ifndef SMIDGEN_DEPTHWISE_GRAD_VNNI_H
#define SMIDGEN_DEPTHWISE_GRAD_VNNI_H

#include "smidgen_training.h"

#include "depthwise_vnni.h"
#include "rounding_vnni.h"

#if defined(SMG_VNNI)
/* That convolution's geometry. */
static inline smg_depthwise_s8_params smg_vnni_turned(const smg_depthwise_grad_g8_params *p) {
    const smg_depthwise_s8_params turned = {
        (p->y_h - 1) * p->stride_h + 1, (p->y_w - 1) * p->stride_w + 1, p->y_c, p->x_h, p->x_w, p->x_c, p->k_h, p->k_w,
        1, 1, (p->k_h - 1) * p->dilation_h - p->pad_h, (p->k_w - 1) * p->dilation_w - p->pad_w, p->dilation_h,
        p->dilation_w, 0, 0, 0, 0, 0, 0};
    return turned;
}

/* Sums of one part of all pixels laid out. The compiler knows `taps` and `quads`. */
SMG_VNNI_PART void smg_vnni_add_up(smg_vnni_lanes *of, int32_t pixels, int32_t k, int32_t taps, int32_t quads,
                                   int near) {
    smg_vnni_held held;
    int32_t at = 0;
    held.start[0] = of->start[k];
    for (int32_t t = 0; t < SMG_VNNI_FEW; t++) held.w[t][0] = of->w[t][k];
    for (int32_t row = 0; row < of->rows; row++) {
        const __m128i *x = of->strip + row * of->columns;
        for (int32_t n = 0; n < pixels; n += SMG_VNNI_PIXELS, x += SMG_VNNI_PIXELS, at++)
            of->kept[k][at] = smg_vnni_sum(of, &held, x, k, 0, taps, quads, near);
    }
}

SMG_VNNI_LOOP smg_vnni_add_up_parts(const smg_depthwise_s8_params *p, smg_vnni_lanes *of, int32_t pixels) {
    const int near = p->dilation_w == 1;
    for (int32_t k = 0; k < SMG_VNNI_PARTS; k++)
        if (near && p->k_w == 3 && of->quads == 1)
            smg_vnni_add_up(of, pixels, k, 3, 1, 1);
        else if (near && p->k_w == 5 && of->quads == 2)
            smg_vnni_add_up(of, pixels, k, 5, 2, 1);
        else if (near && p->k_w == 7 && of->quads == 2)
            smg_vnni_add_up(of, pixels, k, 7, 2, 1);
        else
            smg_vnni_add_up(of, pixels, k, p->k_w, of->quads, 0);
}

/* The bits of up to sixteen channels of four pixels, the first at `index`; those that are not there are 0. */
static inline uint64_t smg_vnni_bits(const uint8_t *mask, int32_t index, int32_t c, int32_t pixels,
                                     __mmask16 channels) {
    uint64_t all = 0;
    for (int32_t q = 0; q < pixels; q++, index += c) {
        uint32_t bits = 0xffff;
        if (mask) bits = channels > 0xff ? mask[index / 8] | (uint32_t)mask[index / 8 + 1] << 8 : mask[index / 8];
        all |= (uint64_t)(bits & channels) << 16 * q;
    }
    return all;
}

/* Round all pixels laid out: `pixels` of each row, of which the first is `at` in the map. */
SMG_VNNI_LOOP smg_vnni_round_tile(const smg_depthwise_s8_params *p, const smg_vnni_lanes *of,
                                  const smg_vnni_factor *factors, int32_t first, int32_t at, int32_t pixels,
                                  const uint8_t *mask, int8_t *dx, smg_vnni_rounder *rounder) {
    const __m512i word = _mm512_setr_epi32(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
    const __m512i pixel = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m512i spread = _mm512_add_epi32(word, _mm512_mullo_epi32(pixel, _mm512_set1_epi32(p->y_c / 4)));
    smg_vnni_rounder all = *rounder;
    int32_t group = 0;
    for (int32_t row = 0; row < of->rows; row++, at += p->y_w)
        for (int32_t n = 0; n < pixels; n += SMG_VNNI_PIXELS, group++) {
            const int32_t index = (at + n) * p->y_c + first, some = smg_min(SMG_VNNI_PIXELS, pixels - n);
            const __m512i sums[SMG_VNNI_PARTS] = {of->kept[0][group], of->kept[1][group], of->kept[2][group],
                                                  of->kept[3][group]};
            const __m512i words = smg_vnni_words(all.key, _mm512_add_epi32(spread, _mm512_set1_epi32(index / 4)));
            const uint64_t keep = smg_vnni_bits(mask, index, p->y_c, some, of->channels);
            const __m512i out = smg_vnni_round_parts(&all, sums, factors, keep, words);
            if (some == SMG_VNNI_PIXELS && of->channels == 0xffff)
                smg_vnni_put_four(out, p->y_c, dx + index);
            else
                smg_vnni_put(out, some, p->y_c, of->channels, dx + index);
        }
    *rounder = all;
}

/* A block of channels, whose gradients are at `x`. */
static inline void smg_vnni_depthwise_grad(const smg_depthwise_s8_params *p, const smg_rounding *r,
                                           const smg_vnni_source *x, int32_t first, const uint8_t *mask, int8_t *dx,
                                           smg_vnni_lanes *of, smg_vnni_rounder *rounder) {
    smg_vnni_factor factors[SMG_VNNI_PARTS];
    for (int32_t k = 0; k < SMG_VNNI_PARTS; k++)
        factors[k] = smg_vnni_factor_of(r->factors > 1 ? smg_vnni_four_words(r->multiplier + first, of->channels, k)
                                                       : _mm512_set1_epi32(r->multiplier[0]));
    for (int32_t oy = 0; oy < p->y_h; oy += of->rows) {
        of->rows = smg_min(of->most, p->y_h - oy);
        for (int32_t ox = 0, pixels; ox < p->y_w; ox += pixels) {
            pixels = smg_min(of->tile, p->y_w - ox);
            for (int32_t n = 0; n < of->rows * of->quads; n++)
                smg_vnni_lay_strip(p, x, oy + n / of->quads - p->pad_h, ox - p->pad_w, n % of->quads, n / of->quads, of);
            smg_vnni_add_up_parts(p, of, pixels);
            smg_vnni_round_tile(p, of, factors, first, oy * p->y_w + ox, pixels, mask, dx, rounder);
        }
    }
}

/* The whole kernel; 0 where its geometry is unusual, or bytes of masks are shared by pixels. */
static inline int smg_depthwise_grad_vnni(const smg_depthwise_grad_g8_params *p, smg_rounding *r, const int8_t *dy,
                                          smg_weights w, const uint8_t *mask, int8_t *dx, void *scratch) {
    const smg_depthwise_s8_params turned = smg_vnni_turned(p);
    smg_vnni_rounder rounder = smg_vnni_rounder_of(r);
    smg_vnni_lanes of;
    if (p->x_c % 8 || !smg_vnni_fits(&turned)) return 0;
    smg_vnni_begin(&turned, p->x_h, &of);
    for (int32_t first = 0; first < p->x_c; first += SMG_LANES) {
        const int32_t count = smg_min(SMG_LANES, p->x_c - first);
        const smg_vnni_source there = {{(int8_t *)dy, p->y_h}, p->y_c, first, p->y_w, p->stride_h, p->stride_w};
        const smg_vnni_source copied = {{scratch, p->y_h}, SMG_LANES, 0, p->y_w, p->stride_h, p->stride_w};
        if (dx == dy) smg_vnni_copy_lanes(dy + first, p->y_h * p->y_w, p->y_c, count, scratch);
        smg_vnni_begin_sums(&turned, w, first, count, 1, &of);
        smg_vnni_depthwise_grad(&turned, r, dx == dy ? &copied : &there, first, mask, dx, &of, &rounder);
    }
    smg_vnni_end_rounding(&rounder, r);
    return 1;
}
#endif

#endif
