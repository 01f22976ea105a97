/* The sum of scaled rows, four channels at a time. Rows whose factor is zero, behind a mask most of them, are left out;
 * of the others two are taken at once: their bytes side by side, widened, are what one SMLAD multiplies and adds. */
#include "accumulate.h"

#include <arm_acle.h>

#include "arithmetic.h"
#include "packed.h"

/* Rows that are looked through at once, and channels that are summed up at once. */
enum { RUN = 64, LANES = 4 };

/* Two rows, by how far they lie from the first, and their factors, a's in the lower half. */
typedef struct {
    int32_t a, b, factors;
} pair;

/* A byte of the word r4 as a factor, if it is one: the first of a pair, then on to the next byte as a second; or the
 * second, then on as a first. */
#define FIRST(here, mask, bit, row, zero, found)                                                                 \
    here ": tst r4, #" mask "\n beq " zero "f\n sbfx r7, r4, #" bit ", #8\n add r11, r5, " row "\n str r11, [r0]\n" \
    "strh r7, [r0, #8]\n b " found "f\n"
#define SECOND(here, mask, bit, row, zero, found)                                                                \
    here ": tst r4, #" mask "\n beq " zero "f\n sbfx r7, r4, #" bit ", #8\n add r11, r5, " row "\n"             \
    "str r11, [r0, #4]\n strh r7, [r0, #10]\n add r0, r0, #12\n b " found

/* The rows that count, in pairs, of factors that lie side by side, a multiple of four of them. r5 is how far the word's
 * first row lies from the first of all; r8 to r12 are one to four rows. */
static pair *pick_words(pair *pairs, const int8_t *d, int32_t row_step, int32_t count) {
    register uint32_t r0 __asm__("r0") = (uint32_t)(uintptr_t)pairs, r1 __asm__("r1") = (uint32_t)(uintptr_t)d;
    register uint32_t r2 __asm__("r2") = (uint32_t)(uintptr_t)(d + count);
    register int32_t r3 __asm__("r3") = row_step;
    __asm__ volatile(
        "push {r4-r11}\n mov r5, #0\n mov r6, #0\n lsl r9, r3, #1\n add r10, r9, r3\n lsl r12, r3, #2\n"
        "1: ldr r4, [r1], #4\n cbz r4, 14f\n"
        FIRST("10", "0xff", "0", "r6", "11", "21") FIRST("11", "0xff00", "8", "r3", "12", "22")
        FIRST("12", "0xff0000", "16", "r9", "13", "23") FIRST("13", "0xff000000", "24", "r10", "14", "24")
        "14: add r5, r5, r12\n cmp r1, r2\n bne 1b\n b 30f\n"
        "2: ldr r4, [r1], #4\n cmp r4, #0\n beq 24f\n"
        SECOND("20", "0xff", "0", "r6", "21", "11b\n") SECOND("21", "0xff00", "8", "r3", "22", "12b\n")
        SECOND("22", "0xff0000", "16", "r9", "23", "13b\n") SECOND("23", "0xff000000", "24", "r10", "24", "14b\n")
        "24: add r5, r5, r12\n cmp r1, r2\n bne 2b\n"
        "ldr r4, [r0]\n str r4, [r0, #4]\n strh r6, [r0, #10]\n add r0, r0, #12\n"
        "30: pop {r4-r11}\n"
        : "+r"(r0), "+r"(r1)
        : "r"(r2), "r"(r3)
        : "r12", "cc", "memory");
    return (pair *)(uintptr_t)r0;
}

/* The same of any number of factors, which lie `d_step` from each other. */
static pair *pick_any(pair *to, const int8_t *d, int32_t d_step, int32_t row_step, int32_t count) {
    int second = 0;
    for (int32_t at = 0; count--; d += d_step, at += row_step) {
        const int32_t factor = *d;
        if (!factor) continue;
        if (second) {
            to->b = at;
            to++->factors |= factor << 16;
        } else {
            to->a = to->b = at;
            to->factors = factor & 0xFFFF;
        }
        second = !second;
    }
    return to + second;
}

/* An even number of pairs, the last perhaps without factors. */
static int32_t pick(pair *pairs, const int8_t *d, int32_t d_step, int32_t row_step, int32_t count) {
    const pair none = {0, 0, 0};
    pair *end = d_step == 1 && count % 4 == 0 ? pick_words(pairs, d, row_step, count)
                                              : pick_any(pairs, d, d_step, row_step, count);
    if ((end - pairs) % 2) *end++ = none;
    return (int32_t)(end - pairs);
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
    pair pairs[RUN / 2]; /* an even number: there is room for a last one without factors */
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
    const int8_t *const end = rows + count * step, *const last = end - 3 * step;
    for (; rows < last; rows += 4 * step) {
        const uint32_t a = smg_four(rows), b = smg_four(rows + step);
        const uint32_t c = smg_four(rows + 2 * step), d = smg_four(rows + 3 * step);
        even = __sxtab16(__sxtab16(__sxtab16(__sxtab16(even, (int8x4_t)a), (int8x4_t)b), (int8x4_t)c), (int8x4_t)d);
        odd = __sxtab16(__sxtab16(odd, (int8x4_t)smg_turned(a)), (int8x4_t)smg_turned(b));
        odd = __sxtab16(__sxtab16(odd, (int8x4_t)smg_turned(c)), (int8x4_t)smg_turned(d));
    }
    for (; rows != end; rows += step) {
        const uint32_t word = smg_four(rows);
        even = __sxtab16(even, (int8x4_t)word);
        odd = __sxtab16(odd, (int8x4_t)smg_turned(word));
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
