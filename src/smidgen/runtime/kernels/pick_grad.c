/* The gradient of rows and columns picked from a map: sums over all places that an element was taken to. */
#include "smidgen_training.h"

#include "rounding.h"

static inline void add(const int8_t *dy, int32_t count, int32_t *sums) {
    for (int32_t n = 0; n < count; n++) sums[n] += dy[n];
}

/* Add up `count` channels of all elements of one row that column ix was taken to. */
static inline void add_row(const smg_pick_grad_g8_params *p, const int8_t *dy, int32_t ix, int32_t count,
                           int32_t *sums) {
    const int32_t at = ix % p->columns_of, first = ix / p->columns_of * p->columns_taken;
    for (int32_t i = at > 0 ? p->column_end[at - 1] : 0; i < p->column_end[at]; i++)
        add(dy + (first + p->column[i]) * p->c, count, sums);
}

/* The same of all rows that row iy was taken to. */
static inline void add_rows(const smg_pick_grad_g8_params *p, const int8_t *dy, int32_t iy, int32_t ix, int32_t count,
                            int32_t *sums) {
    const int32_t at = iy % p->rows_of, first = iy / p->rows_of * p->rows_taken;
    for (int32_t i = at > 0 ? p->row_end[at - 1] : 0; i < p->row_end[at]; i++)
        add_row(p, dy + (first + p->row[i]) * p->y_w * p->c, ix, count, sums);
}

void smg_pick_grad_g8(const smg_pick_grad_g8_params *p, const int8_t *dy, const uint8_t *mask,
                      const int32_t *step_state, int8_t *dx, int32_t *peak_bits) {
    smg_rounding r = SMG_BEGIN(p, step_state, smg_exponent(step_state, p->slot_in));
    for (int32_t at = 0; at < p->x_h * p->x_w; at++) {
        for (int32_t c = 0; c < p->c; c += SMG_SUMS) {
            const int32_t count = smg_min(SMG_SUMS, p->c - c), index = at * p->c + c;
            int32_t sums[SMG_SUMS] = {0};
            add_rows(p, dy + c, at / p->x_w, at % p->x_w, count, sums);
            smg_round_sums(&r, sums, count, c, index, mask, dx + index);
        }
    }
    *peak_bits = (int32_t)r.peak_bits;
}
