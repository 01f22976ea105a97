/* The gradient of a 1x1 convolution's input, tile by tile: see grad_tiles.h. */
#include "grad_tiles.h"

#include "multiply.h"
#include "transpose.h"

enum { LANES = 4 };

/* Columns [c, c + 4) of the weights: where one is trained, its own. */
static void lay_columns(smg_weights w, int32_t rows, int32_t step, int32_t c, int8_t *to) {
    smg_transpose(w.data + c, step, rows, to);
    for (int32_t n = 0; n < w.count; n++) {
        const int32_t lane = w.channel[n] - c;
        for (int32_t i = 0; lane >= 0 && lane < LANES && i < rows; i++) to[lane * rows + i] = w.trained[i * w.count + n];
    }
}

void smg_grad_tiles(const smg_conv2d_grad_g8_params *p, smg_rounding *r, const int8_t *dy, smg_weights w, int8_t *dx,
                    void *scratch) {
    static const int32_t nothing[SMG_COLUMNS];
    const int32_t rows = p->y_c, pixels = p->x_h * p->x_w, part = smg_min(pixels, SMG_GRAD_WIDENED / rows & ~3);
    int32_t *sums = scratch;
    uint32_t *stream = (uint32_t *)(sums + part * SMG_COLUMNS), *wide = stream + rows + SMG_STREAM_WORDS(rows);
    int8_t *columns = (int8_t *)(wide + part * rows / 2);
    for (int32_t c = 0; c < p->x_c; c += SMG_COLUMNS) {
        lay_columns(w, rows, p->x_c, c, columns);
        lay_columns(w, rows, p->x_c, c + LANES, columns + LANES * rows);
        for (int32_t at = 0, count; at < pixels; at += count) {
            const int32_t index = at * p->x_c + c;
            count = smg_min(part, pixels - at);
            smg_tiles job = {
                .w = stream, .x = wide, .x_end = wide + count * rows / 2, .keep = 2, .y = (int8_t *)sums,
                .y_c = 4 * SMG_COLUMNS, .from = columns, .apart = rows, .words = rows / 4, .bias = nothing,
                .multiplier = nothing, .shift = (const int8_t *)nothing, .pairs = SMG_COLUMNS / 2,
            };
            if (c == 0 || part < pixels) smg_widen_pixels(dy + at * rows, rows, rows / 4, 0, wide, 4 * rows, count / 4);
            smg_multiply_tiles(&job);
            smg_round_columns(r, sums, count, c, index, p->x_c, 0, dx + index);
        }
    }
}
