/* The kernels that a program which learns calls in addition to those of smidgen.h: masks, gradients, the loss and
 * steps. */
#ifndef SMIDGEN_TRAINING_H
#define SMIDGEN_TRAINING_H

#include "smidgen.h"
#include "smidgen_state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How sums become a gradient: raised by `lift` bits and scaled by multiplier * 2^(shift - 31), with one multiplier or
 * `factors` of them, one per channel; from the exponent at slot_in of the step state to that at slot_out; rounded with
 * the random bits of `stream`. */
#define SMG_ROUNDING           \
    const int32_t *multiplier; \
    int32_t shift, factors, lift, slot_in, slot_out, stream

typedef struct {
    int32_t n, lo, hi;
} smg_mask_s8_params;

/* One bit per element: a >= b or, if `less`, a < b; b repeats every b_period elements. */
typedef struct {
    int32_t n, b_period, less;
} smg_compare_s8_params;

typedef struct {
    int32_t n, c;
    SMG_ROUNDING;
} smg_requantize_grad_g8_params;

/* The second gradient's exponent is at slot_b; `reach` bits below the larger exponent nothing is kept. */
typedef struct {
    int32_t n, c, slot_b, reach;
    SMG_ROUNDING;
} smg_sum_g8_params;

/* b repeats every b_period elements. */
typedef struct {
    int32_t n, c, b_period, b_zero;
    SMG_ROUNDING;
} smg_mul_grad_g8_params;

typedef struct {
    int32_t n, c, repeats;
    SMG_ROUNDING;
} smg_repeat_grad_g8_params;

/* Elements have `bits` fraction bits before they are rounded; a g0 up to `tiny` counts as 0. */
typedef struct {
    int32_t n;
    float scale, tiny;
    int32_t bits, slot, stream;
} smg_from_float_g8_params;

/* `n` runs of x_c channels, of which the y_c that `channel` lists are copied. */
typedef struct {
    int32_t n, x_c, y_c;
    const int32_t *channel;
} smg_gather_s8_params;

typedef struct {
    int32_t count;
} smg_advance_step_state_params;

typedef struct {
    int32_t n, c;
} smg_channel_sum_g8_params;

/* n positions of c channels. */
typedef smg_requantize_grad_g8_params smg_mean_grad_g8_params;

/* Fields are named as in the forward kernel: x has the shape of dx, y that of dy. */
typedef struct {
    SMG_WINDOW;
    SMG_ROUNDING;
} smg_max_pool_grad_g8_params;

/* The share of each element of a window is a fraction of share_bits bits. */
typedef struct {
    SMG_WINDOW;
    int32_t share_bits;
    SMG_ROUNDING;
} smg_avg_pool_grad_g8_params;

/* The inverse of smg_pick_s8: of every rows_of rows, row r was copied to rows row[i] of every rows_taken rows of the
 * gradient, for i from row_end[r - 1] (0 for the first) to row_end[r] - 1; columns likewise. */
typedef struct {
    int32_t x_h, x_w, c, y_w, rows_of, rows_taken, columns_of, columns_taken;
    const int32_t *row, *row_end, *column, *column_end;
    SMG_ROUNDING;
} smg_pick_grad_g8_params;

/* As smg_lstm_s8, for the slopes of its steps, six per cell: from dh to o and c, and from dc to i, f, g and the cell
 * state before. */
typedef smg_lstm_s8_params smg_lstm_slopes_s8_params;

/* As smg_gru_s8 with reset_after, for the slopes, five per cell: from dh to z and n, from dn to r, and z and r. */
typedef smg_gru_s8_params smg_gru_slopes_s8_params;

/* The scales of each gate's weights are x_scale / 2^x_places and h_scale / 2^h_places. dy is the gradient of every
 * hidden state where `whole` is set, else of the last one. */
