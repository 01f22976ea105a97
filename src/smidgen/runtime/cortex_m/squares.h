/* Depthwise filters of 3x3 and 5x5 over maps of four by four, padded to stay so.
 *
 * A channel's map is eight words: each column of the upper two rows, then of the lower two. A row of outputs is a
 * product of either half with a row of the filter's pairs: those of rows -1 and 0 first, then of 0 and 1, and so on;
 * of 3x3 with zeros before and behind. */
#ifndef SMIDGEN_SQUARES_H
#define SMIDGEN_SQUARES_H

#include "smidgen.h"

#include "strips.h"

enum { SMG_SQUARE_SIDE = 4, SMG_SQUARE_ROWS = 6 };

/* Whether a layer, or its gradient, is of this kind. */
#define SMG_IS_SQUARE(p)                                                                                        \
    ((p)->k_h == (p)->k_w && ((p)->k_w == 3 || (p)->k_w == 5) && (p)->pad_h == (p)->k_w / 2 &&                  \
     (p)->pad_w == (p)->k_w / 2 && (p)->stride_h == 1 && (p)->stride_w == 1 && (p)->dilation_h == 1 &&          \
     (p)->dilation_w == 1 && (p)->x_h == SMG_SQUARE_SIDE && (p)->x_w == SMG_SQUARE_SIDE &&                      \
     (p)->y_h == SMG_SQUARE_SIDE && (p)->y_w == SMG_SQUARE_SIDE && (p)->x_c == (p)->y_c)

/* Maps of some channels and filters, which may be turned round, as they are packed four by four. */
typedef struct {
    int32_t k, turned, channels;
    smg_weights w;
    uint32_t *words; /* [4 channels][8 + 6 k] */
    int8_t *taps;    /* [k][k][4], where some are trained */
    smg_columns list[2 + SMG_SQUARE_ROWS];
} smg_square;

/* Begin with a map less its zero point. */
void smg_begin_square(smg_square *square, const int8_t *x, int32_t zero);

/* Pack channels [c, c + 4). */
void smg_pack_square(smg_square *square, int32_t c);

/* Some packed channels, one after another, at the offsets the assembly names. */
typedef struct {
    const uint32_t *words;
    int32_t on; /* bytes from channel to channel */
    const int32_t *bias, *multiplier;
    const int8_t *shift;
    int8_t *y;
    int32_t channels, y_c, zero; /* zero: twice the zero point and 1 */
    int32_t wide;                /* filters are of 5x5 */
    int32_t bytes;               /* of an output: 1, or 4 where it is the sum itself */
} smg_squares;

/* Multiply, add and scale, with multipliers of a half and more and shifts of 2 and more to the right. */
void smg_run_squares(smg_squares *squares);

/* A whole layer of this kind with such scales, perhaps in its input's place. */
void smg_depthwise_squares(const smg_depthwise_s8_params *p, const int8_t *x, smg_weights w, const int32_t *b,
                           int8_t *y, void *scratch);

#endif
