/* The gradient of a convolution's weights in the words of AVX-512 with VNNI: six outputs' weights to sixty-four inputs at
 * once, four pixels each instruction. What lies under a window counts as that pixel's inputs. */
#ifndef SMIDGEN_CONV2D_WEIGHTS_VNNI_H
#define SMIDGEN_CONV2D_WEIGHTS_VNNI_H

#include "smidgen_training.h"

#include "six_vnni.h"
#include "window.h"

#if defined(SMG_VNNI)
/* Outputs that are taken together; quads of pixels, vectors of inputs, sixty-fours of inputs, and sums of an output where
 * all are held, that the stack holds. */
enum { SMG_VNNI_LAID = 48, SMG_VNNI_DEPTH = 128, SMG_VNNI_INPUTS = 1024, SMG_VNNI_WIDTH = 16, SMG_VNNI_ROW = 256 };

typedef struct {
    int32_t inner, groups;                      /* inputs of an output, and sixty-fours of them */
    int32_t most, first, quads;                 /* quads laid out at once, the first pixel laid out, and their quads */
    __m512i x[SMG_VNNI_INPUTS];                 /* [group][quad][part], raised */
    __m512i dy[SMG_VNNI_DEPTH][SMG_VNNI_PARTS]; /* of SMG_VNNI_LAID outputs */
    int32_t total[SMG_VNNI_PARTS * SMG_LANES];  /* their sums, in the same order */
    int32_t sums[SMG_VNNI_LAID * SMG_VNNI_ROW];
} smg_vnni_outer;

/* Whether every pixel of the input meets that of the output. */
static inline int smg_vnni_pointwise(const smg_conv2d_grad_weight_g8_params *p) {
    return p->k_h * p->k_w == 1 && p->stride_h * p->stride_w == 1 && p->pad_h + p->pad_w == 0 && p->x_h == p->y_h &&
           p->x_w == p->y_w;
}

/* Begin with the first pixels; 0 where the weights of an output, or all pixels of one with many, do not fit. */
static inline int smg_vnni_begin_outer(const smg_conv2d_grad_weight_g8_params *p, smg_vnni_outer *of) {
    of->inner = p->k_h * p->k_w * p->x_c;
    of->groups = (of->inner + 63) / 64;
    if (p->groups > 1 || of->groups > SMG_VNNI_WIDTH) return 0;
    of->most = smg_min(SMG_VNNI_DEPTH, SMG_VNNI_INPUTS / (SMG_VNNI_PARTS * of->groups));
    of->quads = 0;
    return of->inner <= SMG_VNNI_ROW || (smg_vnni_pointwise(p) && (p->y_h * p->y_w + 3) / 4 <= of->most);
}

/* Channels [first, first + count) of four pixels of c channels from pixel n of `pixels` on; zeros past the last. */
static inline void smg_vnni_four_pixels(const int8_t *from, int32_t n, int32_t pixels, int32_t c, int32_t first,
                                        int32_t count, __m512i *four) {
    const __mmask64 some = smg_vnni_bytes(count);
    for (int32_t i = 0; i < 4; i++)
        four[i] = _mm512_maskz_loadu_epi8(n + i < pixels ? some : 0, from + smg_min(n + i, pixels - 1) * c + first);
}

/* `count` bytes, or as many of the zero point where they lie outside; up to 63 more are written. */
static inline void smg_vnni_window_part(const int8_t *from, int32_t count, int32_t zero, int8_t *to) {
    for (int32_t i = 0; i < count; i += 64)
        _mm512_storeu_si512(to + i, from ? _mm512_maskz_loadu_epi8(smg_vnni_bytes(count - i), from + i)
                                         : _mm512_set1_epi8((int8_t)zero));
}

/* All inputs under the window of output pixel n. */
static inline void smg_vnni_window(const smg_conv2d_grad_weight_g8_params *p, const int8_t *x, int32_t n, int8_t *to) {
    const int32_t top = n / p->y_w * p->stride_h - p->pad_h, left = n % p->y_w * p->stride_w - p->pad_w;
    const int joined = p->dilation_w == 1 && left >= 0 && left + p->k_w <= p->x_w;
    for (int32_t i = 0; i < p->k_h; i++) {
        const int32_t r = top + i * p->dilation_h;
        const int8_t *row = r >= 0 && r < p->x_h ? x + r * p->x_w * p->x_c : 0;
        for (int32_t j = 0, taps = joined ? p->k_w : 1; j < p->k_w; j += taps, to += taps * p->x_c) {
            const int32_t column = left + j * p->dilation_w;
            const int inside = row && column >= 0 && column < p->x_w;
            smg_vnni_window_part(inside ? row + column * p->x_c : 0, taps * p->x_c, p->x_zero, to);
        }
    }
}

/* The inputs of the pixels from `first` on, as many quads as fit. */
static inline void smg_vnni_lay_inputs(const smg_conv2d_grad_weight_g8_params *p, const int8_t *x, int32_t first,
                                       smg_vnni_outer *of) {
    const int32_t pixels = p->y_h * p->y_w;
    const int pointwise = smg_vnni_pointwise(p);
    int8_t windows[4][SMG_VNNI_ROW + 64];
    __m512i four[4];
    of->first = first;
    of->quads = smg_min(of->most, (pixels - first + 3) / 4);
    for (int32_t quad = 0; quad < of->quads; quad++) {
        const int32_t n = first + quad * 4;
        for (int32_t i = 0; !pointwise && i < 4; i++)
            if (n + i < pixels) smg_vnni_window(p, x, n + i, windows[i]);
        for (int32_t g = 0; g < of->groups; g++) {
            const int32_t count = smg_min(64, of->inner - g * 64);
            if (pointwise)
                smg_vnni_four_pixels(x, n, pixels, p->x_c, g * 64, count, four);
            else
                smg_vnni_four_pixels(windows[0], 0, smg_min(4, pixels - n), (int32_t)sizeof windows[0], g * 64, count,
                                     four);
            for (int32_t i = 0; i < 4; i++) four[i] = _mm512_xor_si512(smg_vnni_raise(), four[i]);
            smg_vnni_interleave(four, of->x + (g * of->quads + quad) * SMG_VNNI_PARTS);
        }
    }
}