typedef struct {
    int32_t steps, inputs, cells, whole, bits, x_places, h_places;
    const int32_t *x_scale, *h_scale;
    SMG_ROUNDING;
} smg_lstm_grad_g8_params;

typedef smg_lstm_grad_g8_params smg_gru_grad_g8_params; /* without `bits` */

/* Row r of the map gets row_share[i] of row row[i] of the gradient, for i from row_end[r - 1] (0 for the first) to
 * row_end[r] - 1; columns likewise. */
typedef struct {
    int32_t x_h, x_w, c, y_w;
    const int32_t *row, *row_share, *row_end, *column, *column_share, *column_end;
    SMG_ROUNDING;
} smg_resize_bilinear_grad_g8_params;

typedef struct {
    SMG_WINDOW;
    int32_t groups;
    SMG_ROUNDING;
} smg_conv2d_grad_g8_params;

typedef smg_max_pool_grad_g8_params smg_depthwise_grad_g8_params;

typedef struct {
    int32_t rows, x_c, y_c;
    SMG_ROUNDING;
} smg_dense_grad_g8_params;

/* As smg_matmul_s8, of which one factor is a gradient and the other an operand with a zero point. */
typedef struct {
    int32_t count, rows, columns, depth, gradient_first, left_row, left_step, right_step, right_column, zero;
    SMG_ROUNDING;
} smg_matmul_grad_g8_params;

/* The factor of each share loses `dropped` bits, so that products fit 32 bits. */
typedef struct {
    int32_t rows, c, dropped;
    SMG_ROUNDING;
} smg_softmax_grad_g8_params;

/* As smg_normalize_s8; the size of a group has `size_bits` bits, and sums have `fraction` bits after the point. */
typedef struct {
    int32_t rows, positions, groups, width, epsilon_high, epsilon_low, size_bits, fraction;
    SMG_ROUNDING;
} smg_normalize_grad_g8_params;

/* Sums have `fraction` bits after the point. */
typedef struct {
    int32_t rows, c, x_zero, fraction;
    SMG_ROUNDING;
} smg_unit_norm_grad_g8_params;

typedef smg_dense_f32_params smg_dense_grad_f32_params;

typedef struct {
    SMG_WINDOW;
    int32_t groups, x_zero;
} smg_conv2d_grad_weight_g8_params;

typedef struct {
    SMG_WINDOW;
    int32_t x_zero;
} smg_depthwise_grad_weight_g8_params;

typedef struct {
    int32_t rows, x_c, y_c, x_zero;
} smg_dense_grad_weight_g8_params;

typedef struct {
    int32_t classes;
} smg_softmax_cross_entropy_f32_params;

typedef smg_softmax_cross_entropy_f32_params smg_cross_entropy_grad_f32_params;

typedef struct {
    int32_t n;
} smg_sigmoid_cross_entropy_f32_params;

typedef smg_sigmoid_cross_entropy_f32_params smg_mean_squared_error_f32_params;

typedef struct {
    int32_t n, zero;
    float scale;
} smg_reconstruction_error_f32_params;

typedef struct {
    int32_t cells, classes;
} smg_cell_cross_entropy_f32_params;

typedef struct {
    int32_t n;
} smg_max_abs_f32_params;

/* The least and the largest biased float32 exponent of a rate; a rate outside counts as 0. */
typedef struct {
    int32_t least, largest;
} smg_rate_f32_params;

/* The update rule of a weight: its buffer adds up the steps of `accumulate` samples, then moves the weight, and keeps
 * `decay` / 65536 of its value. */
typedef struct {
    int32_t accumulate, decay;
} smg_rule;

/* The same for float32 weights: the buffer keeps `decay` of its value. */
typedef struct {
    int32_t accumulate;
    float decay;
} smg_rule_f32;

/* How sums become steps: raised by `lift` bits and scaled by their channel's multiplier * 2^(shift - 31) and by the
 * rate; `slot` is that of the gradient they are sums of. Where there are corrections, multipliers and shifts are those
 * of the layer, and smg_factor_of computes a channel's factor from them. */
