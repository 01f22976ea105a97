/* The fully connected layer. */
#include "smidgen.h"

#include "arithmetic.h"
#include "gemm.h"

void smg_dense_s8(const smg_dense_s8_params *p, const int8_t *x, const int8_t *w, const int32_t *b, int8_t *y,
                  void *scratch) {
    const smg_requantize q = {p->multiplier, p->shift, p->y_zero, p->lo, p->hi};
    int16_t *tile = scratch;
    int8_t *out[SMG_TILE];
    for (int32_t r = 0; r < p->rows; r += SMG_TILE) {
        const int32_t rows = smg_min(SMG_TILE, p->rows - r);
        for (int32_t i = 0; i < rows * p->x_c; i++) tile[i] = (int16_t)(x[r * p->x_c + i] - p->x_zero);
        for (int32_t i = 0; i < rows; i++) out[i] = y + (r + i) * p->y_c;
        smg_gemm_s8(&q, tile, rows, p->x_c, w, b, p->y_c, out);
    }
}
