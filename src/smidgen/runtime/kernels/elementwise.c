/* Element by element in int8: add, multiply, rescale. The output may be the first input's memory. */
#include "smidgen.h"

#include "arithmetic.h"

/* A block is finished in local memory before it is stored, so that compilers need not fear y == a. */
enum { BLOCK = 32 };

typedef struct {
    int32_t x[BLOCK];
} block;

static inline void load(block *to, const int8_t *from, int32_t count, int32_t zero) {
    for (int32_t i = 0; i < count; i++) to->x[i] = from[i] - zero;
}

/* Elements start, start + 1, … of a tensor that repeats every `period` elements. */
static inline void load_repeated(block *to, const int8_t *from, int32_t start, int32_t count, int32_t period,
                                 int32_t zero) {
    int32_t at = start % period;
    if (at + count <= period) {
        load(to, from + at, count, zero);
        return;
    }
    for (int32_t i = 0; i < count; i++) {
        to->x[i] = from[at] - zero;
        if (++at == period) at = 0;
    }
}

static inline void store(int8_t *to, const block *from, int32_t count, int32_t zero, int32_t lo, int32_t hi) {
    for (int32_t i = 0; i < count; i++) to[i] = smg_to_int8(from->x[i], zero, lo, hi);
}

static inline void add_block(const smg_add_s8_params *p, block *a, const block *b, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        const int32_t left = smg_multiply(smg_shift_left(a->x[i], 20), p->a_multiplier, p->a_shift);
        const int32_t right = smg_multiply(smg_shift_left(b->x[i], 20), p->b_multiplier, p->b_shift);
        a->x[i] = smg_multiply(left + right, p->y_multiplier, p->y_shift);
    }
}

void smg_add_s8(const smg_add_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y, int32_t count) {
    block left, right;
    for (int32_t start = 0; start < count; start += BLOCK) {
        const int32_t length = smg_min(BLOCK, count - start);
        load(&left, a + start, length, p->a_zero);
        load_repeated(&right, b, start, length, p->b_period, p->b_zero);
        add_block(p, &left, &right, length);
        store(y + start, &left, length, p->y_zero, p->lo, p->hi);
    }
}

static inline void multiply_block(const smg_mul_s8_params *p, block *a, const block *b, int32_t count) {
    for (int32_t i = 0; i < count; i++) a->x[i] = smg_multiply(a->x[i] * b->x[i], p->multiplier, p->shift);
}

void smg_mul_s8(const smg_mul_s8_params *p, const int8_t *a, const int8_t *b, int8_t *y, int32_t count) {
    block left, right;
    for (int32_t start = 0; start < count; start += BLOCK) {
        const int32_t length = smg_min(BLOCK, count - start);
        load(&left, a + start, length, p->a_zero);
        load_repeated(&right, b, start, length, p->b_period, p->b_zero);
        multiply_block(p, &left, &right, length);
        store(y + start, &left, length, p->y_zero, p->lo, p->hi);
    }
}

void smg_rescale_s8(const smg_rescale_s8_params *p, const int8_t *x, int8_t *y, int32_t count) {
    block values;
    for (int32_t start = 0; start < count; start += BLOCK) {
        const int32_t length = smg_min(BLOCK, count - start);
        load(&values, x + start, length, p->x_zero);
        for (int32_t i = 0; i < length; i++) values.x[i] = smg_multiply(values.x[i], p->multiplier, p->shift);
        store(y + start, &values, length, p->y_zero, p->lo, p->hi);
    }
}