#define SMG_STEPPING           \
    const int32_t *multiplier; \
    const int8_t *shift;       \
    const uint8_t *correction; \
    int32_t scale, exponent;   \
    int32_t slot, stream, lift; \
    smg_rule rule

typedef struct {
    int32_t c;
    SMG_STEPPING;
} smg_bias_step_params;

typedef struct {
    int32_t n, c;
    SMG_STEPPING;
} smg_bias_sum_step_params;

/* A bias that learns as a 16-bit difference: `unit` holds the shifts of its layer's multipliers, by which it counts. */
typedef struct {
    int32_t c;
    SMG_STEPPING;
    const int8_t *unit;
} smg_difference_step_params;

typedef struct {
    int32_t n, c;
    SMG_STEPPING;
    const int8_t *unit;
} smg_difference_sum_step_params;

typedef struct {
    int32_t c;
    const int8_t *shift;
} smg_learned_bias_params;

/* n weights in all, c channels, runs of `inner` weights of one channel. */
#define SMG_WEIGHTS                     \
    int32_t n, inner, c, fraction_bits; \
    SMG_STEPPING

typedef struct {
    SMG_WEIGHTS;
} smg_weight_step_params;

typedef struct {
    SMG_WINDOW;
    int32_t groups, x_zero;
    SMG_WEIGHTS;
} smg_conv2d_weight_step_params;

typedef struct {
    SMG_WINDOW;
    int32_t x_zero;
    SMG_WEIGHTS;
} smg_depthwise_weight_step_params;

typedef struct {
    int32_t rows, x_c, y_c, x_zero;
    SMG_WEIGHTS;
} smg_dense_weight_step_params;

typedef struct {
    int32_t x_c, y_c;
    smg_rule_f32 rule;
} smg_dense_step_f32_params;

/* Gradients: a NULL mask lets everything pass; `peak_bits` gets the bits that occur before saturation. */
void smg_mask_s8(const smg_mask_s8_params *p, const int8_t *y, uint8_t *mask);
void smg_compare_s8(const smg_compare_s8_params *p, const int8_t *a, const int8_t *b, uint8_t *mask);
void smg_requantize_grad_g8(const smg_requantize_grad_g8_params *p, const int8_t *dy, const uint8_t *mask,
                            const int32_t *step_state, int8_t *dx, int32_t *peak_bits);
void smg_sum_g8(const smg_sum_g8_params *p, const int8_t *a, const int8_t *b, const uint8_t *mask,
                const int32_t *step_state, int8_t *dx, int32_t *peak_bits);
void smg_mul_grad_g8(const smg_mul_grad_g8_params *p, const int8_t *dy, const int8_t *b, const uint8_t *mask,
                     const int32_t *step_state, int8_t *dx, int32_t *peak_bits);
void smg_repeat_grad_g8(const smg_repeat_grad_g8_params *p, const int8_t *dy, const uint8_t *mask,
                        const int32_t *step_state, int8_t *dx, int32_t *peak_bits);
void smg_from_float_g8(const smg_from_float_g8_params *p, const float *dy, const float *g0, const int32_t *step_state,
                       int8_t *dx, int32_t *peak_bits);
void smg_gather_s8(const smg_gather_s8_params *p, const int8_t *x, int8_t *y);
void smg_advance_step_state(const smg_advance_step_state_params *p, const int32_t *const *x, int32_t *after);
void smg_channel_sum_g8(const smg_channel_sum_g8_params *p, const int8_t *dy, int32_t *sums);
void smg_mean_grad_g8(const smg_mean_grad_g8_params *p, const int8_t *dy, const uint8_t *mask,
                      const int32_t *step_state, int8_t *dx, int32_t *peak_bits);
