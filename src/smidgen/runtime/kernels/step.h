/* What all updates share: a sum becomes a step of a weight, scaled by its channel's factor and by the rate. */
#ifndef SMIDGEN_STEP_H
#define SMIDGEN_STEP_H

#include "smidgen_training.h"
#include "stochastic.h"

/* Fraction bits, below one int8 step, of what a weight's buffer holds. */
enum { SMG_BUFFER_BITS = 12 };

/* One tensor's update in the making: delta = sum * multiplier * rate * 2^power, in units of 2^-unit_bits. */
typedef struct {
    const int32_t *multiplier; /* one a channel: of its factor, or of its layer where there are corrections */
    const int8_t *shift;
    const uint8_t *correction;
    const int8_t *unit; /* shifts that say what a bias's difference counts, where that is what learns */
    int32_t scale, exponent;
    int32_t lift, decay, fraction_bits, rate, power;
    int32_t due; /* whether this sample is the last that its rule accumulates */
    uint32_t key, buffer_key;
} smg_step;

static inline smg_step smg_begin_step(const int32_t *multiplier, const int8_t *shift, const uint8_t *correction,
                                      int32_t scale, int32_t exponent, int32_t lift, const smg_rule *rule,
                                      int32_t fraction_bits, int32_t rate, int32_t power, int32_t stream,
                                      const int32_t *step_state) {
    const smg_step s = {multiplier, shift, correction, 0, scale, exponent, lift, rule->decay, fraction_bits, rate, power,
                        smg_due(step_state, rule->accumulate),
                        smg_stream_key(step_state, stream), smg_stream_key(step_state, stream + 1)};
    return s;
}

/* The same from a kernel's parameters. */
#define SMG_BEGIN_STEP(p, fraction_bits, unit_bits, rate, step_state)                                \
    smg_begin_step((p)->multiplier, (p)->shift, (p)->correction, (p)->scale, (p)->exponent, (p)->lift, \
                   &(p)->rule, fraction_bits, (rate)[0],                                             \
                   (int32_t)((uint32_t)(rate)[1] + (uint32_t)(smg_exponent(step_state, (p)->slot) + (unit_bits))), \
                   (p)->stream, step_state)

/* A channel's factor, mantissa * 2^(shift - 31). */
typedef struct {
    int32_t mantissa, shift;
} smg_factor;

/* Of factors that are not listed: what the tensor shares, scale * 2^(exponent - 31), over the square of the layer's own
 * multiplier, whose inverse is known to 15 bits by division and to 30 after a step of Newton's; corrected by four bits, so
 * that it is the factor to its last bit. None is above 2^60. */
static inline smg_factor smg_derived_factor(const smg_step *s, int32_t c) {
    const uint32_t m = (uint32_t)s->multiplier[c], first = (0xFFFFFFFFu / (m >> 15)) << 14;
    const uint32_t left = 0x80000000u - smg_upper_product(m, first, 31);
    const uint32_t inverse = smg_upper_product(first, left, 30);
    const uint32_t square = smg_upper_product(inverse, inverse, 30);
    const uint32_t product = smg_upper_product(square, (uint32_t)s->scale, 31);
    const int32_t missing = (s->correction[c >> 1] >> (c & 1) * 4 & 15) - 8;
    const int32_t up = (product < 1u << 31) + (product < 1u << 30);
    const smg_factor largest = {1 << 30, 61};
    const smg_factor f = {(int32_t)((product << up) >> 1) + missing, s->exponent + 2 - up - 2 * s->shift[c]};
    return f.shift > 60 ? largest : f;
}

/* log2 of what a difference to a bias counts, by the shift of its layer's multiplier. */
static inline int32_t smg_unit(int32_t shift) { return smg_clamp(-7 - shift, 0, 15); }

static inline smg_factor smg_factor_of(const smg_step *s, int32_t c) {
    const smg_factor listed = {s->multiplier[c], s->shift[c]};
    smg_factor f = s->correction ? smg_derived_factor(s, c) : listed;
    if (s->unit) f.shift -= smg_unit(s->unit[c]);
    return f;
}

/* A weight's step: through its buffer where it has one. */
#define SMG_BEGIN_WEIGHTS(p, buffer, rate, step_state) \
    SMG_BEGIN_STEP(p, (p)->fraction_bits, (buffer) ? SMG_BUFFER_BITS : (p)->fraction_bits, rate, step_state)

/* What the rule makes of all that a buffer has gathered, in the buffer's unit: what moves the weight, what stays. */
typedef struct {
    int32_t moves, stays;
} smg_ruled;

/* `most` is the largest that the buffer holds. What 16 bits hold is multiplied by a decay in 32; `word` rounds it. */
static inline smg_ruled smg_follow_rule(const smg_step *s, int32_t gathered, int32_t most, uint32_t word) {
    const int32_t full = smg_clamp(gathered, -most, most), random = (int32_t)(word >> 16);
    smg_ruled ruled = {0, full};
    if (s->due) {
        ruled.moves = full;
        ruled.stays = most <= INT16_MAX ? (full * s->decay + random) >> 16
                                        : (int32_t)(((int64_t)full * s->decay + random) >> 16);
    }
    return ruled;
}

/* Apply the sums of `count` consecutive weights, the first at `index` in its tensor and of channel c, the next of
 * channel c + c_step, and so on; states are the tensor's, NULL where one is not kept. */
void smg_step_weights(const smg_step *s, const int32_t *sums, int32_t count, int32_t c, int32_t c_step, int32_t index,
                      int8_t *w, uint8_t *fraction, int16_t *buffer);

/* Apply the sums of a whole bias: to its 32 bits, or to its difference, where the step has units. */
void smg_step_biases(const smg_step *s, const int32_t *sums, int32_t count, int32_t *b, int32_t *buffer);
void smg_step_differences(const smg_step *s, const int32_t *sums, int32_t count, int16_t *difference, int32_t *buffer);

#endif
