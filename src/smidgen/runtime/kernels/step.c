/* What all updates share: sums become rounded steps, steps move weights and their buffers. */
#include "step.h"

#include "step_vnni.h"

/* Weights whose steps are held on the stack at once. */
enum { BLOCK = 64 };

/* Steps are limited to ± this. */
enum { MOST = 1 << 30 };

static inline int64_t limit(int64_t x) { return x > MOST ? MOST : x < -MOST ? -MOST : x; }

/* v / 2^t rounded at random with 32 bits. The fraction and the random part meet in unsigned 32 bits: they fit. */
static inline int32_t divide(int32_t v, int32_t t, uint32_t word) {
    const int32_t deep = smg_clamp(t - 31, 0, 31), shift = smg_clamp(t, 0, 31);
    const uint32_t moved = (uint32_t)(v >> deep), mask = ((uint32_t)1 << shift) - 1;
    const uint32_t random = (word >> 1) >> (31 - shift);
    const int32_t carried = (int32_t)(((moved & mask) + random) >> shift);
    return smg_clamp(((int32_t)moved >> shift) + carried, -MOST, MOST);
}

/* v * 2^up, saturated, for up > 0. */
static inline int32_t raise(int32_t v, uint32_t up) {
    const int32_t by = up < 30 ? (int32_t)up : 30, most = MOST >> by;
    return smg_shift_left(smg_clamp(v, -most, most), by);
}

/* sum * mantissa * 2^-t. */
static inline int32_t delta(const smg_step *s, int32_t sum, int32_t mantissa, int32_t t, uint32_t index) {
    const int32_t v = smg_high_mul(smg_shift_left(sum, s->lift), mantissa);
    return t < 0 ? raise(v, 0u - (uint32_t)t) : divide(v, t, smg_word(s->key, index));
}

static inline int32_t mantissa_of(const smg_step *s, smg_factor f) { return smg_high_mul(f.mantissa, s->rate); }

static inline int32_t shift_of(const smg_step *s, smg_factor f) {
    return (int32_t)((uint32_t)(s->lift - f.shift) - (uint32_t)s->power); /* whatever rate it was given */
}

/* The steps of a weight of each of `count` channels, each with a factor of its own. */
static void channels_steps(const smg_step *s, const int32_t *sums, int32_t count, int32_t c, int32_t index,
                           int32_t *steps) {
    for (int32_t i = 0; i < count; i++) {
        const smg_factor f = smg_factor_of(s, c + i);
        steps[i] = delta(s, sums[i], mantissa_of(s, f), shift_of(s, f), (uint32_t)(index + i));
    }
}

#if defined(SMG_VNNI)
/* The steps of up to BLOCK weights of channels c, c + c_step, …, whose factors are listed where they are several;
 * elements of `steps` past the last are written, too. */
static void vector_steps(const smg_step *s, const int32_t *sums, int32_t count, int32_t c, int32_t c_step,
                         int32_t index, int32_t *steps) {
    const __m512i key = _mm512_set1_epi32((int32_t)s->key);
    const __m512i lifted = _mm512_set1_epi32((int32_t)((uint32_t)s->lift - (uint32_t)s->power));
    const __m128i lift = _mm_cvtsi32_si128(s->lift);
    const smg_vnni_factor rate = smg_vnni_factor_of(_mm512_set1_epi32(s->rate));
    const smg_factor f = smg_factor_of(s, c);
    smg_vnni_power power =
        smg_vnni_power_of(_mm512_set1_epi32(mantissa_of(s, f)), _mm512_set1_epi32(shift_of(s, f)), MOST);
    for (int32_t i = 0; i < count; i += SMG_LANES) {
        const __mmask16 some = smg_vnni_first(smg_min(SMG_LANES, count - i));
        if (c_step) {
            const __m512i mantissa = smg_vnni_high_mul(_mm512_maskz_loadu_epi32(some, s->multiplier + c + i), rate);
            const __m512i shift = _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(some, s->shift + c + i));
            power = smg_vnni_power_of(mantissa, _mm512_sub_epi32(lifted, shift), MOST);
        }
        const __m512i words = smg_vnni_words(key, _mm512_add_epi32(_mm512_set1_epi32(index + i), smg_vnni_counted()));
        const __m512i given = _mm512_maskz_loadu_epi32(some, sums + i);
        _mm512_storeu_si512(steps + i, smg_vnni_steps(&power, given, lift, words, MOST));
    }
}

