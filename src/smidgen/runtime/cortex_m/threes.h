/* Depthwise filters of 3x3 over a single row of outputs, four channels at a time.
 *
 * The upper two rows of the windows are packed as slide.h has it, one below the other; the columns of the third are
 * packed two by two, side by side, from an even column of the map on. */
#ifndef SMIDGEN_THREES_H
#define SMIDGEN_THREES_H

#include "scales.h"
#include "smidgen.h"

/* Four channels, one after another, at the offsets the assembly names. */
typedef struct {
    const uint32_t *x; /* strips of the upper rows, and bytes from channel to channel */
    int32_t x_on;
    const uint32_t *h; /* strips of the third row, likewise */
    int32_t h_on;
    const uint32_t *w; /* seven words each: three for the upper rows, then the third row's */
    const int32_t *bias, *multiplier;
    const int8_t *shift;
    int8_t *y;
    const int8_t *y_end; /* behind the last of the outputs, four and four */
    int32_t y_c;
    int32_t zero; /* twice the zero point and 1 */
    int32_t twos; /* windows step over every other column */
} smg_threes;

/* Multiply, add and scale, with multipliers of a half and more. */
void smg_run_threes(const smg_threes *threes);

/* Where in words of two columns windows begin: at the first of them, at the second, or at the second and the first in
 * turn. */
enum { SMG_EARLY, SMG_LATE, SMG_IN_TURN };

/* Pack the filters of four channels, whose taps are `step` bytes apart from w on, for the third row as windows begin. */
void smg_pack_threes(const int8_t *w, int32_t step, uint32_t *to, int32_t begin);

/* Whether a layer is for it, if the assembly can scale its channels. */
static inline int32_t smg_are_threes(const smg_depthwise_s8_params *p) {
    if (p->k_h != 3 || p->k_w != 3 || p->dilation_h != 1 || p->dilation_w != 1 || p->stride_w > 2) return 0;
    return p->y_c == p->x_c && p->y_c % 4 == 0 && p->y_w % 4 == 0 && p->x_w % 2 == 0 &&
           (p->stride_w == 2 || p->pad_w % 2);
}

/* Row oy of such a layer, whose output is not in its input's place. */
void smg_depthwise_threes(const smg_depthwise_s8_params *p, smg_map x, smg_weights w, const int32_t *b, smg_map y,
                          int32_t oy, void *scratch);

#endif