void smg_avg_pool_grad_g8(const smg_avg_pool_grad_g8_params *p, const int8_t *dy, const uint8_t *mask,
                          const int32_t *step_state, int8_t *dx, int32_t *peak_bits);
void smg_max_pool_grad_g8(const smg_max_pool_grad_g8_params *p, const int8_t *dy, const int8_t *x, const uint8_t *mask,
                          const int32_t *step_state, int8_t *dx, int32_t *peak_bits);
void smg_pick_grad_g8(const smg_pick_grad_g8_params *p, const int8_t *dy, const uint8_t *mask,
                      const int32_t *step_state, int8_t *dx, int32_t *peak_bits);
void smg_lstm_slopes_s8(const smg_lstm_slopes_s8_params *p, const int8_t *x, const int8_t *w, const int8_t *u,
                        const int32_t *b, int8_t *slopes, void *scratch);
void smg_gru_slopes_s8(const smg_gru_slopes_s8_params *p, const int8_t *x, const int8_t *w, const int8_t *u,
                       const int32_t *b, int8_t *slopes, void *scratch);
void smg_gru_grad_g8(const smg_gru_grad_g8_params *p, const int8_t *dy, const int8_t *slopes, const int8_t *w,
                     const int8_t *u, const uint8_t *mask, const int32_t *step_state, int8_t *dx, int32_t *peak_bits,
                     void *scratch);
void smg_lstm_grad_g8(const smg_lstm_grad_g8_params *p, const int8_t *dy, const int8_t *slopes, const int8_t *w,
                      const int8_t *u, const uint8_t *mask, const int32_t *step_state, int8_t *dx, int32_t *peak_bits,
                      void *scratch);
void smg_resize_bilinear_grad_g8(const smg_resize_bilinear_grad_g8_params *p, const int8_t *dy, const uint8_t *mask,
                                 const int32_t *step_state, int8_t *dx, int32_t *peak_bits);
void smg_conv2d_grad_g8(const smg_conv2d_grad_g8_params *p, const int8_t *dy, const smg_weights *w,
                        const uint8_t *mask, const int32_t *step_state, int8_t *dx, int32_t *peak_bits, void *scratch);
void smg_depthwise_grad_g8(const smg_depthwise_grad_g8_params *p, const int8_t *dy, const smg_weights *w,
                           const uint8_t *mask, const int32_t *step_state, int8_t *dx, int32_t *peak_bits,
                           void *scratch);
void smg_dense_grad_g8(const smg_dense_grad_g8_params *p, const int8_t *dy, const int8_t *w, const uint8_t *mask,
                       const int32_t *step_state, int8_t *dx, int32_t *peak_bits);
void smg_matmul_grad_g8(const smg_matmul_grad_g8_params *p, const int8_t *dy, const int8_t *other, const uint8_t *mask,
                        const int32_t *step_state, int8_t *dx, int32_t *peak_bits);
void smg_softmax_grad_g8(const smg_softmax_grad_g8_params *p, const int8_t *dy, const int8_t *y, const uint8_t *mask,
                         const int32_t *step_state, int8_t *dx, int32_t *peak_bits);
void smg_normalize_grad_g8(const smg_normalize_grad_g8_params *p, const int8_t *dy, const int8_t *x,
                           const int16_t *scale, const uint8_t *mask, const int32_t *step_state, int8_t *dx,
                           int32_t *peak_bits);
void smg_unit_norm_grad_g8(const smg_unit_norm_grad_g8_params *p, const int8_t *dy, const int8_t *x,
                           const uint8_t *mask, const int32_t *step_state, int8_t *dx, int32_t *peak_bits);
void smg_conv2d_grad_weight_g8(const smg_conv2d_grad_weight_g8_params *p, const int8_t *x, const int8_t *dy,
                               int32_t *dw);
void smg_depthwise_grad_weight_g8(const smg_depthwise_grad_weight_g8_params *p, const int8_t *x, const int8_t *dy,
                                  int32_t *dw);
