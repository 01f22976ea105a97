/* Windows of sixteen channels at a time, tap by tap. */
#ifndef SMIDGEN_CHANNELS_H
#define SMIDGEN_CHANNELS_H

#include <stdint.h>

enum { SMG_CHANNELS = 16 };

/* How sums become outputs: of each quantity the channels 0, 4, 8, 12 first, then 1, 5, 9, 13, and so on. */
typedef struct {
    int32_t bias[SMG_CHANNELS], multiplier[SMG_CHANNELS], shift[SMG_CHANNELS]; /* shifts: to the right, so negative */
    int8_t lo[SMG_CHANNELS], hi[SMG_CHANNELS];
} smg_scales;

/* What the assembly reads: keep the order. Taps of a row lie side by side, as their weights do, row after row. */
typedef struct {
    const int8_t *const *rows; /* of the first window */
    int32_t row_count;         /* one at least */
    const int8_t *w;
    int32_t pairs, singles; /* taps of a row: two products have to fit 16 bits where they are taken as pairs */
    int32_t x_on, pixels;   /* bytes from window to window; windows: one at least */
    const smg_scales *scales;
    void *y;
    int32_t y_on; /* bytes from window to window */
    int32_t zero, lanes;
} smg_channels;

/* Multiply, scale and limit; `lanes` outputs of each window. */
void smg_scale_channels(const smg_channels *job);

/* Multiply and sum up from zero: y gets sixteen sums of each window. */
void smg_sum_channels(const smg_channels *job);

#endif
