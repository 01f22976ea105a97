/* Columns of a map, or of filters, packed: four channels at a time, two rows to a word. */
#ifndef SMIDGEN_STRIPS_H
#define SMIDGEN_STRIPS_H

#include <stdint.h>

/* Two rows to four strips, one a channel; one row to two strips, channels 0 and 2 in one, 1 and 3 in the other; one row
 * of filters to four strips, for use with the latter: each channel in the half where its columns are. */
enum { SMG_PAIR, SMG_ALONE, SMG_ALONE_FILTER };

/* `count` columns that are `step` bytes apart; with a step of 0 the same bytes serve for all, and for all channels. */
typedef struct {
    const int8_t *a, *b;
    int32_t a_step, b_step;
    uint32_t minus; /* added to both halves */
    uint32_t *to;
    int32_t apart, count; /* bytes from strip to strip */
    int32_t kind;
} smg_columns;

/* Pack some lists of columns, four channels each from `channel` on. */
void smg_pack_columns(const smg_columns *columns, int32_t lists, int32_t channel);

#endif
