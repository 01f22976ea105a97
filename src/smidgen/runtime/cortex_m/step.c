/* What all updates share: sums become rounded steps, steps move weights and their buffers. */
#include <arm_acle.h>

#include "noinline.h"
#define SMG_APART SMG_NOINLINE
#define SMG_OWN_MOVE
#include "step_moves.h"
#include "unroll.h"

static inline int32_t limit(int32_t x) { return smg_clamp(x, -MOST, MOST); }

/* a - b, saturated: the limits of 32 bits lie beyond those of steps. */
static inline int32_t minus(int32_t a, int32_t b) { return limit(__qsub(a, b)); }

/* v / 2^(deep + shift) rounded at random: a carry out of the fraction, moved up to the word, raises what is left. A
 * register's shift by 32 leaves nothing, so nothing is rounded where nothing is divided. */
static inline int32_t divide(int32_t v, int32_t deep, int32_t shift, uint32_t word) {
    int32_t quotient;
    uint32_t fraction;
    v >>= deep;
    __asm__("lsl %1, %2, %4\n asr %0, %2, %3\n adds %1, %1, %5\n adc %0, %0, #0"
            : "=&r"(quotient), "=&r"(fraction)
            : "r"(v), "r"(shift), "r"(32 - shift), "r"(word)
            : "cc");
    return quotient;
}

/* v * 2^up, saturated, for up > 0. */
static inline int32_t raise(int32_t v, uint32_t up) {
    const int32_t by = up < 30 ? (int32_t)up : 30, most = MOST >> by;
    return smg_shift_left(smg_clamp(v, -most, most), by);
}

/* Out of line: once in flash. */
static SMG_NOINLINE smg_factor factor_of(const smg_step *s, int32_t c) { return smg_factor_of(s, c); }

/* sum * mantissa * 2^-t; a quotient beyond 2^30 there is only where nothing is divided. */
static int32_t delta(const smg_step *s, int32_t sum, int32_t mantissa, int32_t t, uint32_t index) {
    const int32_t v = smg_high_mul(smg_shift_left(sum, s->lift), mantissa);
    if (t < 0) return raise(v, 0u - (uint32_t)t);
    return limit(divide(v, smg_clamp(t - 31, 0, 31), smg_min(t, 31), smg_word(s->key, index)));
}

/* Steps of one channel's weights, at the offsets the assembly names. */
typedef struct {
    const int32_t *sums;
    int32_t *steps;
    int32_t lift, mantissa, deep, shift, rest; /* rest = 32 - shift */
    uint32_t word, next;                       /* the key of a word, and its step */
    const int32_t *end;                        /* of the sums */
    uint32_t first, second;                    /* the factors of smg_mix */
} run;

/* All of them: SMMULR of twice a number is smg_high_mul, and then as divide says; r12 is a word's key. */
static void run_steps(const run *all) {
    register uint32_t r0 __asm__("r0") = (uint32_t)(uintptr_t)all;
    __asm__ volatile(
        "push {r4-r11, lr}\n mov lr, r0\n ldm lr!, {r0, r2-r7}\n ldr r12, [lr]\n ldrd r9, r10, [lr, #12]\n"
        "1: ldr r8, [r0], #4\n lsl r8, r8, r3\n smmulr r8, r8, r4\n asr r8, r8, r5\n"
        "eor r11, r12, r12, lsr #16\n mul r11, r11, r9\n eor r11, r11, r11, lsr #15\n mul r11, r11, r10\n"
        "eor r11, r11, r11, lsr #16\n lsl r1, r8, r7\n asr r8, r8, r6\n adds r11, r11, r1\n adc r8, r8, #0\n"
        "str r8, [r2], #4\n ldrd r11, r1, [lr, #4]\n add r12, r12, r11\n cmp r0, r1\n bne 1b\n"
        "pop {r4-r11, lr}\n"
        : "+r"(r0)
        :
        : "r1", "r2", "r3", "r12", "cc", "memory");
}

/* The steps of `count` weights of one channel, none where there are no gradients; of as many channels, each with a factor
 * of its own. */
static void channel_steps(const smg_step *s, const int32_t *sums, int32_t count, int32_t c, int32_t index,
                          int32_t *steps) {
    int32_t any = 0;
    for (int32_t i = 0; i < count; i++) any |= steps[i] = sums[i];
    if (!any) return;
    const smg_factor f = factor_of(s, c);
    const int32_t mantissa = mantissa_of(s, f), t = shift_of(s, f), shift = smg_clamp(t, 0, 31);
    if (t < 0 || s->lift == 0) { /* sums that were raised can be so by one bit more */
        for (int32_t i = 0; i < count; i++) steps[i] = delta(s, sums[i], mantissa, t, (uint32_t)(index + i));
    } else {
        const run all = {sums, steps, s->lift + 1, mantissa, smg_clamp(t - 31, 0, 31), shift, 32 - shift,
                         (uint32_t)index * 0x9E3779B9u + s->key, 0x9E3779B9u, sums + count, 0x7FEB352Du, 0x846CA68Bu};
        run_steps(&all);
    }
}

