/* The gradient of a depthwise convolution's input over maps of four by four: filters, turned round, over the gradient. */
#include "squares_grad.h"

#include "squares.h"

enum { BLOCK = SMG_SLIDE_BLOCK, ELEMENTS = SMG_SQUARE_SIDE * SMG_SQUARE_SIDE };

/* The sums of channels [c, c + 4). */
static void sum_up(smg_square *square, int32_t c, int32_t words, int32_t *sums) {
    static const int32_t nothing[BLOCK];
    smg_squares job = {square->words, 4 * words, nothing, nothing, (const int8_t *)nothing, (int8_t *)sums,
                       BLOCK, 4 * SMG_COLUMNS, 0, square->k == 5, 4};
    smg_pack_square(square, c);
    smg_run_squares(&job);
}

void smg_square_gradients(const smg_depthwise_grad_g8_params *p, smg_rounding *r, const int8_t *dy, smg_weights w,
                          const uint8_t *mask, int8_t *dx, void *scratch) {
    int32_t *sums = scratch;
    const int32_t words = 8 + SMG_SQUARE_ROWS * p->k_w;
    uint32_t *packed = (uint32_t *)(sums + ELEMENTS * SMG_COLUMNS);
    smg_square square = {p->k_w, 1, p->x_c, w, packed, (int8_t *)(packed + BLOCK * words), {{0}}};
    smg_begin_square(&square, dy, 0);
    for (int32_t c = 0; c < p->x_c; c += SMG_COLUMNS) {
        sum_up(&square, c, words, sums);
        sum_up(&square, c + BLOCK, words, sums + BLOCK);
        smg_round_columns(r, sums, ELEMENTS, c, c, p->x_c, mask, dx + c);
    }
}
