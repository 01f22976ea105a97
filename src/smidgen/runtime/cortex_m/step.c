/* What all updates share: sums become rounded steps, steps move weights and their buffers. */
#include "step.h"

#include <arm_acle.h>

/* Weights whose steps are held on the stack at once. */
enum { BLOCK = 64 };

/* Steps are limited to ± this. */
enum { MOST = 1 << 30 };

static inline int32_t limit(int32_t x) { return smg_clamp(x, -MOST, MOST); }

/* a - b and a + b, saturated: the limits of 32 bits lie beyond those of steps. */
static inline int32_t minus(int32_t a, int32_t b) { return limit(__qsub(a, b)); }
static inline int32_t plus(int32_t a, int32_t b) { return limit(__qadd(a, b)); }

/* smg_high_mul(a / 2, b) for an even a. */
static inline int32_t high_mul_even(int32_t a, int32_t b) {
    int32_t product;
    __asm__("smmulr %0, %1, %2" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

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
static inline int32_t raise(int32_t v, int32_t up) {
    const int32_t by = smg_min(up, 30), most = MOST >> by;
    return smg_shift_left(smg_clamp(v, -most, most), by);
}

static inline int32_t mantissa_of(const smg_step *s, int32_t c) { return smg_high_mul(s->multiplier[c], s->rate); }

static inline int32_t shift_of(const smg_step *s, int32_t c) { return s->lift - s->shift[c] - s->power; }

/* sum * mantissa * 2^-t; a quotient beyond 2^30 there is only where nothing is divided. */
static int32_t delta(const smg_step *s, int32_t sum, int32_t mantissa, int32_t t, uint32_t index) {
    const int32_t v = smg_high_mul(smg_shift_left(sum, s->lift), mantissa);
    if (t < 0) return raise(v, -t);
    return limit(divide(v, smg_clamp(t - 31, 0, 31), smg_min(t, 31), smg_word(s->key, index)));
}

/* The steps of `count` weights of one channel; of as many channels, each with a factor of its own. */
static void channel_steps(const smg_step *s, const int32_t *sums, int32_t count, int32_t c, int32_t index,
                          int32_t *steps) {
    const int32_t mantissa = mantissa_of(s, c), t = shift_of(s, c), lift = s->lift + 1;
    if (t < 0 || lift == 1) { /* sums that were raised can be so by one bit more */
        for (int32_t i = 0; i < count; i++) steps[i] = delta(s, sums[i], mantissa, t, (uint32_t)(index + i));
        return;
    }
    const int32_t deep = smg_clamp(t - 31, 0, 31), shift = smg_min(t, 31);
    uint32_t word = (uint32_t)index * 0x9E3779B9u + s->key;
    for (int32_t i = 0; i < count; i++, word += 0x9E3779B9u)
        steps[i] = divide(high_mul_even(smg_shift_left(sums[i], lift), mantissa), deep, shift, smg_mix(word));
}

static void channels_steps(const smg_step *s, const int32_t *sums, int32_t count, int32_t c, int32_t index,
                           int32_t *steps) {
    for (int32_t i = 0; i < count; i++)
        steps[i] = delta(s, sums[i], mantissa_of(s, c + i), shift_of(s, c + i), (uint32_t)(index + i));
}

/* What a buffer lets through of each step now; the buffer goes on to the next. */
static void through_buffer(const smg_step *s, int32_t *steps, int32_t count, int32_t index, int16_t *buffer) {
    const int32_t down = SMG_BUFFER_BITS - s->fraction_bits, mask = (1 << down) - 1;
    for (int32_t i = 0; i < count; i++) {
        const int32_t full = smg_clamp(buffer[i] + steps[i], -INT16_MAX, INT16_MAX);
        const uint32_t word = smg_word(s->buffer_key, (uint32_t)(index + i));
        const int32_t kept = (full * s->decay + (int32_t)(word >> 16)) >> 16;
        buffer[i] = (int16_t)(s->due ? kept : full);
        steps[i] = s->due ? (full + (int32_t)(word & (uint32_t)mask)) >> down : 0;
    }
}

/* Move weights by steps in units of their last bit: of `bits` bits below the int8, kept beside it lowest first. */
static void move(int8_t *w, uint8_t *fraction, int32_t index, int32_t bits, const int32_t *steps, int32_t count) {
    const int32_t half = (1 << bits) >> 1, mask = (1 << bits) - 1, most = 127 * (1 << bits);
    const int32_t places = bits == 4 ? 1 : 2; /* log2 of the weights to a byte */
    for (int32_t i = 0; i < count; i++) {
        uint8_t *byte = fraction + ((index + i) >> places);
        const int32_t at = ((index + i) & ((1 << places) - 1)) * bits;
        const int32_t whole = w[i] * (1 << bits) + (*byte >> at & mask) - half;
        const int32_t moved = smg_clamp(whole - steps[i], -most, most) + half;
        w[i] = (int8_t)(moved >> bits);
        *byte = (uint8_t)((*byte & ~(mask << at)) | (moved & mask) << at);
    }
}

/* The same for weights that are their int8 alone. */
static void move_whole(int8_t *w, const int32_t *steps, int32_t count) {
    for (int32_t i = 0; i < count; i++) w[i] = (int8_t)smg_max(__ssat(w[i] - steps[i], 8), -127);
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
        if (fraction)
            move(w + first, fraction, first, s->fraction_bits, steps, length);
        else
            move_whole(w + first, steps, length);
    }
}

void smg_step_biases(const smg_step *s, const int32_t *sums, int32_t count, int32_t *b, int32_t *buffer) {
    for (int32_t i = 0; i < count; i++) {
        int32_t step = delta(s, sums[i], mantissa_of(s, i), shift_of(s, i), (uint32_t)i);
        if (buffer) {
            const int32_t full = plus(buffer[i], step);
            const uint32_t word = smg_word(s->buffer_key, (uint32_t)i);
            buffer[i] = s->due ? (int32_t)(((int64_t)full * s->decay + (int64_t)(word >> 16)) >> 16) : full;
            step = s->due ? full : 0;
        }
        b[i] = minus(b[i], step);
    }
}