/* Move the first weights, as many as fill vectors and bytes of fractions; gives how many. */
static int32_t vector_move(int8_t *w, uint8_t *fraction, int32_t index, int32_t bits, const int32_t *steps,
                           int32_t count) {
    const int32_t all = fraction ? count - count % 4 : count;
    if (fraction && (index % 4 || (bits != 4 && bits != 2))) return 0;
    for (int32_t i = 0; i < all; i += SMG_LANES)
        smg_vnni_move(w + i, fraction ? fraction + (index + i) * bits / 8 : 0, bits, _mm512_loadu_si512(steps + i),
                      smg_min(SMG_LANES, all - i));
    return all;
}
#else
/* The steps of `count` weights of one channel. */
static void channel_steps(const smg_step *s, const int32_t *sums, int32_t count, int32_t c, int32_t index,
                          int32_t *steps) {
    const smg_factor f = smg_factor_of(s, c);
    const int32_t mantissa = mantissa_of(s, f), t = shift_of(s, f);
    for (int32_t i = 0; i < count; i++) steps[i] = delta(s, sums[i], mantissa, t, (uint32_t)(index + i));
}
#endif

/* What a buffer lets through of each step now; the buffer goes on to the next. */
static void through_buffer(const smg_step *s, int32_t *steps, int32_t count, int32_t index, int16_t *buffer) {
    const int32_t down = SMG_BUFFER_BITS - s->fraction_bits, mask = (1 << down) - 1;
    for (int32_t i = 0; i < count; i++) {
        const uint32_t word = smg_word(s->buffer_key, (uint32_t)(index + i));
        const smg_ruled ruled = smg_follow_rule(s, buffer[i] + steps[i], INT16_MAX, word);
        buffer[i] = (int16_t)ruled.stays;
        steps[i] = (ruled.moves + (int32_t)(word & (uint32_t)mask)) >> down;
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
    for (int32_t i = 0; i < count; i++) w[i] = (int8_t)smg_clamp(w[i] - steps[i], -127, 127);
}

void smg_step_weights(const smg_step *s, const int32_t *sums, int32_t count, int32_t c, int32_t c_step, int32_t index,
                      int8_t *w, uint8_t *fraction, int16_t *buffer) {
    int32_t steps[BLOCK];
    for (int32_t start = 0; start < count; start += BLOCK) {
        const int32_t length = smg_min(BLOCK, count - start), first = index + start;
        int32_t done = 0;
#if defined(SMG_VNNI)
        if (c_step && s->correction)
            channels_steps(s, sums + start, length, c + start, first, steps);
        else
            vector_steps(s, sums + start, length, c_step ? c + start : c, c_step, first, steps);
#else
        if (c_step)
            channels_steps(s, sums + start, length, c + start, first, steps);
        else
            channel_steps(s, sums + start, length, c, first, steps);
#endif
        if (buffer) through_buffer(s, steps, length, first, buffer + first);
#if defined(SMG_VNNI)
        done = vector_move(w + first, fraction, first, s->fraction_bits, steps, length);
#endif
        if (fraction)
            move(w + first + done, fraction, first + done, s->fraction_bits, steps + done, length - done);
        else
            move_whole(w + first + done, steps + done, length - done);
    }
}

/* What moves a bias; its buffer, where it has one, goes on to the next. */
static int32_t bias_step(const smg_step *s, int32_t sum, int32_t i, int32_t *buffer) {
    const smg_factor f = smg_factor_of(s, i);
    const int32_t step = delta(s, sum, mantissa_of(s, f), shift_of(s, f), (uint32_t)i);
    if (!buffer) return step;
    const uint32_t word = smg_word(s->buffer_key, (uint32_t)i);
    const smg_ruled ruled = smg_follow_rule(s, (int32_t)limit(buffer[i] + (int64_t)step), MOST, word);
    buffer[i] = ruled.stays;
    return ruled.moves;
}

void smg_step_biases(const smg_step *s, const int32_t *sums, int32_t count, int32_t *b, int32_t *buffer) {
    for (int32_t i = 0; i < count; i++) {
        const int32_t step = bias_step(s, sums[i], i, buffer);
        b[i] = (int32_t)limit(b[i] - (int64_t)step);
    }
}

void smg_step_differences(const smg_step *s, const int32_t *sums, int32_t count, int16_t *difference,
                          int32_t *buffer) {
    for (int32_t i = 0; i < count; i++) { /* a step has 30 bits */
        const int32_t moved = difference[i] - bias_step(s, sums[i], i, buffer);
        difference[i] = (int16_t)smg_clamp(moved, -INT16_MAX, INT16_MAX);
    }
}
