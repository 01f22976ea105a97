/* The gradient of a convolution's input. Behind a mask, where a 1x1 convolution's gradient is zero at most places, the
 * others are dot products of int16 pairs; elsewhere rows of weights are summed up (see accumulate.c), or, where few
 * gradients are zero, multiplied as a convolution's are (see grad_tiles.h). */
#include "smidgen_training.h"

#include <arm_acle.h>

#include "columns.h"
#include "grad_any.h"
#include "grad_tiles.h"
#include "noinline.h"
#include "working_packed.h"

/* Channels packed at once, and outputs multiplied at once. */
enum { LANES = SMG_MASKED_LANES, STRETCH = SMG_MASKED_STRETCH };

static inline uint32_t load(const int8_t *from) {
    uint32_t word;
    __builtin_memcpy(&word, from, sizeof word);
    return word;
}

static inline int16x2_t even_bytes(uint32_t x) { return __sxtb16((int8x4_t)x); }
static inline int16x2_t odd_bytes(uint32_t x) { return __sxtb16((int8x4_t)(x >> 8 | x << 24)); }

/* `count` bytes as int16, in fours 0 2 1 3, filled up with zeros to `length`. */
static void widen(const int8_t *from, int32_t count, int32_t length, int16x2_t *to) {
    int32_t i = 0;
    for (; i + 4 <= count; i += 4, to += 2) {
        const uint32_t word = load(from + i);
        to[0] = even_bytes(word);
        to[1] = odd_bytes(word);
    }
    for (; i < length; i += 4, to += 2) {
        uint32_t word = 0;
        for (int32_t k = 0; i + k < count; k++) word |= (uint32_t)(uint8_t)from[i + k] << (8 * k);
        to[0] = even_bytes(word);
        to[1] = odd_bytes(word);
    }
}

/* Four columns of a matrix, widened as above, four rows at a time, until the first column ends; columns lie `apart`
 * bytes from each other. */
static void pack_rows(const int8_t *w, int32_t step, int16x2_t *to, int32_t apart, const int16x2_t *end) {
    register uint32_t r0 __asm__("r0") = (uint32_t)(uintptr_t)w, r2 __asm__("r2") = (uint32_t)(uintptr_t)to;
    register int32_t r1 __asm__("r1") = step, r3 __asm__("r3") = apart;
    register uint32_t r12 __asm__("r12") = (uint32_t)(uintptr_t)end;
    __asm__ volatile(
        "push {r4-r11}\n add r10, r2, r3, lsl #1\n add r11, r10, r3\n add r3, r2, r3\n"
        "1: ldr r4, [r0]\n ldr r5, [r0, r1]\n add r0, r0, r1, lsl #1\n ldr r6, [r0]\n ldr r7, [r0, r1]\n"
        "add r0, r0, r1, lsl #1\n pkhbt r8, r4, r6, lsl #16\n pkhbt r9, r5, r7, lsl #16\n"
        "pkhtb r4, r6, r4, asr #16\n pkhtb r5, r7, r5, asr #16\n"
        "sxtb16 r6, r8\n sxtb16 r7, r9\n strd r6, r7, [r2], #8\n"
        "sxtb16 r6, r8, ror #8\n sxtb16 r7, r9, ror #8\n strd r6, r7, [r3], #8\n"
        "sxtb16 r6, r4\n sxtb16 r7, r5\n strd r6, r7, [r10], #8\n"
        "sxtb16 r6, r4, ror #8\n sxtb16 r7, r5, ror #8\n strd r6, r7, [r11], #8\n"
        "cmp r2, r12\n bne 1b\n pop {r4-r11}\n"
        : "+r"(r0), "+r"(r1), "+r"(r2), "+r"(r3)
        : "r"(r12)
        : "cc", "memory");
}

/* Where a halfword lies in a column that is widened as above. */
static inline int32_t place(int32_t i) { return (i & ~3) + (i & 1) * 2 + (i >> 1 & 1); }

/* The columns [c, c + LANES) of the weights, `length` halfwords each: where one is trained, its own weights. */
static void pack(smg_weights w, int32_t rows, int32_t step, int32_t c, int32_t length, int16x2_t *to) {
    const int32_t whole = rows & ~3;
    if (whole) pack_rows(w.data + c, step, to, 2 * length, to + whole / 2);
    for (int32_t lane = 0; lane < LANES; lane++)
        for (int32_t i = whole; i < length; i++)
            ((int16_t *)to)[lane * length + place(i)] = i < rows ? w.data[i * step + c + lane] : 0;
    for (int32_t n = 0; n < w.count; n++) {
        const int32_t lane = w.channel[n] - c;
        for (int32_t i = 0; lane >= 0 && lane < LANES && i < rows; i++)
            ((int16_t *)to)[lane * length + place(i)] = w.trained[i * w.count + n];
    }
}

/* Four columns and all elements, at the offsets the assembly names. */
typedef struct {
    const int16x2_t *columns;
    int32_t bytes; /* of a column, and of an element's gradients */
    const int16x2_t *dy, *dy_end;
    int32_t *sums;
    const uint8_t *mask;
    int32_t mask_step, mask_shift;
} dots;

/* Eight products, the columns' at r0 with the gradients' at r1, added to r12. */
#define EIGHT                                                                                  \
    "ldm r0!, {r4-r7}\n ldm r1!, {r8-r11}\n smlad r12, r4, r8, r12\n smlad r12, r5, r9, r12\n" \
    "smlad r12, r6, r10, r12\n smlad r12, r7, r11, r12\n"
