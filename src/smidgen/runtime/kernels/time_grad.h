/* What gradients back through time share: fixed point with 12 bits behind the point, and products with weights. */
#ifndef SMIDGEN_TIME_GRAD_H
#define SMIDGEN_TIME_GRAD_H

#include "smidgen_training.h"

#include "rounding.h"

enum { SMG_POINT = 12, SMG_COARSE = 7, SMG_SHARE = 8, SMG_SHARE_ZERO = -128, SMG_MOST_BACK = 1 << 23 };

static inline int32_t smg_limited(int64_t x) {
    return x > SMG_MOST_BACK ? SMG_MOST_BACK : x < -SMG_MOST_BACK ? -SMG_MOST_BACK : (int32_t)x;
}

/* x / 2^bits, halves up. */
static inline int32_t smg_halves_up(int32_t x, int32_t bits) { return (x + ((1 << bits) >> 1)) >> bits; }

/* The gradient of step t's hidden states, where there is one. */
static inline const int8_t *smg_given_at(const smg_lstm_grad_g8_params *p, const int8_t *dy, int32_t t) {
    return p->whole ? dy + t * p->cells : t == p->steps - 1 ? dy : 0;
}

/* What the gates' gradients are to column `at` of what their weights are multiplied with. */
static inline int32_t smg_through(const int32_t *dz, int32_t gates, int32_t cells, const int8_t *weights,
                                  int32_t columns, int32_t at, const int32_t *scale, int32_t places) {
    int64_t total = (int64_t)1 << (places - 1);
    for (int32_t gate = 0; gate < gates; gate++) {
        int64_t sum = 0;
        for (int32_t j = 0; j < cells; j++, dz++) sum += (int64_t)*dz * weights[(gate * cells + j) * columns + at];
        total += sum * scale[gate];
    }
    return smg_limited(total >> places);
}

#endif
