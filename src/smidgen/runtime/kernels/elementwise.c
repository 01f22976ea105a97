/* Element by element in int8: add, multiply, rescale, look up. The output may be the first input's memory. */
#include "smidgen.h"

#include "arithmetic.h"

/* A block is finished in local memory before it is stored, so that compilers need not fear y == a; it is always
 * computed whole, in loops of a fixed count, of which only `length` elements are real. */
enum { BLOCK = 32 };

typedef struct {
    int32_t x[BLOCK];
} block;

static inline void load(block *to, const int8_t *from, int32_t length, int32_t zero) {
    if (length == BLOCK)
        for (int32_t i = 0; i < BLOCK; i++) to->x[i] = from[i] - zero;
    else
        for (int32_t i = 0; i < BLOCK; i++) to->x[i] = i < length ? from[i] - zero : 0;
}

/* Elements start, start + 1, … of a tensor that repeats every `period` elements. */
static inline void load_repeated(block *to, const int8_t *from, int32_t start, int32_t length, int32_t period,
                                 int32_t zero) {
    int32_t at = start < period ? start : start % period;
    if (at + length <= period) {
        load(to, from + at, length, zero);
        return;
    }
    for (int32_t i = 0; i < BLOCK; i++) {
        to->x[i] = from[at] - zero;
        if (++at == period) at = 0;
    }
}

static inline void store(int8_t *to, const block *from, int32_t length, int32_t zero, int32_t lo, int32_t hi) {
    int8_t out[BLOCK];
    for (int32_t i = 0; i < BLOCK; i++) out[i] = smg_to_int8(from->x[i], zero, lo, hi);
    if (length == BLOCK)
        for (int32_t i = 0; i < BLOCK; i++) to[i] = out[i];
    else
        for (int32_t i = 0; i < length; i++) to[i] = out[i];
}

static inline void scale(block *x, int32_t multiplier, int32_t shift) {
    const int32_t left = smg_max(shift, 0), right = smg_max(-shift, 0);
    for (int32_t i = 0; i < BLOCK; i++)
        x->x[i] = smg_shift_right(smg_high_mul(smg_shift_left(x->x[i], left), multiplier), right);
}

void smg_add_s8(const smg_add_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y, int32_t count) {
    enum { HEADROOM = 20 }; /* bits TFLite gives the sum of two int8 tensors */
    block left, right;
    for (int32_t start = 0; start < count; start += BLOCK) {
        const int32_t length = smg_min(BLOCK, count - start);
        load(&left, a + start, length, p->a_zero);
        load_repeated(&right, b, start, length, p->b_period, p->b_zero);
        for (int32_t i = 0; i < BLOCK; i++) left.x[i] *= 1 << HEADROOM;
        for (int32_t i = 0; i < BLOCK; i++) right.x[i] *= 1 << HEADROOM;
        scale(&left, p->a_multiplier, p->a_shift);
        scale(&right, p->b_multiplier, p->b_shift);
        for (int32_t i = 0; i < BLOCK; i++) left.x[i] += right.x[i];
        scale(&left, p->y_multiplier, p->y_shift);
        store(y + start, &left, length, p->y_zero, p->lo, p->hi);
    }
}

void smg_mul_s8(const smg_mul_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y, int32_t count) {
    block left, right;
    for (int32_t start = 0; start < count; start += BLOCK) {
        const int32_t length = smg_min(BLOCK, count - start);
        load(&left, a + start, length, p->a_zero);
        load_repeated(&right, b, start, length, p->b_period, p->b_zero);
        for (int32_t i = 0; i < BLOCK; i++) left.x[i] *= right.x[i];
        scale(&left, p->multiplier, p->shift);
        store(y + start, &left, length, p->y_zero, p->lo, p->hi);
    }
}

void smg_rescale_s8(const smg_rescale_s8_params *p, const int8_t *x, int8_t *y, int32_t count) {
    block values;
    for (int32_t start = 0; start < count; start += BLOCK) {
        const int32_t length = smg_min(BLOCK, count - start);
        load(&values, x + start, length, p->x_zero);
        scale(&values, p->multiplier, p->shift);
        store(y + start, &values, length, p->y_zero, p->lo, p->hi);
    }
}

void smg_lookup_s8(const smg_lookup_s8_params *p, const int8_t *x, int8_t *y, int32_t count) {
    const int8_t *of_zero = p->table + 128;
    for (int32_t i = 0; i < count; i++) y[i] = of_zero[x[i]];
}
