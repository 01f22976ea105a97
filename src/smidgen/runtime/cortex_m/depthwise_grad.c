/* The gradient of a depthwise convolution's input, eight channels at a time: each channel's gradients are laid out as
 * int16, spread and bordered with zeros, so that what an element gets is a dot product with the channel's weights, row
 * by row, in reversed order. Elements that the mask stops are left out. */
#include "smidgen_training.h"

#include <arm_acle.h>

#include "columns.h"
#include "grad_any.h"
#include "noinline.h"
#include "slide_grad.h"
#include "squares.h"
#include "squares_grad.h"
#include "window.h"
#include "working_packed.h"

/* Eight channels' weights, `taps` halfwords to a channel, and their gradients, `row` halfwords to a row of a channel,
 * `plane` to a channel. */
typedef struct {
    int16_t *weights, *dy;
    int32_t taps, row, plane;
} block;

/* One channel's taps, which lie `step` bytes from each other, in rows of `wide` halfwords, each row backwards. */
static void lay_taps(const smg_depthwise_grad_g8_params *p, const int8_t *from, int32_t step, int32_t wide,
                     int16_t *row) {
    for (int32_t i = 0; i < p->k_h; i++, row += wide) {
        row[wide - 1] = 0;
        for (int16_t *to = row + p->k_w; to != row; from += step) *--to = *from;
    }
}

static void lay_weights(const block *b, const smg_depthwise_grad_g8_params *p, smg_weights w, int32_t c) {
    const int32_t wide = (p->k_w + 1) / 2 * 2;
    for (int32_t n = 0; n < SMG_COLUMNS; n++)
        lay_taps(p, w.data + c + n, p->y_c, wide, b->weights + n * b->taps);
    for (int32_t i = 0; i < w.count; i++)
        if (w.channel[i] >= c && w.channel[i] < c + SMG_COLUMNS)
            lay_taps(p, w.trained + i, w.count, wide, b->weights + (w.channel[i] - c) * b->taps);
}

/* The outputs [from, to) of a row that belong to elements at all. */
static smg_taps useful(const smg_depthwise_grad_g8_params *p) {
    return smg_taps_inside(p->k_w - 1 - p->pad_w, p->y_w, p->stride_w, p->x_w + p->k_w - 1);
}

/* Gradients of four channels: from pixels that lie `step` bytes apart to four planes that lie `plane` bytes apart,
 * until the first has got to `end`; there they lie `apart` bytes from each other. */
static void lay_row(const int8_t *from, int32_t step, int16_t *to, int32_t plane, int32_t apart, const int16_t *end) {
    register uint32_t r0 __asm__("r0") = (uint32_t)(uintptr_t)from, r2 __asm__("r2") = (uint32_t)(uintptr_t)to;
    register int32_t r1 __asm__("r1") = step, r3 __asm__("r3") = plane;
    register uint32_t r12 __asm__("r12") = (uint32_t)apart, lr __asm__("lr") = (uint32_t)(uintptr_t)end;
    __asm__ volatile(
        "push {r4-r7}\n"
        "1: ldr r4, [r0]\n add r0, r0, r1\n sxtb16 r5, r4\n sxtb16 r6, r4, ror #8\n strh r5, [r2]\n"
        "add r7, r2, r3\n strh r6, [r7]\n lsr r5, r5, #16\n strh r5, [r7, r3]\n add r7, r7, r3\n lsr r6, r6, #16\n"
        "strh r6, [r7, r3]\n add r2, r2, r12\n cmp r2, lr\n bne 1b\n pop {r4-r7}\n"
        : "+r"(r0), "+r"(r2)
        : "r"(r1), "r"(r3), "r"(r12), "r"(lr)
        : "cc", "memory");
}

