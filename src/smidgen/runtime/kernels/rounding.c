/* The passage from sums to an int8 gradient: scale, mask, round at random, saturate. */
#include "rounding.h"

/* Elements taken at once: two random words, one byte of mask. */
enum { GROUP = 8 };

/* v / 2^t rounded at random; the part shifted up is limited first, so that nothing is lost. */
static inline int32_t divide(const smg_rounding *r, int32_t v, int32_t octet) {
    const int32_t most = r->raise ? 1 << 20 : INT32_MAX;
    const int32_t moved = smg_shift_left(smg_clamp(v >> r->deep, -most, most), r->raise);
    return (moved + r->centre + ((octet << r->shift) >> 8)) >> r->shift;
}

/* One element; gives the bits seen in it before it is saturated. */
static inline uint32_t element(const smg_rounding *r, int32_t sum, int32_t multiplier, int32_t octet, int8_t *to) {
    const int32_t u = divide(r, smg_high_mul(smg_shift_left(sum, r->lift), multiplier), octet);
    *to = (int8_t)smg_clamp(u, -127, 127);
    return (uint32_t)(u ^ (u >> 31));
}

static inline uint32_t single(const smg_rounding *r, int32_t sum, int32_t c, int32_t index, const uint8_t *mask,
                              int8_t *to) {
    const uint32_t word = smg_word(r->key, (uint32_t)index / 4);
    const int passes = !mask || mask[index / 8] >> index % 8 & 1;
    return element(r, passes ? sum : 0, r->multiplier[r->factors > 1 ? c : 0], word >> 8 * (index % 4) & 255, to);
}

/* Eight elements, `multiplier` being theirs. */
static inline uint32_t group(const smg_rounding *r, const int32_t *sums, const int32_t *multiplier, int32_t index,
                             int32_t mask, int8_t *to) {
    const uint32_t at = (uint32_t)index / 4;
    const uint32_t words[2] = {smg_word(r->key, at), smg_word(r->key, at + 1)};
    uint32_t seen = 0;
    for (int32_t k = 0; k < GROUP; k++) {
        const int32_t octet = words[k / 4] >> 8 * (k % 4) & 255;
        seen |= element(r, sums[k] & -(mask >> k & 1), multiplier[k], octet, to + k);
    }
    return seen;
}

void smg_round_sums(smg_rounding *r, const int32_t *sums, int32_t count, int32_t c, int32_t index,
                    const uint8_t *mask, int8_t *to) {
    int32_t same[GROUP], i = 0;
    for (int32_t k = 0; k < GROUP; k++) same[k] = r->multiplier[0];
    for (; i < count && (index + i) % GROUP; i++) r->seen |= single(r, sums[i], c + i, index + i, mask, to + i);
    for (; i + GROUP <= count; i += GROUP) {
        const int32_t *multiplier = r->factors > 1 ? r->multiplier + c + i : same;
        r->seen |= group(r, sums + i, multiplier, index + i, mask ? mask[(index + i) / 8] : 255, to + i);
    }
    for (; i < count; i++) r->seen |= single(r, sums[i], c + i, index + i, mask, to + i);
}
