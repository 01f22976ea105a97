/* The passage from sums to an int8 gradient: scale, mask, round at random, saturate. A sum of 0 becomes 0 whatever is
 * drawn for it, so that what is masked or zero, most of a gradient, takes neither a product nor a random word. */
#include "columns.h"

/* Elements that are scaled before they are rounded: two short loops, for there are few registers. */
enum { BLOCK = 32 };

/* What is divided, by v / 2^shift, with a random byte; collects the bits that occur before saturation. */
static inline int32_t divide(smg_rounding *r, int32_t v, uint32_t octet) {
    const int32_t most = 1 << 20; /* what is shifted up is limited first, so that nothing is lost */
    v >>= r->deep;
    if (r->raise) v = smg_shift_left(smg_clamp(v, -most, most), r->raise);
    const int32_t u = (v + r->centre + (int32_t)((octet << r->shift) >> 8)) >> r->shift;
    r->peak_bits |= (uint32_t)(u ^ (u >> 31));
    return smg_clamp(u, -127, 127);
}

/* The scaled sums of channels c, c + 1, …; 0 where the mask stops them. */
static inline void scale(const smg_rounding *r, const int32_t *sums, int32_t count, int32_t c, int32_t index,
                         const uint8_t *mask, int32_t *v) {
    const int32_t lift = r->lift, several = r->factors > 1;
    const int32_t *multiplier = r->multiplier + (several ? c : 0);
    for (int32_t i = 0; i < count; i++, multiplier += several) {
        const int32_t sum = sums[i];
        v[i] = 0;
        if (!sum || (mask && !(mask[(index + i) >> 3] >> ((index + i) & 7) & 1))) continue;
        v[i] = smg_high_mul(smg_shift_left(sum, lift), *multiplier);
    }
}

void smg_round_sums(smg_rounding *r, const int32_t *sums, int32_t count, int32_t c, int32_t index, const uint8_t *mask,
                    int8_t *to) {
    int32_t v[BLOCK];
    for (int32_t start = 0; start < count; start += BLOCK) {
        const int32_t length = smg_min(BLOCK, count - start);
        uint32_t word = 0;
        int32_t drawn = -1;
        scale(r, sums + start, length, c + start, index + start, mask, v);
        for (int32_t i = 0; i < length; i++) {
            const int32_t at = index + start + i;
            int32_t u = 0;
            if (v[i]) {
                if (at >> 2 != drawn) {
                    drawn = at >> 2;
                    word = smg_word(r->key, (uint32_t)drawn);
                }
                u = divide(r, v[i], word >> (8 * (at & 3)) & 255);
            }
            to[start + i] = (int8_t)u;
        }
    }
}

void smg_round_column(smg_rounding *r, const int32_t *sums, int32_t count, int32_t c, int32_t index, int32_t step,
                      int8_t *to) {
    const int32_t multiplier = r->multiplier[r->factors > 1 ? c : 0];
    for (int32_t i = 0; i < count; i++, index += step, to += step) {
        int32_t u = 0;
        if (sums[i]) {
            const int32_t v = smg_high_mul(smg_shift_left(sums[i], r->lift), multiplier);
            const uint32_t word = smg_word(r->key, (uint32_t)index >> 2);
            u = divide(r, v, word >> (8 * (index & 3)) & 255);
        }
        *to = (int8_t)u;
    }
}
