/* The gradient of a 1x1 convolution's weights in the words of AVX-512 with VNNI: six outputs' weights to sixty-four inputs
 * at once, four pixels each instruction. */
#ifndef SMIDGEN_CONV2D_WEIGHTS_VNNI_H
#define SMIDGEN_CONV2D_WEIGHTS_VNNI_H

#include "smidgen_training.h"

#include "six_vnni.h"

#if defined(SMG_VNNI)
/* Outputs whose gradients are laid out together; quads of pixels, vectors of inputs and sixty-fours of
 * input channels that the stack holds. */
enum { SMG_VNNI_LAID = 60, SMG_VNNI_DEPTH = 128, SMG_VNNI_INPUTS = 1024, SMG_VNNI_WIDTH = 16 };

typedef struct {
    int32_t quads, groups;
    __m512i x[SMG_VNNI_INPUTS];                     /* [group][quad][part], raised */
    __m512i dy[SMG_VNNI_DEPTH][SMG_VNNI_PARTS];     /* of SMG_VNNI_LAID outputs */
    int32_t total[SMG_VNNI_PARTS * SMG_LANES];      /* their sums, in the same order */
    int32_t sums[SMG_VNNI_SIX * SMG_VNNI_WIDTH * 64];
} smg_vnni_outer;

/* Whether every pixel of the input meets that of the output, and all of them fit. */
static inline int smg_vnni_outer_fits(const smg_conv2d_grad_weight_g8_params *p) {
    const int32_t quads = (p->y_h * p->y_w + 3) / 4, groups = (p->x_c + 63) / 64;
    return p->groups == 1 && p->k_h * p->k_w == 1 && p->stride_h * p->stride_w == 1 && p->pad_h + p->pad_w == 0 &&
           p->x_h == p->y_h && p->x_w == p->y_w && quads <= SMG_VNNI_DEPTH && groups <= SMG_VNNI_WIDTH &&
           groups * quads * SMG_VNNI_PARTS <= SMG_VNNI_INPUTS;
}

/* Channels [first, first + count) of four pixels of c channels from pixel n of `pixels` on; zeros past the last. */
static inline void smg_vnni_four_pixels(const int8_t *from, int32_t n, int32_t pixels, int32_t c, int32_t first,
                                        int32_t count, __m512i *four) {
    const __mmask64 some = smg_vnni_bytes(count);
    for (int32_t i = 0; i < 4; i++)
        four[i] = _mm512_maskz_loadu_epi8(n + i < pixels ? some : 0, from + smg_min(n + i, pixels - 1) * c + first);
}

static inline void smg_vnni_lay_inputs(const smg_conv2d_grad_weight_g8_params *p, const int8_t *x,
                                       smg_vnni_outer *of) {
    const int32_t pixels = p->y_h * p->y_w;
    __m512i four[4], *to = of->x;
    of->quads = (pixels + 3) / 4;
    of->groups = (p->x_c + 63) / 64;
    for (int32_t g = 0; g < of->groups; g++)
        for (int32_t n = 0; n < pixels; n += 4, to += SMG_VNNI_PARTS) {
            smg_vnni_four_pixels(x, n, pixels, p->x_c, g * 64, smg_min(64, p->x_c - g * 64), four);
            for (int32_t i = 0; i < 4; i++) four[i] = _mm512_xor_si512(smg_vnni_raise(), four[i]);
            smg_vnni_interleave(four, to);
        }
}

/* The gradients of the outputs from `first` on. */
static inline void smg_vnni_lay_outputs(const smg_conv2d_grad_weight_g8_params *p, const int8_t *dy, int32_t first,
                                        smg_vnni_outer *of) {
    const int32_t pixels = p->y_h * p->y_w, count = smg_min(SMG_VNNI_LAID, p->y_c - first);
    __m512i four[4], total[SMG_VNNI_PARTS];
    for (int32_t k = 0; k < SMG_VNNI_PARTS; k++) total[k] = _mm512_setzero_si512();
    for (int32_t quad = 0; quad < of->quads; quad++) {
        smg_vnni_four_pixels(dy, quad * 4, pixels, p->y_c, first, count, four);
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

/* sums[output][input] of six outputs from o on, where o is a multiple of six and outputs are taken in order; rows are
 * `row` sums apart. Up to 63 sums past the last are written, too. */
static inline void smg_vnni_outer_sums(const smg_conv2d_grad_weight_g8_params *p, const int8_t *dy, int32_t o,
                                       smg_vnni_outer *of, int32_t *sums, int32_t row) {
    int32_t at[SMG_VNNI_SIX];
    __m512i out[SMG_VNNI_SIX * SMG_VNNI_PARTS];
    if (o % SMG_VNNI_LAID == 0) smg_vnni_lay_outputs(p, dy, o, of);
    for (int32_t n = 0; n < SMG_VNNI_SIX; n++) at[n] = smg_vnni_place(o % SMG_VNNI_LAID + n);
    for (int32_t g = 0; g < of->groups; g++) {
        smg_vnni_multiply_outer(of, g, at, 128 + p->x_zero, out);
        for (int32_t n = 0; n < SMG_VNNI_SIX; n++) {
            __m512i *x = out + n * SMG_VNNI_PARTS;
            smg_vnni_turn_quarters(x, x + 1, x + 2, x + 3);
            for (int32_t k = 0; k < SMG_VNNI_PARTS; k++)
                _mm512_storeu_si512(sums + n * row + g * 64 + k * SMG_LANES, x[k]);
        }
    }
}
#endif

#endif
