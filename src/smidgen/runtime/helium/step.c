/* What all updates share: sums become rounded steps, four at a time, and steps move weights and their buffers. */
#include <arm_mve.h>

#include "noinline.h"
#define SMG_APART SMG_NOINLINE
#include "step_moves.h"

enum { FOUR = 4, EIGHT = 8 };

static inline int64_t limit(int64_t x) { return x > MOST ? MOST : x < -MOST ? -MOST : x; }

static inline int32x4_t limited(int32x4_t x) { return vminq_s32(vmaxq_s32(x, vdupq_n_s32(-MOST)), vdupq_n_s32(MOST)); }

/* Four words of a stream from `index` on. */
static inline uint32x4_t words(uint32_t key, uint32_t index) {
    const uint32_t golden = 0x9E3779B9u;
    uint32x4_t x = vaddq_n_u32(vmulq_n_u32(vidupq_n_u32(0, 1), golden), key + index * golden);
    x = vmulq_n_u32(veorq_u32(x, vshrq_n_u32(x, 16)), 0x7FEB352Du);
    x = vmulq_n_u32(veorq_u32(x, vshrq_n_u32(x, 15)), 0x846CA68Bu);
    return veorq_u32(x, vshrq_n_u32(x, 16));
}

/* v / 2^t rounded at random, for any t from 0 on: where the fraction, moved up to the word, carries, what is left is
 * raised. A vector's shift by 32 leaves nothing, so nothing is rounded where nothing is divided. */
static inline int32x4_t divide(int32x4_t v, int32x4_t t, uint32x4_t word) {
    const int32x4_t thirty_one = vdupq_n_s32(31), shift = vminq_s32(t, thirty_one);
    const int32x4_t deep = vminq_s32(vsubq_s32(t, shift), thirty_one), moved = vshlq_s32(v, vnegq_s32(deep));
    const int32x4_t rest = vsubq_s32(vdupq_n_s32(32), shift), quotient = vshlq_s32(moved, vnegq_s32(shift));
    const uint32x4_t sum = vaddq_u32(vshlq_u32(vreinterpretq_u32_s32(moved), rest), word);
    return limited(vaddq_m_n_s32(quotient, quotient, 1, vcmphiq_u32(word, sum)));
}

/* v * 2^-t, saturated, for t below 0. */
static inline int32x4_t raise(int32x4_t v, int32x4_t t) {
    const int32x4_t by = vminq_s32(vnegq_s32(vmaxq_s32(t, vdupq_n_s32(-30))), vdupq_n_s32(30));
    const int32x4_t most = vshlq_s32(vdupq_n_s32(MOST), vnegq_s32(by));
    return vshlq_s32(vminq_s32(vmaxq_s32(v, vnegq_s32(most)), most), by);
}

/* Of four channels: the mantissas of their factors with the rate, and what they are shifted by, whatever rate it was
 * given. */
typedef struct {
    int32x4_t mantissa, t;
} factors;

static inline factors with_rate(const smg_step *s, int32x4_t mantissa, int32x4_t shift) {
    const int32_t all = (int32_t)((uint32_t)s->lift - (uint32_t)s->power);
    const factors f = {vqrdmulhq_n_s32(mantissa, s->rate), vsubq_s32(vdupq_n_s32(all), shift)};
    return f;
}

/* Four channels from c on, of which there may be fewer: their factors are listed, or computed one by one. */
static inline factors factors_of(const smg_step *s, int32_t c, int32_t count) {
    const mve_pred16_t some = vctp32q((uint32_t)count);
    int32_t mantissa[FOUR] = {0}, shift[FOUR] = {0};
    if (!s->correction && !s->unit)
        return with_rate(s, vldrwq_z_s32(s->multiplier + c, some), vldrbq_z_s32(s->shift + c, some));
    for (int32_t i = 0; i < smg_min(count, FOUR); i++) {
        const smg_factor f = smg_factor_of(s, c + i);
        mantissa[i] = f.mantissa;
        shift[i] = f.shift;
    }
    return with_rate(s, vldrwq_s32(mantissa), vldrwq_s32(shift));
}

/* sums * mantissa * 2^-t. */
static inline int32x4_t delta(const smg_step *s, int32x4_t sums, factors f, uint32_t index) {
    const int32x4_t v = vqrdmulhq_s32(vshlq_r_s32(sums, s->lift), f.mantissa);
    const mve_pred16_t raised = vcmpltq_n_s32(f.t, 0);
    const int32x4_t divided = divide(v, vmaxq_s32(f.t, vdupq_n_s32(0)), words(s->key, index));
    return raised ? vpselq_s32(raise(v, f.t), divided, raised) : divided;
}

/* The steps of `count` weights of one channel; of as many channels, each with a factor of its own. */
static SMG_NOINLINE void channel_steps(const smg_step *s, const int32_t *sums, int32_t count, int32_t c, int32_t index,
                                       int32_t *steps) {
    const smg_factor own = smg_factor_of(s, c);
    const factors f = with_rate(s, vdupq_n_s32(own.mantissa), vdupq_n_s32(own.shift));
    for (int32_t i = 0; i < count; i += FOUR) {
        const mve_pred16_t some = vctp32q((uint32_t)(count - i));
        vstrwq_s32(steps + i, delta(s, vldrwq_z_s32(sums + i, some), f, (uint32_t)(index + i)));
    }
}