/* Eight channels' gradients. Those of an output lie where the window of the first element they belong to begins. */
static void lay_gradients(const block *b, const smg_depthwise_grad_g8_params *p, const int8_t *dy) {
    const smg_taps there = useful(p);
    for (int32_t oy = 0; oy < p->y_h && there.from < there.to; oy++) {
        const int8_t *from = dy + (oy * p->y_w + there.from) * p->y_c;
        int16_t *row = b->dy + oy * b->row + p->k_w - 1 - p->pad_w, *to = row + there.from * p->stride_w;
        int16_t *end = row + there.to * p->stride_w, *further = to + 4 * b->plane;
        lay_row(from, p->y_c, to, 2 * b->plane, 2 * p->stride_w, end);
        lay_row(from + 4, p->y_c, further, 2 * b->plane, 2 * p->stride_w, end + 4 * b->plane);
    }
}

/* Elements of a row, at the offsets the assembly names: the first channel's gradients of the last row of outputs that
 * saw them and the weights with which, both with the bytes to the next channel; how many such rows there are, and the
 * bytes to the one above and to its weights. */
typedef struct {
    const int16_t *dy;
    int32_t dy_step;
    const int16_t *weights;
    int32_t weights_step, rows, up, down;
    const uint8_t *mask;
    int32_t mask_step;
    int32_t *sums, *sums_end;
} elements;

/* The dot products that the mask lets pass; the other sums are 0. r3 holds the bits left, r11 the sums, lr points to
 * the elements; LOAD loads a row's weights, ROW multiplies each with the pair r8 holds. */
#define ELEMENTS(LOAD, ROW)                                                                                 \
    "push {r4-r11, lr}\n mov lr, r0\n ldr r11, [lr, #36]\n ldrd r9, r10, [lr, #20]\n"                       \
    "1: ldrd r4, r5, [lr, #28]\n ldrb r3, [r4]\n add r4, r4, r5\n str r4, [lr, #28]\n"                      \
    "mov r4, #0\n mov r5, #0\n strd r4, r5, [r11]\n strd r4, r5, [r11, #8]\n strd r4, r5, [r11, #16]\n"     \
    "strd r4, r5, [r11, #24]\n cmp r3, #0\n beq 4f\n"                                                       \
    "2: rbit r4, r3\n clz r4, r4\n sub r5, r3, #1\n and r3, r3, r5\n ldm lr, {r0, r1, r5, r6}\n"            \
    "mla r0, r4, r1, r0\n mla r1, r4, r6, r5\n add r4, r11, r4, lsl #2\n push {r4}\n ldr r2, [lr, #16]\n"   \
    "mov r12, #0\n"                                                                                         \
    "3: " LOAD "\n add r1, r1, r10\n" ROW "sub r0, r0, r9\n subs r2, r2, #1\n bne 3b\n"      \
    "pop {r4}\n str r12, [r4]\n cmp r3, #0\n bne 2b\n"                                                      \
    "4: ldr r4, [lr]\n add r4, r4, #2\n str r4, [lr]\n add r11, r11, #32\n ldr r5, [lr, #40]\n cmp r11, r5\n" \
    "bne 1b\n pop {r4-r11, lr}\n"
#define PAIR(w, at) "ldr r8, [r0, #" at "]\n smlad r12, r8, " w ", r12\n"
#define RUN(...) \
    __asm__ volatile(ELEMENTS(__VA_ARGS__) : "+r"(r0) : : "r1", "r2", "r3", "r12", "cc", "memory")

static void multiply(elements *all, int32_t words) {
    register uint32_t r0 __asm__("r0") = (uint32_t)(uintptr_t)all;
    if (words == 1)
        RUN("ldr r4, [r1]", PAIR("r4", "0"));
    else if (words == 2)
        RUN("ldm r1, {r4, r5}", PAIR("r4", "0") PAIR("r5", "4"));
    else if (words == 3)
        RUN("ldm r1, {r4, r5, r6}", PAIR("r4", "0") PAIR("r5", "4") PAIR("r6", "8"));
    else
        RUN("ldm r1, {r4, r5, r6, r7}", PAIR("r4", "0") PAIR("r5", "4") PAIR("r6", "8") PAIR("r7", "12"));
}

