/* Bytes laid out for the kernels: columns of matrices, and rows of maps for windows of sixteen channels. */
#ifndef SMIDGEN_LAYING_H
#define SMIDGEN_LAYING_H

#include <arm_mve.h>

#include "channels.h"
#include "window.h"

/* A column of a matrix of `rows` rows, which lie `step` bytes from each other: SMG_WIDEST at most. */
static inline void smg_lay_column(const int8_t *from, int32_t step, int32_t rows, int8_t *to) {
    const uint16x8_t places = vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)step);
    for (; rows > 0; rows -= 8, from += 8 * step, to += 8) {
        const mve_pred16_t some = vctp16q((uint32_t)rows);
        vstrbq_p_s16(to, vldrbq_gather_offset_z_s16(from, places, some), some);
    }
}

/* The same as one of four columns that are multiplied at once: see two_pixels.inc. */
static inline void smg_pack_column(const int8_t *from, int32_t step, int32_t rows, int8_t *to) {
    const int32_t first = ((rows - 1) & 15) + 1;
    const uint16x8_t places = vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)step);
    smg_lay_column(from, step, first, to);
    from += first * step;
    for (int32_t left = rows - first; left > 0; left -= 16, from += 16 * step) {
        to += 64;
        vstrbq_s16(to, vldrbq_gather_offset_s16(from, places));
        vstrbq_s16(to + 8, vldrbq_gather_offset_s16(from + 8 * step, places));
    }
}

/* With what stands for zero at the borders: `count` columns from `left` on, each `step` from the next, of a row of `width` columns that lie `on` bytes apart: the
 * first `lanes` channels of each, and zeros for the others. */
static inline void smg_lay_row(const int8_t *row, int32_t on, int32_t width, int32_t left, int32_t step, int32_t count,
                               int32_t lanes, int32_t zero, int8_t *to) {
    const smg_taps inside = smg_taps_inside(left, count, step, width);
    const mve_pred16_t some = vctp8q((uint32_t)lanes);
    const int8x16_t zeros = vdupq_n_s8((int8_t)zero);
    const int8_t *from = row + (left + inside.from * step) * on;
    for (int32_t i = 0; i < inside.from; i++, to += SMG_CHANNELS) vstrbq_s8(to, zeros);
    if (lanes == SMG_CHANNELS)
        for (int32_t i = inside.from; i < inside.to; i++, to += SMG_CHANNELS, from += step * on)
            vstrbq_s8(to, vldrbq_s8(from));
    else
        for (int32_t i = inside.from; i < inside.to; i++, to += SMG_CHANNELS, from += step * on)
            vstrbq_s8(to, vldrbq_z_s8(from, some));
    for (int32_t i = inside.to; i < count; i++, to += SMG_CHANNELS) vstrbq_s8(to, zeros);
}

#endif
