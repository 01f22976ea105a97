/* The sum of scaled rows, four channels at a time. Rows whose factor is zero, behind a mask most of them, are left out;
 * of the others two are taken at once: their bytes side by side, widened, are what one SMLAD multiplies and adds. */
#include "accumulate.h"

#include <arm_acle.h>

#include "arithmetic.h"

/* Rows that are looked through at once, and channels that are summed up at once. */
enum { RUN = 64, LANES = 4 };

/* Two rows, by how far they lie from the first, and their factors, a's in the lower half. */
typedef struct {
    int32_t a, b, factors;
} pair;

/* The rows that count, in pairs; an even number of pairs, the last perhaps without factors. */
static int32_t pick(pair *pairs, const int8_t *d, int32_t d_step, int32_t row_step, int32_t count) {
    const pair none = {0, 0, 0};
    pair *to = pairs;
    int32_t at = 0, factor;
    for (const int8_t *end = d + count * d_step; d != end; d += d_step, at += row_step) {
        if (!(factor = *d)) continue;
        to->a = at;
        to->factors = factor & 0xFFFF;
        to->b = at;
        for (d += d_step, at += row_step; d != end && !(factor = *d); d += d_step) at += row_step;
        if (d == end) {
            to++;
            break;
        }
        to->b = at;
        to++->factors |= factor << 16;
    }
    if ((to - pairs) % 2) *to++ = none;
    return (int32_t)(to - pairs);
}

/* What a run over all channels needs, in the order its assembly loads it. */
typedef struct {
    const int8_t *rows;
    const pair *pairs, *end;
    int32_t *sums, *sums_end;
} run;

/* Four channels, r4 to r7, of the next pair; r0 rows, r1 pairs. */
#define PAIR                                                                              \
    "ldm r1!, {r8, r9, r10}\n ldr r8, [r0, r8]\n ldr r9, [r0, r9]\n"                      \
    "pkhbt r11, r8, r9, lsl #16\n pkhtb r8, r9, r8, asr #16\n"                            \
    "sxtb16 r12, r11\n smlad r4, r12, r10, r4\n sxtb16 r12, r11, ror #8\n smlad r5, r12, r10, r5\n" \
    "sxtb16 r12, r8\n smlad r6, r12, r10, r6\n sxtb16 r12, r8, ror #8\n smlad r7, r12, r10, r7\n"

/* Add the pairs to the sums of a multiple of LANES channels. */
static void add_pairs(const run *r) {
    register uint32_t r0 __asm__("r0") = (uint32_t)(uintptr_t)r;
    __asm__ volatile(
        "push {r4-r11, lr}\n ldr lr, [r0, #16]\n push {lr}\n ldr lr, [r0, #4]\n ldr r2, [r0, #8]\n"
        "ldr r3, [r0, #12]\n ldr r0, [r0]\n"
        "1: ldm r3, {r4-r7}\n mov r1, lr\n"
        "2: " PAIR PAIR "cmp r1, r2\n bne 2b\n"
        "stm r3!, {r4-r7}\n ldr r8, [sp]\n add r0, r0, #4\n cmp r3, r8\n bne 1b\n"
        "pop {r3}\n pop {r4-r11, lr}\n"
        : "+r"(r0)
        :
        : "r1", "r2", "r3", "r12", "cc", "memory");
}

void smg_accumulate(int32_t *sums, int32_t c, const int8_t *d, int32_t d_step, const int8_t *rows, int32_t row_step,
                    int32_t count) {
    const int32_t whole = c - c % LANES;
    pair pairs[RUN / 2 + 1];
    for (int32_t start = 0; start < count; start += RUN) {
        const int32_t length = smg_min(RUN, count - start), found = pick(pairs, d, d_step, row_step, length);
        const run all = {rows, pairs, pairs + found, sums, sums + whole};
        if (found && whole) add_pairs(&all);
        for (int32_t n = whole; n < c; n++) {
            int32_t sum = sums[n];
            for (int32_t i = 0; i < found; i++) {
                const uint32_t both = (uint16_t)rows[pairs[i].a + n] | (uint32_t)rows[pairs[i].b + n] << 16;
                sum = __smlad((int32_t)both, pairs[i].factors, sum);
            }
            sums[n] = sum;
        }
        d += length * d_step;
        rows += length * row_step;
    }
}

/* Rows whose sum a halfword holds. */
enum { HALFWORD = 256 };

/* Sums of four channels of rows that lie `step` bytes apart. */
static inline void sum_four(int32_t *sums, const int8_t *rows, int32_t step, int32_t count) {
    int16x2_t even = 0, odd = 0;
    for (const int8_t *end = rows + count * step; rows != end; rows += step) {
        int8x4_t word;
        __builtin_memcpy(&word, rows, sizeof word);
        even = __sxtab16(even, word);
        odd = __sxtab16(odd, word >> 8 | word << 24);
    }
    sums[0] += (int16_t)even;
    sums[1] += (int16_t)odd;
    sums[2] += even >> 16;
    sums[3] += odd >> 16;
}

void smg_sum_rows(int32_t *sums, int32_t c, const int8_t *rows, int32_t count) {
    const int32_t whole = c - c % LANES;
    for (int32_t n = 0; n < c; n++) sums[n] = 0;
    for (int32_t start = 0; start < count; start += HALFWORD)
        for (int32_t n = 0; n < whole; n += LANES)
            sum_four(sums + n, rows + start * c + n, c, smg_min(HALFWORD, count - start));
    for (int32_t n = whole; n < c; n++)
        for (int32_t i = 0; i < count; i++) sums[n] += rows[i * c + n];
}