static SMG_NOINLINE void channels_steps(const smg_step *s, const int32_t *sums, int32_t count, int32_t c, int32_t index,
                                        int32_t *steps) {
    for (int32_t i = 0; i < count; i++) {
        const smg_factor f = factor_of(s, c + i);
        steps[i] = delta(s, sums[i], mantissa_of(s, f), shift_of(s, f), (uint32_t)(index + i));
    }
}

/* A weight and its fraction of `bits` bits after a step, as one number: the int8 above the fraction. */
static inline int32_t moved(int32_t w, int32_t fraction, int32_t step, int32_t bits) {
    const int32_t half = (1 << bits) >> 1, most = 127 * (1 << bits);
    return smg_clamp(w * (1 << bits) + fraction - half - step, -most, most) + half;
}

/* Move weights by steps in units of their last bit: of `bits` bits below the int8, kept beside it lowest first. */
static SMG_NOINLINE void move(int8_t *w, uint8_t *fraction, int32_t index, int32_t bits, const int32_t *steps,
                              int32_t count) {
    const int32_t mask = (1 << bits) - 1, places = bits == 4 ? 1 : 2; /* log2 of the weights to a byte */
    for (int32_t i = 0; i < count; i++) {
        uint8_t *byte = fraction + ((index + i) >> places);
        const int32_t at = ((index + i) & ((1 << places) - 1)) * bits;
        const int32_t now = moved(w[i], *byte >> at & mask, steps[i], bits);
        w[i] = (int8_t)(now >> bits);
        *byte = (uint8_t)((*byte & ~(mask << at)) | (now & mask) << at);
    }
}

/* The same for an even number of weights of 12 bits, the first in the lower half of its byte. */
static SMG_NOINLINE void move_twelve(int8_t *w, uint8_t *fraction, const int32_t *steps, int32_t count) {
    for (const int8_t *end = w + count; w != end; w += 2, steps += 2, fraction++) {
        const int32_t first = moved(w[0], *fraction & 15, steps[0], 4);
        const int32_t second = moved(w[1], *fraction >> 4, steps[1], 4);
        w[0] = (int8_t)(first >> 4);
        w[1] = (int8_t)(second >> 4);
        *fraction = (uint8_t)((first & 15) | second << 4);
    }
}

/* The same for weights that are their int8 alone. The builtin itself, for gcc warns of what its own __ssat converts. */
static SMG_NOINLINE void move_whole(int8_t *w, const int32_t *steps, int32_t count) {
    SMG_UNROLL
    for (int32_t i = 0; i < count; i++) w[i] = (int8_t)smg_max((int32_t)__builtin_arm_ssat(w[i] - steps[i], 8), -127);
}

void smg_step_weights(const smg_step *s, const int32_t *sums, int32_t count, int32_t c, int32_t c_step, int32_t index,
                      int8_t *w, uint8_t *fraction, int16_t *buffer) {
    int32_t steps[BLOCK];
    for (int32_t start = 0; start < count; start += BLOCK) {
        const int32_t length = smg_min(BLOCK, count - start), first = index + start;
        if (c_step)
            channels_steps(s, sums + start, length, c + start, first, steps);
        else
            channel_steps(s, sums + start, length, c, first, steps);
        if (buffer) through_buffer(s, steps, length, first, buffer + first);
        if (fraction && s->fraction_bits == 4 && first % 2 == 0 && length % 2 == 0)
            move_twelve(w + first, fraction + first / 2, steps, length);
        else if (fraction)
            move(w + first, fraction, first, s->fraction_bits, steps, length);
        else
            move_whole(w + first, steps, length);
    }
}

/* What moves a bias; its buffer, where it has one, goes on to the next. Nothing is never rounded up. */
static int32_t bias_step(const smg_step *s, int32_t sum, int32_t i, int32_t *buffer) {
    if (sum == 0 && !buffer) return 0;
    const smg_factor f = factor_of(s, i);
    const int32_t step = delta(s, sum, mantissa_of(s, f), shift_of(s, f), (uint32_t)i);
    if (!buffer) return step;
    const smg_ruled ruled = smg_follow_rule(s, __qadd(buffer[i], step), MOST, smg_word(s->buffer_key, (uint32_t)i));
    buffer[i] = ruled.stays;
    return ruled.moves;
}

void smg_step_biases(const smg_step *s, const int32_t *sums, int32_t count, int32_t *b, int32_t *buffer) {
    for (int32_t i = 0; i < count; i++) {
        const int32_t step = bias_step(s, sums[i], i, buffer);
        b[i] = minus(b[i], step);
    }
}

void smg_step_differences(const smg_step *s, const int32_t *sums, int32_t count, int16_t *difference,
                          int32_t *buffer) {
    for (int32_t i = 0; i < count; i++) { /* a step has 30 bits */
        const int32_t moved = difference[i] - bias_step(s, sums[i], i, buffer);
        difference[i] = (int16_t)smg_clamp(moved, -INT16_MAX, INT16_MAX);
    }
}
