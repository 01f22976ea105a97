/* The passage from sums to an int8 gradient, sixteen elements at a time in vectors.
 *
 * An element is ((v + centre) / 2^k + random byte) / 2^8, with 2^k the step of a random byte: rounding down twice is
 * rounding down once, and to add the centre and divide is to round. What is scaled up is done element by element, and so
 * is what is raised to that byte's step and then saturates. */
#include <arm_mve.h>

#include "sixteens.h"

#include "noinline.h"

enum { SIXTEEN = SMG_SIXTEEN };

/* One element before saturation, as the contract says it. */
static inline int32_t quotient(const smg_rounding *r, int32_t sum, int32_t c, int32_t index, const uint8_t *mask) {
    const int32_t most = r->raise ? 1 << 20 : INT32_MAX; /* what is shifted up is limited, so that nothing is lost */
    const int32_t octet = (int32_t)(smg_word(r->key, (uint32_t)index / 4) >> (8 * (index & 3)) & 255);
    if (mask && !(mask[index >> 3] >> (index & 7) & 1)) return 0;
    const int32_t v = smg_high_mul(smg_shift_left(sum, r->lift), r->multiplier[r->factors > 1 ? c : 0]);
    const int32_t moved = smg_shift_left(smg_clamp(v >> r->deep, -most, most), r->raise);
    return (moved + r->centre + ((octet << r->shift) >> 8)) >> r->shift;
}

static SMG_NOINLINE void round_some(smg_rounding *r, const int32_t *sums, int32_t count, int32_t c, int32_t index,
                                    const uint8_t *mask, int8_t *to) {
    for (int32_t i = 0; i < count; i++) {
        const int32_t u = quotient(r, sums[i], c + i, index + i, mask);
        r->peak_bits |= (uint32_t)(u ^ -(u < 0));
        to[i] = (int8_t)smg_clamp(u, -127, 127);
    }
}

/* Round the job's sixteens; gives whether that is done. */
static int run(smg_rounding *r, smg_sixteens *job) {
    if (smg_round_sixteens(job) && job->move > 0) return 0;
    const uint32_t four = job->peak[0] | job->peak[1] | job->peak[2] | job->peak[3], two = four | four >> 16;
    r->peak_bits |= ((two | two >> 8) & 255) | job->wide[0] | job->wide[1] | job->wide[2] | job->wide[3];
    return 1;
}

/* The same where a sixteen has one byte of mask: two are read of each, so the last is copied, with none behind it. */
static SMG_NOINLINE int run_halves(smg_rounding *r, smg_sixteens job) {
    const int32_t before = job.count - 1;
    const uint16_t last = job.mask[before * job.mask_step];
    job.count = before;
    if (before && !run(r, &job)) return 0;
    job.sums += before * SIXTEEN;
    job.to += before * job.to_step;
    job.key += (uint32_t)before * job.key_step;
    job.mask = (const uint8_t *)&last;
    job.count = 1;
    return run(r, &job);
}

/* `count` sixteens whose channels go on by `c_step`, 0 or 16, and whose indices by `step`; gives whether they are
 * rounded. */
static int round_sixteens(smg_rounding *r, const int32_t *sums, int32_t count, int32_t lanes, int32_t c, int32_t c_step,
                          int32_t index, int32_t step, const uint8_t *mask, int8_t *to) {
    static const uint16_t everything = 0xFFFF;
    const uint32_t golden = 0x9E3779B9u;
    int32_t own[SIXTEEN];
    smg_sixteens job = {
        sums, own, to, mask ? mask + index / 8 : (const uint8_t *)&everything,
        r->lift, 8 - r->shift - r->deep, r->key + golden * (uint32_t)(index / 4),
        0, step, mask ? step / 8 : 0, golden * (uint32_t)(step / 4), lanes, count, {0, 0, 0, 0}, {0, 0, 0, 0},
    };
    if (r->raise) return 0;
    if (r->factors > 1 && c_step) {
        job.multiplier = r->multiplier + c;
        job.multiplier_step = 4 * c_step;
    }
    for (int32_t i = 0; i < SIXTEEN && !job.multiplier_step; i += 4) {
        const mve_pred16_t some = vctp32q((uint32_t)smg_max(lanes - i, 0));
        vstrwq_s32(own + i, r->factors > 1 ? vldrwq_z_s32(r->multiplier + c + i, some) : vdupq_n_s32(*r->multiplier));
    }
    return mask && lanes <= 8 ? run_halves(r, job) : run(r, &job);
}

void smg_round_channels(smg_rounding *r, const int32_t *sums, int32_t count, int32_t lanes, int32_t c, int32_t index,
                        int32_t step, const uint8_t *mask, int8_t *to) {
    if (round_sixteens(r, sums, count, lanes, c, 0, index, step, mask, to)) return;
    for (int32_t i = 0; i < count; i++)
        round_some(r, sums + i * SIXTEEN, lanes, c, index + i * step, mask, to + i * step);
}

void smg_round_sums(smg_rounding *r, const int32_t *sums, int32_t count, int32_t c, int32_t index, const uint8_t *mask,
                    int8_t *to) {
    const int32_t ahead = smg_min(-index & 7, count), whole = (count - ahead) / SIXTEEN, end = ahead + whole * SIXTEEN;
    int32_t last[SIXTEEN] = {0};
    if (ahead) round_some(r, sums, ahead, c, index, mask, to);
    if (whole && !round_sixteens(r, sums + ahead, whole, SIXTEEN, c + ahead, SIXTEEN, index + ahead, SIXTEEN, mask,
                                 to + ahead))
        round_some(r, sums + ahead, end - ahead, c + ahead, index + ahead, mask, to + ahead);
    if (end == count) return;
    for (int32_t i = end; i < count; i++) last[i - end] = sums[i];
    if (!round_sixteens(r, last, 1, count - end, c + end, 0, index + end, SIXTEEN, mask, to + end))
        round_some(r, last, count - end, c + end, index + end, mask, to + end);
}