void smg_dense_grad_weight_g8(const smg_dense_grad_weight_g8_params *p, const int8_t *x, const int8_t *dy, int32_t *dw);

/* The loss, and the float32 classifier's gradient. */
void smg_dense_grad_f32(const smg_dense_grad_f32_params *p, const float *dy, const float *w, float *dx);
void smg_softmax_cross_entropy_f32(const smg_softmax_cross_entropy_f32_params *p, const float *logits,
                                   const int32_t *label, float *loss, float *probabilities);
void smg_cross_entropy_grad_f32(const smg_cross_entropy_grad_f32_params *p, const float *probabilities,
                                const int32_t *label, float *d);
void smg_sigmoid_cross_entropy_f32(const smg_sigmoid_cross_entropy_f32_params *p, const float *logits,
                                   const float *target, float *loss, float *d);
void smg_mean_squared_error_f32(const smg_mean_squared_error_f32_params *p, const float *y, const float *target,
                                float *loss, float *d);
void smg_reconstruction_error_f32(const smg_reconstruction_error_f32_params *p, const float *y, const int8_t *x,
                                  float *loss, float *d);
void smg_cell_cross_entropy_f32(const smg_cell_cross_entropy_f32_params *p, const float *logits,
                                const uint8_t *labels, float *loss, float *d);
void smg_max_abs_f32(const smg_max_abs_f32_params *p, const float *x, float *largest);
void smg_rate_f32(const smg_rate_f32_params *p, const float *learning_rate, const float *g0, int32_t *rate);

/* Steps: weights, their fractions and their buffers in place, NULL for what is not kept. */
void smg_bias_step(const smg_bias_step_params *p, int32_t *b, int32_t *buffer, const int32_t *sums,
                   const int32_t *rate, const int32_t *step_state);
void smg_bias_sum_step(const smg_bias_sum_step_params *p, int32_t *b, int32_t *buffer, const int8_t *dy,
                       const int32_t *rate, const int32_t *step_state, void *scratch);
void smg_difference_step(const smg_difference_step_params *p, int16_t *difference, int32_t *buffer,
                         const int32_t *sums, const int32_t *rate, const int32_t *step_state);
void smg_difference_sum_step(const smg_difference_sum_step_params *p, int16_t *difference, int32_t *buffer,
                             const int8_t *dy, const int32_t *rate, const int32_t *step_state, void *scratch);
/* b = base + difference * 2^unit, saturated. */
void smg_learned_bias(const smg_learned_bias_params *p, const int32_t *base, const int16_t *difference, int32_t *b);
void smg_weight_step(const smg_weight_step_params *p, int8_t *w, uint8_t *fraction, int16_t *buffer,
                     const int32_t *sums, const int32_t *rate, const int32_t *step_state);
void smg_conv2d_weight_step(const smg_conv2d_weight_step_params *p, int8_t *w, uint8_t *fraction, int16_t *buffer,
                            const int8_t *x, const int8_t *dy, const int32_t *rate, const int32_t *step_state,
                            void *scratch);
void smg_depthwise_weight_step(const smg_depthwise_weight_step_params *p, int8_t *w, uint8_t *fraction,
                               int16_t *buffer, const int8_t *x, const int8_t *dy, const int32_t *rate,
                               const int32_t *step_state, void *scratch);
void smg_dense_weight_step(const smg_dense_weight_step_params *p, int8_t *w, uint8_t *fraction, int16_t *buffer,
                           const int8_t *x, const int8_t *dy, const int32_t *rate, const int32_t *step_state,
                           void *scratch);
void smg_dense_step_f32(const smg_dense_step_f32_params *p, float *w, float *b, float *w_buffer, float *b_buffer,
                        const float *x, const float *dy, const float *learning_rate, const int32_t *step_state);

#ifdef __cplusplus
}
#endif

#endif