static SMG_NOINLINE void channels_steps(const smg_step *s, const int32_t *sums, int32_t count, int32_t c, int32_t index,
                                        int32_t *steps) {
    for (int32_t i = 0; i < count; i += FOUR) {
        const mve_pred16_t some = vctp32q((uint32_t)(count - i));
        const factors f = factors_of(s, c + i, count - i);
        vstrwq_s32(steps + i, delta(s, vldrwq_z_s32(sums + i, some), f, (uint32_t)(index + i)));
    }
}

/* Weights and fractions of four bits, as one number, after a step. */
static inline int32x4_t moved(int32x4_t w, int32x4_t fraction, int32x4_t step) {
    const int32x4_t most = vdupq_n_s32(127 * 16);
    const int32x4_t whole = vsubq_s32(vaddq_s32(vshlq_n_s32(w, 4), vsubq_n_s32(fraction, 8)), step);
    return vaddq_n_s32(vminq_s32(vmaxq_s32(whole, vnegq_s32(most)), most), 8);
}

/* Move a multiple of eight weights of 12 bits, the first in the lower half of its byte: even and odd ones. */
static SMG_NOINLINE void move_twelve(int8_t *w, uint8_t *fraction, const int32_t *steps, int32_t count) {
    for (; count > 0; count -= EIGHT, w += EIGHT, fraction += FOUR, steps += EIGHT) {
        const int32x4x2_t step = vld2q_s32(steps);
        int16_t pairs[FOUR];
        __builtin_memcpy(pairs, w, sizeof pairs);
        const int32x4_t two = vldrhq_s32(pairs), both = vreinterpretq_s32_u32(vldrbq_u32(fraction));
        const int32x4_t low = vandq_s32(both, vdupq_n_s32(15)), high = vshrq_n_s32(both, 4);
        const int32x4_t even = moved(vshrq_n_s32(vshlq_n_s32(two, 24), 24), low, step.val[0]);
        const int32x4_t odd = moved(vshrq_n_s32(two, 8), high, step.val[1]);
        vstrbq_s32((int8_t *)fraction, vsliq_n_s32(even, odd, 4));
        vstrhq_s32(pairs, vsliq_n_s32(vshrq_n_s32(even, 4), vshrq_n_s32(odd, 4), 8));
        __builtin_memcpy(w, pairs, sizeof pairs);
    }
}

/* The same for weights that are their int8 alone. */
static SMG_NOINLINE void move_whole(int8_t *w, const int32_t *steps, int32_t count) {
    const int32x4_t most = vdupq_n_s32(127), least = vdupq_n_s32(-127);
    for (; count > 0; count -= FOUR, w += FOUR, steps += FOUR) {
        const mve_pred16_t some = vctp32q((uint32_t)count);
        const int32x4_t after = vsubq_s32(vldrbq_z_s32(w, some), vldrwq_z_s32(steps, some));
        vstrbq_p_s32(w, vminq_s32(vmaxq_s32(after, least), most), some);
    }
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
        const int32_t twelve = fraction && s->fraction_bits == 4 && first % 2 == 0 ? length & ~(EIGHT - 1) : 0;
        if (twelve) move_twelve(w + first, fraction + first / 2, steps, twelve);
        if (fraction && twelve < length)
            move(w + first + twelve, fraction, first + twelve, s->fraction_bits, steps + twelve, length - twelve);
        if (!fraction) move_whole(w + first, steps, length);
    }
}

/* Biases with a buffer each, whose steps these are. */
static SMG_NOINLINE void buffered(const smg_step *s, int32_t *steps, int32_t count, int32_t index, int32_t *buffer) {
    for (int32_t i = 0; i < count; i++) {
        const uint32_t word = smg_word(s->buffer_key, (uint32_t)(index + i));
        const smg_ruled ruled = smg_follow_rule(s, (int32_t)limit((int64_t)buffer[i] + steps[i]), MOST, word);
        buffer[i] = ruled.stays;
        steps[i] = ruled.moves;
    }
}

void smg_step_biases(const smg_step *s, const int32_t *sums, int32_t count, int32_t *b, int32_t *buffer) {
    int32_t steps[BLOCK];
    for (int32_t start = 0; start < count; start += BLOCK) {
        const int32_t length = smg_min(BLOCK, count - start);
        channels_steps(s, sums + start, length, start, start, steps);
        if (buffer) buffered(s, steps, length, start, buffer + start);
        for (int32_t i = 0; i < length; i += FOUR) {
            const mve_pred16_t some = vctp32q((uint32_t)(length - i));
            const int32x4_t from = vldrwq_z_s32(b + start + i, some);
            vstrwq_p_s32(b + start + i, limited(vqsubq_s32(from, vldrwq_s32(steps + i))), some);
        }
    }
}

void smg_step_differences(const smg_step *s, const int32_t *sums, int32_t count, int16_t *difference,
                          int32_t *buffer) {
    int32_t steps[BLOCK];
    for (int32_t start = 0; start < count; start += BLOCK) {
        const int32_t length = smg_min(BLOCK, count - start);
        channels_steps(s, sums + start, length, start, start, steps);
        if (buffer) buffered(s, steps, length, start, buffer + start);
        for (int32_t i = start; i < start + length; i++)
            difference[i] = (int16_t)smg_clamp(difference[i] - steps[i - start], -INT16_MAX, INT16_MAX);
    }
}