/* A lane that the mask stops is stepped over; one that it lets pass is summed up until its column ends at r2, an odd
 * eight first, and so steps to the next. */
#define LANE(bit, pass, next) "tst r3, #" bit "\n bne " pass "f\n add r0, r0, r3, lsr #8\n" next ": "
#define PASS(pass, loop, odd, next, at)                                                                             \
    pass ": ldr r1, [lr, #8]\n add r2, r0, r3, lsr #8\n mov r12, #0\n tst r3, #4096\n bne " odd "f\n" loop ": " EIGHT \
    odd ": " EIGHT "cmp r0, r2\n bne " loop "b\n ldr r4, [lr, #16]\n str r12, [r4, #" at "]\n b " next "b\n"

/* The dot products that the mask lets pass; the other sums are 0. r3 holds the mask's four bits and, above its lowest
 * byte, the bytes of a column; r0 walks over the columns, lr points to the dots. */
static void multiply(dots *all) {
    register uint32_t r0 __asm__("r0") = (uint32_t)(uintptr_t)all;
    __asm__ volatile(
        "push {r4-r11, lr}\n mov lr, r0\n"
        "1: ldr r4, [lr, #20]\n ldrd r5, r6, [lr, #24]\n ldrb r3, [r4]\n add r4, r4, r5\n str r4, [lr, #20]\n"
        "lsr r3, r3, r6\n ands r3, r3, #15\n"
        "ldr r8, [lr, #16]\n mov r4, #0\n mov r5, #0\n strd r4, r5, [r8]\n strd r4, r5, [r8, #8]\n beq 5f\n"
        "ldrd r0, r6, [lr]\n orr r3, r3, r6, lsl #8\n"
        LANE("1", "20", "30") LANE("2", "21", "31") LANE("4", "22", "32") LANE("8", "23", "33")
        "5: ldr r4, [lr, #16]\n add r4, r4, #32\n str r4, [lr, #16]\n"
        "ldr r6, [lr, #4]\n ldrd r4, r5, [lr, #8]\n add r4, r4, r6\n str r4, [lr, #8]\n cmp r4, r5\n bne 1b\n b 6f\n"
        PASS("20", "40", "50", "30", "0") PASS("21", "41", "51", "31", "4")
        PASS("22", "42", "52", "32", "8") PASS("23", "43", "53", "33", "12")
        "6: pop {r4-r11, lr}\n"
        : "+r"(r0)
        :
        : "r1", "r2", "r3", "r12", "cc", "memory");
}

/* `count` elements, the first at `index` in the tensor, of a 1x1 convolution behind a mask. */
static SMG_NOINLINE void masked(const smg_conv2d_grad_g8_params *p, smg_rounding *r, const int8_t *dy, smg_weights w,
                                const uint8_t *mask, int32_t index, int32_t count, int8_t *dx, int32_t *sums) {
    const int32_t length = (p->y_c + STRETCH - 1) / STRETCH * STRETCH, half = length / 2;
    int16x2_t *columns = (int16x2_t *)(sums + count * SMG_COLUMNS), *wide = columns + LANES * half;
    for (int32_t i = 0; i < count; i++) widen(dy + i * p->y_c, p->y_c, length, wide + i * half);
    for (int32_t c = 0; c < p->x_c; c += SMG_COLUMNS) {
        for (int32_t lane = 0; lane < SMG_COLUMNS; lane += LANES) {
            dots all = {columns, 2 * length, wide, wide + count * half, sums + lane,
                        mask + (index + c) / 8, p->x_c / 8, lane};
            pack(w, p->y_c, p->x_c, c + lane, length, columns);
            multiply(&all);
        }
        smg_round_columns(r, sums, count, c, index + c, p->x_c, 0, dx + index + c); /* 0 stays 0: no mask is needed */
    }
}

/* Behind a mask, some elements at a time. */
static void masked_parts(const smg_conv2d_grad_g8_params *p, smg_rounding *r, const int8_t *dy, smg_weights w,
                         const uint8_t *mask, int8_t *dx, void *scratch) {
    const int32_t length = (p->y_c + STRETCH - 1) / STRETCH * STRETCH, pixels = p->x_h * p->x_w;
    const int32_t most = smg_clamp(SMG_MASKED_WIDENED / length, 1, SMG_MASKED_PIXELS);
    const int32_t parts = (pixels + most - 1) / most, part = (pixels + parts - 1) / parts;
    for (int32_t at = 0; at < pixels; at += part)
        masked(p, r, dy + at * p->y_c, w, mask, at * p->x_c, smg_min(part, pixels - at), dx, scratch);
}

/* Working memory is there where a 1x1 convolution has a use for it. */
void smg_conv2d_grad_g8(const smg_conv2d_grad_g8_params *p, const int8_t *dy, const smg_weights *w,
                        const uint8_t *mask, const int32_t *step_state, int8_t *dx, int32_t *peak_bits, void *scratch) {
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    if (scratch && !mask && smg_has_tiles(p) && smg_is_dense(p, dy))
        smg_grad_tiles(p, &r, dy, *w, dx, scratch);
    else if (scratch && mask)
        masked_parts(p, &r, dy, *w, mask, dx, scratch);
    else
        smg_conv2d_grad_any(p, &r, dy, *w, mask, dx);
    *peak_bits = (int32_t)r.peak_bits;
}
