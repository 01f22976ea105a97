/* Columns of a map, or of filters, packed: four channels at a time, two rows to a word. */
#ifndef SMIDGEN_STRIPS_H
#define SMIDGEN_STRIPS_H

#include <stdint.h>

#include "assembly.h"

/* Two rows to four strips, one a channel; one row to two strips, channels 0 and 2 in one, 1 and 3 in the other; one row
 * of filters to four strips, for use with the latter: each channel in the half where its columns are. */
enum { SMG_PAIR, SMG_ALONE, SMG_ALONE_FILTER };

/* `count` columns that are `step` bytes apart; with a step of 0 the same bytes serve for all, and for all channels. */
typedef struct {
    const int8_t *a, *b;
    int32_t a_step, b_step;
    uint32_t minus; /* added to both halves */
    uint32_t *to;
    int32_t apart, count; /* bytes from strip to strip */
    int32_t kind;
} smg_columns;

/* Pack some lists of columns, four channels each from `channel` on. */
void smg_pack_columns(const smg_columns *columns, int32_t lists, int32_t channel);

__asm__(SMG_FUNCTION("smg_pack_columns")
        "push {r0-r2, r4-r11, lr}\n"
        "0: ldr lr, [sp]\n"
        "ldmia lr!, {r0-r6, r8, r9}\n"
        "ldr r7, [sp, #8]\n"
        "str lr, [sp]\n"
        "cmp r2, #0\n"
        "it ne\n addne r0, r7\n"
        "cmp r3, #0\n"
        "it ne\n addne r1, r7\n"
        "add r8, r5, r8, lsl #2\n"
        "add r7, r6, r6, lsl #1\n"
        "cmp r9, #1\n"
        "beq 2f\n"
        "bhi 3f\n"
        "1: ldr r9, [r0]\n"
        "ldr r10, [r1]\n"
        "add r0, r2\n"
        "add r1, r3\n"
        "pkhbt r11, r9, r10, lsl #16\n"
        "pkhtb r12, r10, r9, asr #16\n"
        "sxtab16 r9, r4, r11\n"
        "sxtab16 r10, r4, r11, ror #8\n"
        "sxtab16 r11, r4, r12\n"
        "sxtab16 r12, r4, r12, ror #8\n"
        "str r10, [r5, r6]\n"
        "str r11, [r5, r6, lsl #1]\n"
        "str r12, [r5, r7]\n"
        "str r9, [r5], #4\n"
        "cmp r5, r8\n"
        "bne 1b\n"
        "b 4f\n"
        "2: ldr r9, [r0]\n"
        "add r0, r2\n"
        "sxtab16 r10, r4, r9, ror #8\n"
        "sxtab16 r9, r4, r9\n"
        "str r10, [r5, r6]\n"
        "str r9, [r5], #4\n"
        "cmp r5, r8\n"
        "bne 2b\n"
        "b 4f\n"
        "3: ldr r9, [r0]\n"
        "add r0, r2\n"
        "sxtb16 r10, r9, ror #8\n"
        "sxtb16 r9, r9\n"
        "uxth r11, r10\n"
        "uxth r12, r9\n"
        "eor r10, r11\n"
        "eor r9, r12\n"
        "str r11, [r5, r6]\n"
        "str r9, [r5, r6, lsl #1]\n"
        "str r10, [r5, r7]\n"
        "str r12, [r5], #4\n"
        "cmp r5, r8\n"
        "bne 3b\n"
        "4: ldr r0, [sp, #4]\n"
        "subs r0, #1\n"
        "str r0, [sp, #4]\n"
        "bne 0b\n"
        "add sp, #12\n"
        "pop {r4-r11, pc}\n" SMG_END("smg_pack_columns"));

#endif
