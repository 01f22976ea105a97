/* Strips of one channel, in C. */
#include "strips.h"

void smg_pick(const smg_strip *strip, const smg_strip *end, int32_t c, int32_t step) {
#if defined(__thumb__)
    if (strip < end) smg_pick_thumb(strip, end, c, step);
#else
    for (; strip < end; strip++) {
        const int8_t *x = strip->from + c;
        int32_t *to = strip->to, left = strip->count;
        for (; left >= 4; left -= 4, to += 4) {
            to[0] = *x;
            x += step;
            to[1] = *x;
            x += step;
            to[2] = *x;
            x += step;
            to[3] = *x;
            x += step;
        }
        for (int32_t i = 0; i < left; i++, x += step) to[i] = *x;
    }
#endif
}
