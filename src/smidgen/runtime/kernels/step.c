/* What all updates share: sums become rounded steps, steps move weights and their buffers. */
#include "step.h"

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
static inline int32_t raise(int32_t v, int32_t up) {
    const int32_t by = smg_min(up, 30), most = MOST >> by;
    return smg_shift_left(smg_clamp(v, -most, most), by);
}

static inline int32_t delta(const smg_step *s, int32_t sum, int32_t c, uint32_t word) {
    const int32_t mantissa = smg_high_mul(s->multiplier[c], s->rate), t = s->lift - s->shift[c] - s->power;
    const int32_t v = smg_high_mul(smg_shift_left(sum, s->lift), mantissa);
    return t < 0 ? raise(v, -t) : divide(v, t, word);
}

/* The step a buffer lets through now, and the buffer after it. */
static inline int32_t through_buffer(const smg_step *s, int32_t step, int32_t index, int16_t *buffer) {
    const int32_t full = smg_clamp(*buffer + step, -INT16_MAX, INT16_MAX), down = SMG_BUFFER_BITS - s->fraction_bits;
    if (!s->due) {
        *buffer = (int16_t)full;
        return 0;
    }
    const uint32_t word = smg_word(s->buffer_key, (uint32_t)index);
    *buffer = (int16_t)((full * s->decay + (int32_t)(word >> 16)) >> 16);
    return (full + (int32_t)(word & (((uint32_t)1 << down) - 1))) >> down;
}

/* Move one weight by a step in units of its last bit; `fraction` holds the bits below its int8. */
static inline void move(int8_t *w, uint8_t *fraction, int32_t index, int32_t bits, int32_t step) {
    const int32_t each = bits ? 8 / bits : 1, at = index % each * bits, mask = (1 << bits) - 1, half = (1 << bits) >> 1;
    uint8_t *byte = bits ? fraction + index / each : 0;
    const int32_t whole = *w * (1 << bits) + (bits ? *byte >> at & mask : 0) - half, most = 127 * (1 << bits);
    const int32_t moved = smg_clamp(whole - step, -most, most) + half;
    *w = (int8_t)(moved >> bits);
    if (bits) *byte = (uint8_t)((*byte & ~(mask << at)) | (moved & mask) << at);
}

static void deltas(const smg_step *s, const int32_t *sums, int32_t count, int32_t c, int32_t c_step, int32_t index,
                   int32_t *steps) {
    for (int32_t i = 0; i < count; i++)
        steps[i] = delta(s, sums[i], c + i * c_step, smg_word(s->key, (uint32_t)(index + i)));
}

void smg_step_weights(const smg_step *s, const int32_t *sums, int32_t count, int32_t c, int32_t c_step, int32_t index,
                      int8_t *w, uint8_t *fraction, int16_t *buffer) {
    int32_t steps[BLOCK];
    for (int32_t start = 0; start < count; start += BLOCK) {
        const int32_t length = smg_min(BLOCK, count - start), first = index + start;
        deltas(s, sums + start, length, c + start * c_step, c_step, first, steps);
        if (buffer)
            for (int32_t i = 0; i < length; i++) steps[i] = through_buffer(s, steps[i], first + i, buffer + first + i);
        for (int32_t i = 0; i < length; i++) move(w + first + i, fraction, first + i, s->fraction_bits, steps[i]);
    }
}

void smg_step_biases(const smg_step *s, const int32_t *sums, int32_t count, int32_t *b, int32_t *buffer) {
    for (int32_t i = 0; i < count; i++) {
        int64_t step = delta(s, sums[i], i, smg_word(s->key, (uint32_t)i));
        if (buffer) {
            const int64_t full = limit(buffer[i] + step);
            const uint32_t word = smg_word(s->buffer_key, (uint32_t)i);
            buffer[i] = (int32_t)(s->due ? (full * s->decay + (int64_t)(word >> 16)) >> 16 : full);
            step = s->due ? full : 0;
        }
        b[i] = (int32_t)limit(b[i] - step);
    }
}
