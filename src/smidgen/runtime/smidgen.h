/* The kernels a compiled graph calls: their parameters, their memory, their prototypes.
 *
 * Every kernel takes its parameters, its inputs, its outputs, then what its family adds:
 *   spatial kernels      the output rows [y0, y1) to compute; maps are found by rows
 *   elementwise kernels  the number of elements
 *   some                 working memory, as many bytes as the kernel's smg_*_working returns
 * Tensors are NHWC with a batch of one. Nothing is allocated, nothing is kept between calls. */
#ifndef SMIDGEN_H
#define SMIDGEN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The alignment a plan gives every tensor, and so the arena. */
#if defined(__GNUC__)
#define SMG_ALIGNED __attribute__((aligned(16)))
#else
#define SMG_ALIGNED
#endif

/* A map of which the last `rows` rows are held: row r lies at data + (r % rows) * row_bytes.
 * With `rows` at the map's height this is the whole map; with less it is a ring buffer. */
typedef struct {
    int8_t *data;
    int32_t rows;
} smg_map;

/* Weights, of which `count` channels of the last axis may be trained: channel[i], in ascending order, lies in
 * `trained`, whose last axis has `count` elements, instead of in `data`. */
typedef struct {
    const int8_t *data;
    const int8_t *trained;
    const int16_t *channel;
    int32_t count;
} smg_weights;

/* The geometry every spatial kernel's parameters begin with; padding is what lies before the map. */
#define SMG_WINDOW                                       \
    int32_t x_h, x_w, x_c, y_h, y_w, y_c, k_h, k_w;      \
    int32_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w

/* Accumulators become int8: scaled by the channel's multiplier * 2^(shift - 31), plus y_zero, limited to lo ... hi. */
typedef struct {
    SMG_WINDOW;
    int32_t groups, x_zero, y_zero, lo, hi;
    const int32_t *multiplier;
    const int8_t *shift;
} smg_conv2d_s8_params;

typedef struct {
    SMG_WINDOW;
    int32_t x_zero, y_zero, lo, hi;
    const int32_t *multiplier;
    const int8_t *shift;
} smg_depthwise_s8_params;

typedef struct {
    int32_t rows, x_c, y_c, x_zero, y_zero, lo, hi;
    const double *factor; /* TFLite scales this layer alone in double */
} smg_dense_s8_params;

/* `count` products of a rows x depth matrix a and a depth x columns matrix b. Elements lie a_row apart from row to row
 * of a, b_column apart from column to column of b, and a_step and b_step apart along the depth. */
typedef struct {
    int32_t count, rows, columns, depth, a_row, a_step, b_step, b_column, a_zero, b_zero, y_zero, multiplier, shift;
} smg_matmul_s8_params;

typedef struct {
    SMG_WINDOW;
    int32_t lo, hi;
} smg_max_pool_s8_params;

typedef smg_max_pool_s8_params smg_avg_pool_s8_params;

typedef struct {
    int32_t x_h, x_w, x_c, x_zero, y_zero, multiplier, shift;
} smg_mean_s8_params;

/* b repeats every b_period elements. */
typedef struct {
    int32_t a_zero, b_zero, y_zero, b_period, lo, hi;
    int32_t a_multiplier, a_shift, b_multiplier, b_shift, y_multiplier, y_shift;
} smg_add_s8_params;

typedef struct {
    int32_t a_zero, b_zero, y_zero, b_period, lo, hi, multiplier, shift;
} smg_mul_s8_params;

typedef struct {
    int32_t x_zero, y_zero, multiplier, shift, lo, hi;
} smg_rescale_s8_params;

/* b repeats every b_period elements. */
typedef struct {
    int32_t b_period;
} smg_maximum_s8_params;

typedef struct {
    int32_t n;
} smg_assign_s8_params;

/* The slope repeats every slope_period elements; slope_multiplier and slope_shift scale x * slope. */
typedef struct {
    int32_t x_zero, slope_zero, y_zero, slope_period, multiplier, shift, slope_multiplier, slope_shift;
} smg_prelu_s8_params;

/* The 256 results, one for each int8 number, that of -128 first. */
typedef struct {
    const int8_t *table;
} smg_lookup_s8_params;

typedef struct {
    int32_t zero;
    float scale;
} smg_quantize_f32_s8_params;

typedef smg_quantize_f32_s8_params smg_dequantize_s8_f32_params;

/* Shapes have four dimensions, leading ones are 1. */
typedef struct {
    const int32_t *x_shape, *y_shape, *before;
    int32_t zero;
} smg_pad_s8_params;

/* x_step[i]: elements of the input between neighbours along dimension i of the output. */
typedef struct {
    const int32_t *y_shape, *x_step;
} smg_transpose_s8_params;

typedef struct {
    const int32_t *x_shape, *y_shape, *start;
} smg_crop_s8_params;

/* Of every rows_of rows, the rows_taken that `row` lists are taken; columns likewise. */
typedef struct {
    int32_t x_w, c, y_h, y_w, rows_of, rows_taken, columns_of, columns_taken;
    const int32_t *row, *column;
} smg_pick_s8_params;

/* Row i of the output lies at row_first + i * row_step of the input, in 1/1024 of a row; columns likewise. */
typedef struct {
    int32_t x_h, x_w, c, y_h, y_w, row_step, row_first, column_step, column_first;
} smg_resize_bilinear_s8_params;

/* Each of `outer` runs of the output takes part[i] contiguous elements of input i, for `count` inputs. */
typedef struct {
    int32_t outer, count;
    const int32_t *part;
} smg_concat_s8_params;

/* Where x is more than -least below its row's maximum, its exponential counts as 0. */
typedef struct {
    int32_t rows, c, multiplier, shift, least;
} smg_softmax_s8_params;

