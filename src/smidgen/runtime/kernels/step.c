/* What all updates share: sums become rounded steps, steps move weights and their buffers. */
#include "step_moves.h"
#include "step_vnni.h"

static inline int64_t limit(int64_t x) { return x > MOST ? MOST : x < -MOST ? -MOST : x; }

#if defined(SMG_VNNI)
/* The steps of up to BLOCK weights of channels c, c + c_step, …; elements of `steps` past the last are written, too. */
static void vector_steps(const smg_step *s, const int32_t *sums, int32_t count, int32_t c, int32_t c_step,
                         int32_t index, int32_t *steps) {
    const __m512i key = _mm512_set1_epi32((int32_t)s->key);
    const __m128i lift = _mm_cvtsi32_si128(s->lift);
    smg_vnni_power power;
    if (!c_step) {
        const smg_factor f = smg_factor_of(s, c);
        power = smg_vnni_power_of(_mm512_set1_epi32(mantissa_of(s, f)), _mm512_set1_epi32(shift_of(s, f)), MOST);
    }
    for (int32_t i = 0; i < count; i += SMG_LANES) {
        const int32_t length = smg_min(SMG_LANES, count - i);
        if (c_step) {
            const smg_vnni_factors f = smg_vnni_factors_of(s, c + i, length);
            power = smg_vnni_power_of(f.mantissa, f.shift, MOST);
        }
        const __m512i words = smg_vnni_words(key, _mm512_add_epi32(_mm512_set1_epi32(index + i), smg_vnni_counted()));
        const __m512i given = _mm512_maskz_loadu_epi32(smg_vnni_first(length), sums + i);
        _mm512_storeu_si512(steps + i, smg_vnni_steps(&power, given, lift, words, MOST));
    }
}

/* The steps of a weight of each of `count` channels, each with a factor of its own; of `count` weights of one channel. */
static inline void channels_steps(const smg_step *s, const int32_t *sums, int32_t count, int32_t c, int32_t index,
                                  int32_t *steps) {
    vector_steps(s, sums, count, c, 1, index, steps);
}

