/* Working memory of kernels: `smg_<kernel>_working` returns the bytes that a call needs.
 *
 * Plans ask these functions on the machine that compiles a program; no board runs them. Each folder of kernels has its
 * own, in working*.c. They compute in 64 bits: a map that is too large for a plan still gets its true size. */
#ifndef SMIDGEN_WORKING_MEMORY_H
#define SMIDGEN_WORKING_MEMORY_H

#include "smidgen_sums.h"
#include "smidgen_training.h"

/* What a plan knows of a call in addition to its kernel's parameters. */
typedef struct {
    int32_t by_row;   /* it computes one output row, not the whole map */
    int32_t in_place; /* its output may take its input's memory */
    int32_t masked;   /* the gradient it computes passes a mask */
} smg_call;

#define SMG_WORKING(kernel) \
    int64_t kernel##_working(const kernel##_params *p, const smg_call *call __attribute__((unused)))

/* x rounded up to a multiple. */
static inline int64_t smg_up(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

static inline int64_t smg_least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t smg_most(int64_t a, int64_t b) { return a > b ? a : b; }

/* A copy of some channels of a map, where the output may take its place. */
static inline int64_t smg_copy_bytes(int32_t h, int32_t w, int32_t channels, const smg_call *call) {
    return call->in_place ? (int64_t)h * w * channels : 0;
}

/* Whether the gradient of a convolution is that of 1x1 windows, pixel by pixel. */
static inline int smg_is_pixelwise(const smg_conv2d_grad_g8_params *p) {
    return p->k_h == 1 && p->k_w == 1 && p->stride_h == 1 && p->stride_w == 1 && p->groups == 1 && p->x_h == p->y_h &&
           p->x_w == p->y_w;
}

#endif