typedef smg_softmax_s8_params smg_log_softmax_s8_params;

/* The first parameters of every recurrent layer: each gate has its own factors, which scale its sums to Q3.12. The
 * output is every hidden state where `whole` is set, else the last one. */
#define SMG_RECURRENT                                                           \
    int32_t steps, inputs, cells, whole, x_zero, y_zero, y_multiplier, y_shift; \
    const int32_t *x_multiplier, *h_multiplier;                                 \
    const int8_t *x_shift, *h_shift

/* Gates i, f, g, o. The cell state has `bits` bits before the point; `limit` is its largest magnitude, 0 for none. */
typedef struct {
    SMG_RECURRENT;
    int32_t bits, limit;
} smg_lstm_s8_params;

/* Gates r, z, n; r acts on the state itself or, with reset_after, on what the state gives to n. */
typedef struct {
    SMG_RECURRENT;
    int32_t reset_after, gated_multiplier, gated_shift;
} smg_gru_s8_params;

/* `rows` tensors of positions * groups * width elements, with one scale and one shift per channel (groups * width of
 * them); each group has its own mean and variance. epsilon_high * 2^31 + epsilon_low is epsilon in units of n * n times
 * the variance of int8 numbers. */
typedef struct {
    int32_t rows, positions, groups, width, epsilon_high, epsilon_low, y_zero, multiplier, shift;
} smg_normalize_s8_params;

typedef struct {
    int32_t rows, c, x_zero;
} smg_unit_norm_s8_params;

/* `count` sums of d features that count from `zero`, each with a sign, halved `shift` times: of as many rows of
 * Hadamard's matrix, which is `width` wide, the least power of two from d on. */
typedef struct {
    int32_t d, count, width, zero, shift;
} smg_project_s8_params;

typedef struct {
    int32_t rows, x_c, y_c;
} smg_dense_f32_params;

void smg_conv2d_s8(const smg_conv2d_s8_params *p, const smg_map *x, const smg_weights *w, const int32_t *b,
                   const smg_map *y, int32_t y0, int32_t y1, void *scratch);
void smg_depthwise_s8(const smg_depthwise_s8_params *p, const smg_map *x, const smg_weights *w, const int32_t *b,
                      const smg_map *y, int32_t y0, int32_t y1, void *scratch);
void smg_dense_s8(const smg_dense_s8_params *p, const int8_t *x, const int8_t *w, const int32_t *b, int8_t *y);
void smg_matmul_s8(const smg_matmul_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y);
void smg_max_pool_s8(const smg_max_pool_s8_params *p, const smg_map *x, const smg_map *y, int32_t y0, int32_t y1);
void smg_avg_pool_s8(const smg_avg_pool_s8_params *p, const smg_map *x, const smg_map *y, int32_t y0, int32_t y1);
void smg_mean_s8(const smg_mean_s8_params *p, const int8_t *x, int8_t *y);
void smg_add_s8(const smg_add_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y, int32_t count);
void smg_mul_s8(const smg_mul_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y, int32_t count);
void smg_assign_s8(const smg_assign_s8_params *p, const int8_t *x, int8_t *y);
void smg_maximum_s8(const smg_maximum_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y, int32_t count);
void smg_prelu_s8(const smg_prelu_s8_params *p, const int8_t *x, const int8_t *slope, int8_t *y, int32_t count);
void smg_rescale_s8(const smg_rescale_s8_params *p, const int8_t *x, int8_t *y, int32_t count);
void smg_lookup_s8(const smg_lookup_s8_params *p, const int8_t *x, int8_t *y, int32_t count);
void smg_quantize_f32_s8(const smg_quantize_f32_s8_params *p, const float *x, int8_t *y, int32_t count);
void smg_dequantize_s8_f32(const smg_dequantize_s8_f32_params *p, const int8_t *x, float *y, int32_t count);
void smg_pad_s8(const smg_pad_s8_params *p, const int8_t *x, int8_t *y);
void smg_crop_s8(const smg_crop_s8_params *p, const int8_t *x, int8_t *y);
void smg_pick_s8(const smg_pick_s8_params *p, const int8_t *x, int8_t *y);
void smg_resize_bilinear_s8(const smg_resize_bilinear_s8_params *p, const int8_t *x, int8_t *y);
void smg_transpose_s8(const smg_transpose_s8_params *p, const int8_t *x, int8_t *y);
void smg_concat_s8(const smg_concat_s8_params *p, const int8_t *const *x, int8_t *y);
void smg_softmax_s8(const smg_softmax_s8_params *p, const int8_t *x, int8_t *y);
void smg_log_softmax_s8(const smg_log_softmax_s8_params *p, const int8_t *x, int8_t *y);
void smg_lstm_s8(const smg_lstm_s8_params *p, const int8_t *x, const int8_t *w, const int8_t *u, const int32_t *b,
                 int8_t *y, void *scratch);
void smg_gru_s8(const smg_gru_s8_params *p, const int8_t *x, const int8_t *w, const int8_t *u, const int32_t *b,
                int8_t *y, void *scratch);
void smg_normalize_s8(const smg_normalize_s8_params *p, const int8_t *x, const int16_t *scale, const int32_t *shift,
                      int8_t *y);
void smg_unit_norm_s8(const smg_unit_norm_s8_params *p, const int8_t *x, int8_t *y);
void smg_project_s8(const smg_project_s8_params *p, const int8_t *x, int8_t *y, void *scratch);
void smg_dense_f32(const smg_dense_f32_params *p, const float *x, const float *w, const float *b, float *y);

#ifdef __cplusplus
}
#endif

#endif