/* The gradients of the outputs from `first` on, of the pixels laid out. */
static inline void smg_vnni_lay_outputs(const smg_conv2d_grad_weight_g8_params *p, const int8_t *dy, int32_t first,
                                        smg_vnni_outer *of) {
    const int32_t pixels = p->y_h * p->y_w, count = smg_min(SMG_VNNI_LAID, p->y_c - first);
    __m512i four[4], total[SMG_VNNI_PARTS];
    for (int32_t k = 0; k < SMG_VNNI_PARTS; k++) total[k] = _mm512_setzero_si512();
    for (int32_t quad = 0; quad < of->quads; quad++) {
        smg_vnni_four_pixels(dy, of->first + quad * 4, pixels, p->y_c, first, count, four);
        smg_vnni_interleave(four, of->dy[quad]);
        for (int32_t k = 0; k < SMG_VNNI_PARTS; k++)
            total[k] = _mm512_dpbusd_epi32(total[k], _mm512_set1_epi8(1), of->dy[quad][k]);
    }
    for (int32_t k = 0; k < SMG_VNNI_PARTS; k++) _mm512_storeu_si512(of->total + k * SMG_LANES, total[k]);
}

/* Where interleaving puts an element of sixty-four. */
static inline int32_t smg_vnni_place(int32_t n) { return n % 16 / 4 * SMG_LANES + n / 16 * 4 + n % 4; }

/* out[output][part]: sums of one sixty-four of inputs and six outputs, whose gradients are at these places. */
SMG_VNNI_LOOP smg_vnni_multiply_outer(const smg_vnni_outer *of, int32_t group, const int32_t *at, int32_t raised,
                                      __m512i *out) {
    const char *d[SMG_VNNI_SIX];
    for (int32_t n = 0; n < SMG_VNNI_SIX; n++) {
        const __m512i start = _mm512_set1_epi32((int32_t)(0u - (uint32_t)raised * (uint32_t)of->total[at[n]]));
        d[n] = (const char *)of->dy + 4 * at[n];
        for (int32_t k = 0; k < SMG_VNNI_PARTS; k++) out[n * SMG_VNNI_PARTS + k] = start;
    }
    smg_vnni_six(out, d, (int32_t)sizeof of->dy[0], of->x + group * of->quads * SMG_VNNI_PARTS, of->quads, 0);
}

/* sums[output][input] of six outputs, of which `o` of those laid out is the first, or added to them; rows are `row` sums
 * apart. */
static inline void smg_vnni_outer_sums(const smg_conv2d_grad_weight_g8_params *p, const smg_vnni_outer *of, int32_t o,
                                       int added, int32_t *sums, int32_t row) {
    int32_t at[SMG_VNNI_SIX];
    __m512i out[SMG_VNNI_SIX * SMG_VNNI_PARTS];
    for (int32_t n = 0; n < SMG_VNNI_SIX; n++) at[n] = smg_vnni_place(o + n);
    for (int32_t g = 0; g < of->groups; g++) {
        smg_vnni_multiply_outer(of, g, at, 128 + p->x_zero, out);
        for (int32_t n = 0; n < SMG_VNNI_SIX; n++) {
            __m512i *x = out + n * SMG_VNNI_PARTS;
            smg_vnni_turn_quarters(x, x + 1, x + 2, x + 3);
            for (int32_t k = 0; k < SMG_VNNI_PARTS && g * 64 + k * SMG_LANES < of->inner; k++) {
                const __mmask16 some = smg_vnni_first(smg_min(SMG_LANES, of->inner - g * 64 - k * SMG_LANES));
                int32_t *to = sums + n * row + g * 64 + k * SMG_LANES;
                if (added) x[k] = _mm512_add_epi32(x[k], _mm512_maskz_loadu_epi32(some, to));
                _mm512_mask_storeu_epi32(to, some, x[k]);
            }
        }
    }
}

/* of->sums of up to SMG_VNNI_LAID outputs from `first` on, of->inner each, over all pixels. */
static inline void smg_vnni_outer_all(const smg_conv2d_grad_weight_g8_params *p, const int8_t *x, const int8_t *dy,
                                      int32_t first, smg_vnni_outer *of) {
    const int32_t pixels = p->y_h * p->y_w, count = smg_min(SMG_VNNI_LAID, p->y_c - first);
    for (int32_t n = 0; n < pixels; n += 4 * of->most) {
        if (pixels > 4 * of->most || first == 0) smg_vnni_lay_inputs(p, x, n, of);
        smg_vnni_lay_outputs(p, dy, first, of);
        for (int32_t o = 0; o < count; o += SMG_VNNI_SIX)
            smg_vnni_outer_sums(p, of, o, n > 0, of->sums + o * of->inner, of->inner);
    }
}
#endif

#endif
