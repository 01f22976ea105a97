/* The passage from sums to an int8 gradient: scale, mask, round at random, saturate. A sum of 0 becomes 0 whatever is
 * drawn for it, so that what is masked or zero, most of a gradient, takes neither a product nor a random word. */
#include "columns.h"
#include "fours.h"
#include "noinline.h"

/* By itself where registers are few, so that its products have all of them. */
#if defined(__ARM_ARCH_6M__)
#define ALONE SMG_NOINLINE
#else
#define ALONE inline
#endif

/* One element; collects the bits that occur before saturation. */
static ALONE int32_t element(smg_rounding *r, int32_t sum, int32_t multiplier, uint32_t octet) {
    const int32_t shift = r->shift, most = 1 << 20; /* what is shifted up is limited first, so that nothing is lost */
    int32_t v = smg_high_mul(smg_shift_left(sum, r->lift), multiplier) >> r->deep;
    if (r->raise) v = smg_shift_left(smg_clamp(v, -most, most), r->raise);
    const int32_t u = (v + r->centre + (int32_t)((octet << shift) >> 8)) >> shift;
    const uint32_t bits = (uint32_t)(u ^ (u >> 31));
    r->peak_bits |= bits;
    return bits < 127 ? u : u < 0 ? -127 : 127;
}

/* Consecutive elements, one after another. */
static SMG_NOINLINE void round_some(smg_rounding *r, const int32_t *sums, int32_t count, int32_t c, int32_t index,
                                    const uint8_t *mask, int8_t *to) {
    const int32_t step = r->factors > 1, *multiplier = r->multiplier + (step ? c : 0);
    uint32_t word = 0;
    int32_t drawn = -1;
    for (int32_t end = index + count; index < end; index++, multiplier += step) {
        const int32_t sum = *sums++;
        int32_t u = 0;
        if (sum && smg_passes(mask, index)) {
            if (index >> 2 != drawn) {
                drawn = index >> 2;
                word = smg_word(r->key, (uint32_t)drawn);
            }
            u = element(r, sum, *multiplier, word >> (8 * (index & 3)) & 255);
        }
        *to++ = (int8_t)u;
    }
}

/* Whether the mask lets all elements pass. */
static int all_pass(const uint8_t *mask, int32_t index, int32_t count) {
    for (int32_t some; mask && count > 0; index += some, count -= some) {
        some = index % 8 || count < 8 ? 1 : 8; /* a bit, or a whole byte */
        if (some == 8 ? mask[index >> 3] != 255 : !smg_passes(mask, index)) return 0;
    }
    return 1;
}

/* As many fours as there are from a multiple of four on, all of which pass; gives how many elements. */
static SMG_NOINLINE int32_t round_fours(smg_rounding *r, const int32_t *sums, int32_t count, int32_t c, int32_t index,
                                        int8_t *to) {
    const int32_t several = r->factors > 1, whole = count & ~3, golden = (int32_t)0x9E3779B9u, m = r->multiplier[0];
    const int32_t same[4] = {m, m, m, m};
    smg_fours all = {r->lift, r->deep, r->shift, r->centre, 1 << 14, (uint32_t)golden, 0x7FEB352Du, 0x846CA68Bu,
                     several ? 16 : 0, sums + whole, r->key + (uint32_t)golden * (uint32_t)(index >> 2), 0};
    if (whole) smg_round_fours(&all, sums, several ? r->multiplier + c : same, to);
    r->peak_bits |= all.peak_bits;
    return whole;
}

void smg_round_sums(smg_rounding *r, const int32_t *sums, int32_t count, int32_t c, int32_t index, const uint8_t *mask,
                    int8_t *to) {
    const int fours = !r->raise && index % 4 == 0 && all_pass(mask, index, count);
    const int32_t done = fours ? round_fours(r, sums, count, c, index, to) : 0;
    round_some(r, sums + done, count - done, c + done, index + done, mask, to + done);
}

void smg_round_column(smg_rounding *r, const int32_t *sums, int32_t count, int32_t c, int32_t index, int32_t step,
                      int8_t *to) {
    const int32_t multiplier = r->multiplier[r->factors > 1 ? c : 0];
    for (const int32_t *end = sums + count; sums != end; sums++, index += step, to += step) {
        int32_t u = 0;
        if (*sums) {
            const uint32_t word = smg_word(r->key, (uint32_t)index >> 2);
            u = element(r, *sums, multiplier, word >> (8 * (index & 3)) & 255);
        }
        *to = (int8_t)u;
    }
}