static inline void channel_steps(const smg_step *s, const int32_t *sums, int32_t count, int32_t c, int32_t index,
                                 int32_t *steps) {
    vector_steps(s, sums, count, c, 0, index, steps);
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

/* The steps of a weight of each of `count` channels, each with a factor of its own; nothing is never rounded up. */
static void channels_steps(const smg_step *s, const int32_t *sums, int32_t count, int32_t c, int32_t index,
                           int32_t *steps) {
    for (int32_t i = 0; i < count; i++) {
        steps[i] = 0;
        if (!sums[i]) continue;
        const smg_factor f = smg_factor_of(s, c + i);
        steps[i] = delta(s, sums[i], mantissa_of(s, f), shift_of(s, f), (uint32_t)(index + i));
    }
}

/* The steps of `count` weights of one channel, none where there are no gradients. */
static void channel_steps(const smg_step *s, const int32_t *sums, int32_t count, int32_t c, int32_t index,
                          int32_t *steps) {
    int32_t any = 0;
    for (int32_t i = 0; i < count; i++) any |= steps[i] = sums[i];
    if (!any) return;
    const smg_factor f = smg_factor_of(s, c);
    const int32_t mantissa = mantissa_of(s, f), t = shift_of(s, f);
    for (int32_t i = 0; i < count; i++) steps[i] = delta(s, sums[i], mantissa, t, (uint32_t)(index + i));
}
#endif

/* Move weights that are their int8 alone. */
static void move_whole(int8_t *w, const int32_t *steps, int32_t count) {
    for (int32_t i = 0; i < count; i++) w[i] = (int8_t)smg_clamp(w[i] - steps[i], -127, 127);
}

/* Move a block of weights by their steps, through their buffers where they have some. */
static void move_block(const smg_step *s, int32_t *steps, int32_t count, int32_t index, int8_t *w, uint8_t *fraction,
                       int16_t *buffer) {
    int32_t done = 0;
    if (buffer) through_buffer(s, steps, count, index, buffer + index);
#if defined(SMG_VNNI)
    done = vector_move(w + index, fraction, index, s->fraction_bits, steps, count);
#endif
    if (fraction)
        move(w + index + done, fraction, index + done, s->fraction_bits, steps + done, count - done);
    else
        move_whole(w + index + done, steps + done, count - done);
}

void smg_step_weights(const smg_step *s, const int32_t *sums, int32_t count, int32_t c, int32_t c_step, int32_t index,
                      int8_t *w, uint8_t *fraction, int16_t *buffer) {
    int32_t steps[BLOCK];
    for (int32_t start = 0; start < count; start += BLOCK) {
        const int32_t length = smg_min(BLOCK, count - start);
        if (c_step)
            channels_steps(s, sums + start, length, c + start, index + start, steps);
        else
            channel_steps(s, sums + start, length, c, index + start, steps);
        move_block(s, steps, length, index + start, w, fraction, buffer);
    }
}

#if defined(SMG_VNNI)
void smg_vnni_step_channels(const smg_step *s, const int32_t *sums, int32_t channels, int32_t inner, int32_t first,
                            int8_t *w, uint8_t *fraction, int16_t *buffer) {
    int32_t mantissa[SMG_VNNI_CHANNELS + SMG_LANES], shift[SMG_VNNI_CHANNELS + SMG_LANES], steps[BLOCK];
    const int32_t count = channels * inner, index = first * inner, places = 20; /* as many as i / inner is exact with */
    const __m512i inverse = _mm512_set1_epi32((1 << places) / inner + 1), key = _mm512_set1_epi32((int32_t)s->key);
    const __m128i lift = _mm_cvtsi32_si128(s->lift);
    for (int32_t c = 0; c < channels; c += SMG_LANES) {
        const smg_vnni_factors f = smg_vnni_factors_of(s, first + c, smg_min(SMG_LANES, channels - c));
        _mm512_storeu_si512(mantissa + c, f.mantissa);
        _mm512_storeu_si512(shift + c, f.shift);
    }
    for (int32_t start = 0; start < count; start += BLOCK) {
        const int32_t length = smg_min(BLOCK, count - start);
        for (int32_t i = start; i < start + length; i += SMG_LANES) {
            const __m512i at = _mm512_add_epi32(_mm512_set1_epi32(i), smg_vnni_counted());
            const int32_t c = i / inner; /* of the first; the others' lie within sixteen of it */
            const __m512i of = _mm512_sub_epi32(_mm512_srli_epi32(_mm512_mullo_epi32(at, inverse), places),
                                                _mm512_set1_epi32(c));
            const smg_vnni_power power =
                smg_vnni_power_of(_mm512_permutexvar_epi32(of, _mm512_loadu_si512(mantissa + c)),
                                  _mm512_permutexvar_epi32(of, _mm512_loadu_si512(shift + c)), MOST);
            const __m512i words = smg_vnni_words(key, _mm512_add_epi32(at, _mm512_set1_epi32(index)));
            const __m512i given = _mm512_maskz_loadu_epi32(smg_vnni_first(smg_min(SMG_LANES, count - i)), sums + i);
            _mm512_storeu_si512(steps + i - start, smg_vnni_steps(&power, given, lift, words, MOST));
        }
        move_block(s, steps, length, index + start, w, fraction, buffer);
    }
}
#endif

/* What moves up to BLOCK biases from c on, how many; their buffers, where they have some, go on to the next. */
static int32_t bias_steps(const smg_step *s, const int32_t *sums, int32_t c, int32_t count, int32_t *buffer,
                          int32_t *steps) {
    const int32_t length = smg_min(BLOCK, count - c);
    channels_steps(s, sums + c, length, c, c, steps);
    for (int32_t i = 0; buffer && i < length; i++) {
        const uint32_t word = smg_word(s->buffer_key, (uint32_t)(c + i));
        const smg_ruled ruled = smg_follow_rule(s, (int32_t)limit(buffer[c + i] + (int64_t)steps[i]), MOST, word);
        buffer[c + i] = ruled.stays;
        steps[i] = ruled.moves;
    }
    return length;
}

void smg_step_biases(const smg_step *s, const int32_t *sums, int32_t count, int32_t *b, int32_t *buffer) {
    int32_t steps[BLOCK];
    for (int32_t c = 0, length; c < count; c += length, b += length) {
        length = bias_steps(s, sums, c, count, buffer, steps);
        for (int32_t i = 0; i < length; i++) b[i] = (int32_t)limit(b[i] - (int64_t)steps[i]);
    }
}

void smg_step_differences(const smg_step *s, const int32_t *sums, int32_t count, int16_t *difference,
                          int32_t *buffer) {
    int32_t steps[BLOCK];
    for (int32_t c = 0, length; c < count; c += length, difference += length) {
        length = bias_steps(s, sums, c, count, buffer, steps);
        for (int32_t i = 0; i < length; i++) /* a step has 30 bits */
            difference[i] = (int16_t)smg_clamp(difference[i] - steps[i], -INT16_MAX, INT16_MAX);
    }
}
