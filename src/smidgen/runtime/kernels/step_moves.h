/* How steps move weights, for the step.c of every processor: factors with the rate, buffers, fractions.
 *
 * SMG_APART stands before functions that are to stay out of line, where that saves flash. A processor with its own way
 * to move fractions defines SMG_OWN_MOVE. */
#ifndef SMIDGEN_STEP_MOVES_H
#define SMIDGEN_STEP_MOVES_H

#include "step.h"

#ifndef SMG_APART
#define SMG_APART
#endif

/* Weights whose steps are held on the stack at once. */
enum { BLOCK = 64 };

/* Steps are limited to ± this. */
enum { MOST = 1 << 30 };

static inline int32_t mantissa_of(const smg_step *s, smg_factor f) { return smg_high_mul(f.mantissa, s->rate); }

static inline int32_t shift_of(const smg_step *s, smg_factor f) {
    return (int32_t)((uint32_t)(s->lift - f.shift) - (uint32_t)s->power); /* whatever rate it was given */
}

/* What a buffer lets through of each step now; the buffer goes on to the next. */
static SMG_APART void through_buffer(const smg_step *s, int32_t *steps, int32_t count, int32_t index, int16_t *buffer) {
    const int32_t down = SMG_BUFFER_BITS - s->fraction_bits, mask = (1 << down) - 1;
    for (int32_t i = 0; i < count; i++) {
        const uint32_t word = smg_word(s->buffer_key, (uint32_t)(index + i));
        const smg_ruled ruled = smg_follow_rule(s, buffer[i] + steps[i], INT16_MAX, word);
        buffer[i] = (int16_t)ruled.stays;
        steps[i] = (ruled.moves + (int32_t)(word & (uint32_t)mask)) >> down;
    }
}

#ifndef SMG_OWN_MOVE
/* Move weights by steps in units of their last bit: of `bits` bits below the int8, kept beside it lowest first. */
static SMG_APART void move(int8_t *w, uint8_t *fraction, int32_t index, int32_t bits, const int32_t *steps,
                           int32_t count) {
    const int32_t half = (1 << bits) >> 1, mask = (1 << bits) - 1, most = 127 * (1 << bits);
    const int32_t places = bits == 4 ? 1 : 2; /* log2 of the weights to a byte */
    for (int32_t i = 0; i < count; i++) {
        uint8_t *byte = fraction + ((index + i) >> places);
        const int32_t at = ((index + i) & ((1 << places) - 1)) * bits;
        const int32_t whole = w[i] * (1 << bits) + (*byte >> at & mask) - half;
        const int32_t now = smg_clamp(whole - steps[i], -most, most) + half;
        w[i] = (int8_t)(now >> bits);
        *byte = (uint8_t)((*byte & ~(mask << at)) | (now & mask) << at);
    }
}
#endif

#endif
