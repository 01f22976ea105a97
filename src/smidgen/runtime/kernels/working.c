/* Working memory of the portable kernels, as each lays it out. */
#include "smidgen_working.h"
#include "working.h"

/* The sums of a tile, pieces of windows, and the weights of a piece, or all where they are no longer than one. */
SMG_WORKING(smg_conv2d_s8) {
    const int64_t channels = p->x_c / p->groups, k = p->k_h * p->k_w * channels, rows = call->by_row ? 1 : p->y_h;
    const int64_t little = rows == 1 && k <= SMG_CONV_DEPTH;
    const int64_t tile = smg_least(little ? SMG_CONV_ROW_TILE : SMG_CONV_TILE, smg_up(rows * p->y_w, SMG_PIXELS));
    const int64_t whole_rows = p->dilation_w == 1 && p->k_w * channels <= SMG_CONV_DEPTH;
    const int64_t piece = (whole_rows ? p->k_w : 1) * smg_least(channels, SMG_CONV_DEPTH);
    const int64_t windows = little ? k : SMG_CONV_DEPTH, weights = k <= SMG_CONV_DEPTH ? k : piece;
    return 4 * SMG_LANES * tile + 4 * SMG_PIXELS * windows + 2 * SMG_LANES * weights;
}

/* Weights, strips of the input, the sums of a tile, and a copy of some channels where the output may lie. */
SMG_WORKING(smg_depthwise_s8) {
    const int64_t single = call->by_row || p->y_h == 1, overlap = p->dilation_w == 1 && p->stride_w <= p->k_w;
    const int64_t tile = overlap ? smg_least(single ? SMG_DEPTHWISE_ROW_TILE : SMG_DEPTHWISE_TILE, p->y_w) : 1;
    const int64_t columns = (tile - 1) * p->stride_w + p->k_w, strips = 4 * SMG_LANES * p->k_h * columns;
    const int64_t kept = !single && p->dilation_h == 1 && strips <= SMG_DEPTHWISE_KEPT ? p->k_h : 1;
    return 4 * SMG_LANES * (p->k_h * p->k_w + kept * columns + tile + tile % 2) +
           smg_copy_bytes(p->x_h, p->x_w, SMG_LANES, call);
}

SMG_WORKING(smg_depthwise_grad_g8) { return smg_copy_bytes(p->y_h, p->y_w, SMG_COPIED, call); }

/* A state of int16, and the hidden state before the last where that alone is given. */
SMG_WORKING(smg_lstm_s8) { return (2 + (!p->whole && p->steps > 1)) * p->cells; }

/* The same, and the state times its gates where these act on the state itself. */
SMG_WORKING(smg_gru_s8) { return (2 + (!p->whole && p->steps > 1) + !p->reset_after) * p->cells; }

/* A state of int16 and, in turns, two hidden states. */
SMG_WORKING(smg_lstm_slopes_s8) { return (2 + smg_least(p->steps, 2)) * p->cells; }

SMG_WORKING(smg_gru_slopes_s8) { return (2 + smg_least(p->steps, 2)) * p->cells; }

/* int32 gradients of a hidden state, a cell state and four gates. */
SMG_WORKING(smg_lstm_grad_g8) { return 4 * (2 + 4) * p->cells; }

/* int32 gradients of a hidden state and of three gates. */
SMG_WORKING(smg_gru_grad_g8) { return 4 * (1 + 3) * p->cells; }

/* One int32 for each weight of a run that is stepped at once: an output channel's, a tap's, an output's. */
SMG_WORKING(smg_conv2d_weight_step) { return 4 * (int64_t)p->inner; }

SMG_WORKING(smg_depthwise_weight_step) { return 4 * (int64_t)p->c; }

SMG_WORKING(smg_dense_weight_step) { return 4 * (int64_t)p->inner; }

SMG_WORKING(smg_bias_sum_step) { return 4 * (int64_t)p->c; }

SMG_WORKING(smg_difference_sum_step) { return 4 * (int64_t)p->c; }

/* A sum for each row of the matrix. */
SMG_WORKING(smg_project_s8) { return 4 * (int64_t)p->width; }

/* A triangle of numbers, and three vectors. */
SMG_WORKING(smg_solve_f32) { return 4 * ((int64_t)p->d * (p->d + 1) / 2 + 3 * (int64_t)p->d); }
