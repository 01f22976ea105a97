/* The passage from sums to an int8 gradient: scale, mask, round at random, saturate. */
#include "rounding.h"

#include "rounding_vnni.h"
#include "vec8.h"

/* Elements taken at once, each step of the passage in a loop of its own, which compilers turn into vectors. */
enum { BLOCK = 64 };

/* Random bytes of `count` words from word `first` on, four to a word, lowest first. */
static inline void draw(uint32_t key, uint32_t first, int32_t count, uint8_t *octets) {
    for (int32_t i = 0; i < count; i++) {
        const uint32_t word = smg_word(key, first + (uint32_t)i);
        octets[4 * i] = (uint8_t)word;
        octets[4 * i + 1] = (uint8_t)(word >> 8);
        octets[4 * i + 2] = (uint8_t)(word >> 16);
        octets[4 * i + 3] = (uint8_t)(word >> 24);
    }
}

/* Every bit of `count` bytes of mask as 0 or −1. */
static inline void unpack(const uint8_t *mask, int32_t count, int8_t *keep) {
    static const uint8_t bit[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    for (int32_t i = 0; i < count; i++)
        for (int32_t k = 0; k < 8; k++) keep[8 * i + k] = (int8_t)-((mask[i] & bit[k]) != 0);
}

static inline void scale(const smg_rounding *r, const int32_t *sums, int32_t c, int32_t count, int32_t *v) {
    int32_t i = 0;
#if defined(SMG_VEC8)
    const smg_vec8 alike = smg_vec8_all(r->multiplier[0]);
    for (; i + SMG_VEC8_LANES <= count; i += SMG_VEC8_LANES) {
        const smg_vec8 factors = r->factors > 1 ? smg_vec8_load(r->multiplier + c + i) : alike;
        smg_vec8_store(v + i, smg_vec8_high_mul(smg_vec8_up(smg_vec8_load(sums + i), r->lift), factors));
    }
#endif
    if (r->factors > 1)
        for (; i < count; i++) v[i] = smg_high_mul(smg_shift_left(sums[i], r->lift), r->multiplier[c + i]);
    else
        for (; i < count; i++) v[i] = smg_high_mul(smg_shift_left(sums[i], r->lift), r->multiplier[0]);
}

/* Divide by a power of two, rounding at random; gives the bits that occur before saturation. */
static inline uint32_t divide(const smg_rounding *r, const int32_t *v, const uint8_t *octets, int32_t count,
                              int8_t *to) {
    const int32_t raise = r->raise, deep = r->deep, shift = r->shift, centre = r->centre;
    const int32_t most = raise ? 1 << 20 : INT32_MAX; /* what is shifted up is limited first, so that nothing is lost */
    uint32_t peak_bits = 0;
    for (int32_t i = 0; i < count; i++) {
        const int32_t moved = smg_shift_left(smg_clamp(v[i] >> deep, -most, most), raise);
        const int32_t u = (moved + centre + ((octets[i] << shift) >> 8)) >> shift;
        peak_bits |= (uint32_t)(u ^ -(u < 0));
        to[i] = (int8_t)smg_clamp(u, -127, 127);
    }
    return peak_bits;
}

/* Up to BLOCK elements; bytes and masks begin inside a word, or a byte, where `index` does. */
static inline void block(smg_rounding *r, const int32_t *sums, int32_t count, int32_t c, int32_t index,
                         const uint8_t *mask, int8_t *to) {
    uint8_t octets[BLOCK + 8];
    int8_t keep[BLOCK + 16];
    int32_t v[BLOCK];
    draw(r->key, (uint32_t)index / 4, (index % 4 + count + 3) / 4, octets);
    scale(r, sums, c, count, v);
    if (mask) {
        unpack(mask + index / 8, (index % 8 + count + 7) / 8, keep);
        for (int32_t i = 0; i < count; i++) v[i] &= keep[index % 8 + i];
    }
    r->peak_bits |= divide(r, v, octets + index % 4, count, to);
}

void smg_round_sums(smg_rounding *r, const int32_t *sums, int32_t count, int32_t c, int32_t index, const uint8_t *mask,
                    int8_t *to) {
#if defined(SMG_VNNI)
    if (index % 8 == 0) {
        smg_vnni_round_sums(r, sums, count, c, index, mask, to);
        return;
    }
#endif
    for (int32_t i = 0; i < count; i += BLOCK)
        block(r, sums + i, smg_min(BLOCK, count - i), c + i, index + i, mask, to + i);
}
