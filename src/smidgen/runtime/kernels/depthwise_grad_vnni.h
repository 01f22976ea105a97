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

/* Pixels of a padded map that the stack holds. */
enum { SMG_VNNI_PADDED = 1024 };

/* A small gradient, sixteen channels of it, with all zeros around and between its elements that a window meets: no row and
 * no column is then an edge. */
typedef struct {
    int32_t rows, columns;
    __m128i map[SMG_VNNI_PADDED];
} smg_vnni_padded;

/* Whether there is room; the geometry is then that of the padded map. */
static inline int smg_vnni_begin_padded(smg_depthwise_s8_params *turned, const smg_vnni_lanes *of,
                                        smg_vnni_padded *to) {
    to->rows = turned->y_h + (turned->k_h - 1) * turned->dilation_h;
    to->columns = (turned->y_w - 1) / of->tile * of->tile + of->columns;
    if (turned->pad_h < 0 || turned->pad_w < 0 || to->rows * to->columns > SMG_VNNI_PADDED) return 0;
    memset(to->map, 0, (size_t)(to->rows * to->columns) * sizeof *to->map);
    turned->x_h = to->rows;
    turned->x_w = to->columns;
    turned->pad_h = turned->pad_w = 0;
    return 1;
}

/* Channels of all pixels from `dy` on, each at its place. */
static inline void smg_vnni_pad(const smg_depthwise_grad_g8_params *p, const int8_t *dy, int32_t count,
                                smg_vnni_padded *to) {
    const __mmask16 channels = smg_vnni_first(count);
    const int32_t top = (p->k_h - 1) * p->dilation_h - p->pad_h, left = (p->k_w - 1) * p->dilation_w - p->pad_w;
    for (int32_t y = 0; y < p->y_h && top + y * p->stride_h < to->rows; y++) {
        const int8_t *from = dy + y * p->y_w * p->y_c;
        __m128i *row = to->map + (top + y * p->stride_h) * to->columns + left;
        for (int32_t x = 0; x < p->y_w && left + x * p->stride_w < to->columns; x++)
            row[x * p->stride_w] = _mm_maskz_loadu_epi8(channels, from + x * p->y_c);
    }
}

/* The whole kernel; 0 where its geometry is unusual, or bytes of masks are shared by pixels. */
static inline int smg_depthwise_grad_vnni(const smg_depthwise_grad_g8_params *p, smg_rounding *r, const int8_t *dy,
                                          smg_weights w, const uint8_t *mask, int8_t *dx, void *scratch) {
    smg_depthwise_s8_params turned = smg_vnni_turned(p);
    smg_vnni_rounder rounder = smg_vnni_rounder_of(r);
    smg_vnni_lanes of;
    smg_vnni_padded padded;
    if (p->x_c % 8 || !smg_vnni_fits(&turned)) return 0;
    smg_vnni_begin(&turned, p->x_h, &of);
    const int small = smg_vnni_begin_padded(&turned, &of, &padded);
    for (int32_t first = 0; first < p->x_c; first += SMG_LANES) {
        const int32_t count = smg_min(SMG_LANES, p->x_c - first);
        const smg_vnni_source there = {{(int8_t *)dy, p->y_h}, p->y_c, first, p->y_w, p->stride_h, p->stride_w};
        const smg_vnni_source copied = {{scratch, p->y_h}, SMG_LANES, 0, p->y_w, p->stride_h, p->stride_w};
        const smg_vnni_source around = {{(int8_t *)padded.map, padded.rows}, SMG_LANES, 0, padded.columns, 1, 1};
        if (small)
            smg_vnni_pad(p, dy + first, count, &padded);
        else if (dx == dy)
            smg_vnni_copy_lanes(dy + first, p->y_h * p->y_w, p->y_c, count, scratch);
        smg_vnni_begin_sums(&turned, w, first, count, 1, &of);
        smg_vnni_depthwise_grad(&turned, r, small ? &around : dx == dy ? &copied : &there, first, mask, dx, &of,
                                &rounder);
    }
    smg_vnni_end_rounding(&rounder, r);
    return 1;
}
#endif

#endif