/* The sums of `count` elements of row iy from column ix on, of the channels that the mask lets pass. */
static void sum_up(const block *b, const smg_depthwise_grad_g8_params *p, int32_t iy, int32_t ix, int32_t count,
                   const uint8_t *mask, int32_t mask_step, int32_t *sums) {
    static const uint8_t nothing = 0;
    const int32_t last = iy + p->pad_h, beyond = smg_max(last / p->stride_h - p->y_h + 1, 0), words = (p->k_w + 1) / 2;
    const int32_t i0 = last % p->stride_h + beyond * p->stride_h, oy = last / p->stride_h - beyond;
    const int32_t rows = i0 < p->k_h ? smg_min((p->k_h - 1 - i0) / p->stride_h, oy) + 1 : 0;
    elements all = {b->dy + oy * b->row + ix, 2 * b->plane, b->weights + i0 * 2 * words, 2 * b->taps,
                    rows, 2 * b->row, 4 * words * p->stride_h,
                    rows > 0 ? mask : &nothing, rows > 0 ? mask_step : 0, sums, sums + count * SMG_COLUMNS};
    multiply(&all, words);
}

static SMG_NOINLINE void eight_channels(const smg_depthwise_grad_g8_params *p, smg_rounding *r, const block *b, int32_t c,
                                        const uint8_t *mask, int8_t *dx) {
    static const uint8_t everything = 255;
    int32_t sums[SMG_SUMS];
    for (int32_t iy = 0; iy < p->x_h; iy++) {
        for (int32_t ix = 0, count; ix < p->x_w; ix += count) {
            const int32_t index = (iy * p->x_w + ix) * p->x_c + c, step = mask ? p->x_c / 8 : 0;
            const uint8_t *bits = mask ? mask + index / 8 : &everything;
            count = smg_min(SMG_ELEMENTS, p->x_w - ix);
            sum_up(b, p, iy, ix, count, bits, step, sums);
            smg_round_columns(r, sums, count, c, index, p->x_c, 0, dx + index); /* 0 stays 0: no mask is needed */
        }
    }
}

/* Whether the working memory is for what is done here. */
static int regular(const smg_depthwise_grad_g8_params *p) {
    const int32_t largest = p->x_h == p->y_h && p->x_w == p->y_w ? SMG_SPREAD_LARGEST : SMG_SPREAD_LARGEST_APART;
    return p->x_c == p->y_c && p->x_c % SMG_COLUMNS == 0 && p->dilation_h == 1 && p->dilation_w == 1 &&
           p->k_w <= SMG_SPREAD_WIDEST && p->x_h * p->x_w <= largest;
}

void smg_depthwise_grad_g8(const smg_depthwise_grad_g8_params *p, const int8_t *dy, const smg_weights *w,
                           const uint8_t *mask, const int32_t *step_state, int8_t *dx, int32_t *peak_bits,
                           void *scratch) {
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    if (regular(p) && SMG_IS_SQUARE(p)) {
        smg_square_gradients(p, &r, dy, *w, mask, dx, scratch);
    } else if (regular(p) && smg_grad_slides(p)) {
        smg_slide_gradients(p, &r, dy, *w, mask, dx, scratch);
    } else if (regular(p)) {
        const int32_t taps = p->k_h * ((p->k_w + 1) / 2) * 2, row = p->x_w + p->k_w;
        const smg_weights own = *w;
        int16_t *weights = scratch;
        const block b = {weights, weights + SMG_COLUMNS * taps, taps, row, row * p->y_h};
        for (int32_t i = 0; i < SMG_COLUMNS * b.plane; i++) b.dy[i] = 0;
        for (int32_t c = 0; c < p->x_c; c += SMG_COLUMNS) {
            lay_weights(&b, p, own, c);
            lay_gradients(&b, p, dy + c);
            eight_channels(p, &r, &b, c, mask, dx);
        }
    } else {
        smg_depthwise_grad_any(p, &r, dy, *w, mask, dx, scratch);
    }
    *peak_bits = (int32_t)r.peak_bits;
}
