/* The sum of scaled rows, sixteen channels at a time; rows whose factor is zero, behind a mask most of them, are left
 * out. */
#include <arm_mve.h>

#include "accumulate.h"

#include "arithmetic.h"

enum { SIXTEEN = 16, FOUR = 4, EIGHT = 8 };

/* Rows whose sum a halfword holds. */
enum { HALFWORD = 256 };

static inline int32x4_t scaled(int32x4_t sum, const int8_t *row, int32_t factor) {
    return vmlaq_n_s32(sum, vldrbq_s32(row), factor);
}

static void add_sixteen(int32_t *sums, const int8_t *d, int32_t d_step, const int8_t *rows, int32_t row_step,
                        int32_t count) {
    int32x4_t s0 = vldrwq_s32(sums), s1 = vldrwq_s32(sums + 4), s2 = vldrwq_s32(sums + 8), s3 = vldrwq_s32(sums + 12);
    for (; count > 0; count--, d += d_step, rows += row_step) {
        const int32_t factor = *d;
        if (!factor) continue;
        s0 = scaled(s0, rows, factor);
        s1 = scaled(s1, rows + 4, factor);
        s2 = scaled(s2, rows + 8, factor);
        s3 = scaled(s3, rows + 12, factor);
    }
    vstrwq_s32(sums, s0);
    vstrwq_s32(sums + 4, s1);
    vstrwq_s32(sums + 8, s2);
    vstrwq_s32(sums + 12, s3);
}

static void add_four(int32_t *sums, mve_pred16_t some, const int8_t *d, int32_t d_step, const int8_t *rows,
                     int32_t row_step, int32_t count) {
    int32x4_t sum = vldrwq_z_s32(sums, some);
    for (; count > 0; count--, d += d_step, rows += row_step)
        if (*d) sum = vmlaq_n_s32(sum, vldrbq_z_s32(rows, some), *d);
    vstrwq_p_s32(sums, sum, some);
}

void smg_accumulate(int32_t *sums, int32_t c, const int8_t *d, int32_t d_step, const int8_t *rows, int32_t row_step,
                    int32_t count) {
    for (; c >= SIXTEEN; c -= SIXTEEN, sums += SIXTEEN, rows += SIXTEEN)
        add_sixteen(sums, d, d_step, rows, row_step, count);
    for (; c > 0; c -= FOUR, sums += FOUR, rows += FOUR)
        add_four(sums, vctp32q((uint32_t)c), d, d_step, rows, row_step, count);
}

/* Sums of eight channels, or of those that there are, of rows that lie `step` bytes apart. */
static inline int16x8_t sum_eight(const int8_t *rows, int32_t step, int32_t count, mve_pred16_t some) {
    int16x8_t sum = vdupq_n_s16(0);
    for (; count > 0; count--, rows += step) sum = vaddq_s16(sum, vldrbq_z_s16(rows, some));
    return sum;
}

void smg_sum_rows(int32_t *sums, int32_t c, const int8_t *rows, int32_t count) {
    for (int32_t n = 0; n < c; n += EIGHT) {
        const mve_pred16_t some = vctp16q((uint32_t)(c - n));
        const mve_pred16_t low = vctp32q((uint32_t)(c - n)), high = vctp32q((uint32_t)smg_max(c - n - FOUR, 0));
        int32x4_t first = vdupq_n_s32(0), second = first;
        for (int32_t start = 0; start < count; start += HALFWORD) {
            int16_t part[EIGHT];
            vstrhq_s16(part, sum_eight(rows + start * c + n, c, smg_min(HALFWORD, count - start), some));
            first = vaddq_s32(first, vldrhq_s32(part));
            second = vaddq_s32(second, vldrhq_s32(part + FOUR));
        }
        vstrwq_p_s32(sums + n, first, low);
        vstrwq_p_s32(sums + n + FOUR, second, high);
    }
}
