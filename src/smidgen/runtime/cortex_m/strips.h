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

/* The frame: 0 columns, lists to come, channel, 12 steps, 20 the end. Two columns at a time, an odd one before. */
__asm__(".macro smg_pack_one\n"
        "ldr r9, [r0]\n"
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
        ".endm\n"
        ".macro smg_pack_two\n"
        "ldr r9, [r0]\n"
        "ldr r10, [r1]\n"
        "ldrd r2, r3, [sp, #12]\n"
        "ldr r11, [r0, r2]\n"
        "ldr r12, [r1, r3]\n"
        "add r0, r0, r2, lsl #1\n"
        "add r1, r1, r3, lsl #1\n"
        "pkhbt lr, r9, r10, lsl #16\n"
        "pkhtb r9, r10, r9, asr #16\n"
        "pkhbt r10, r11, r12, lsl #16\n"
        "pkhtb r11, r12, r11, asr #16\n"
        "sxtab16 r2, r4, lr\n"
        "sxtab16 r3, r4, r10\n"
        "strd r2, r3, [r5], #8\n"
        "sxtab16 lr, r4, lr, ror #8\n"
        "sxtab16 r10, r4, r10, ror #8\n"
        "strd lr, r10, [r6], #8\n"
        "sxtab16 r2, r4, r9\n"
        "sxtab16 r3, r4, r11\n"
        "strd r2, r3, [r7], #8\n"
        "sxtab16 r9, r4, r9, ror #8\n"
        "sxtab16 r11, r4, r11, ror #8\n"
        "strd r9, r11, [r8], #8\n"
        ".endm\n");

__asm__(SMG_FUNCTION("smg_pack_columns")
        "push {r4-r11, lr}\n"
        "sub sp, #24\n"
        "stmia sp, {r0-r2}\n"
        "0: ldr lr, [sp]\n"
        "ldmia lr!, {r0-r6, r8, r9}\n"
        "ldr r7, [sp, #8]\n"
        "str lr, [sp]\n"
        "cmp r2, #0\n"
        "it ne\n addne r0, r7\n"
        "cmp r3, #0\n"
        "it ne\n addne r1, r7\n"
        "add lr, r5, r8, lsl #2\n"
        "add r7, r6, r6, lsl #1\n"
        "cmp r9, #1\n"
        "beq 2f\n"
        "bhi 4f\n"
        "lsls r8, #31\n"
        "beq 11f\n"
        "smg_pack_one\n"
        "11: cmp r5, lr\n"
        "beq 5f\n"
        "strd r2, r3, [sp, #12]\n"
        "str lr, [sp, #20]\n"
        "add r8, r5, r7\n"
        "add r7, r5, r6, lsl #1\n"
        "add r6, r5\n"
        "1: smg_pack_two\n"
        "ldr r2, [sp, #20]\n"
        "cmp r5, r2\n"
        "bne 1b\n"
        "b 5f\n"
        "2: add r6, r5\n"
        "lsls r8, #31\n"
        "beq 12f\n"
        "ldr r9, [r0]\n"
        "add r0, r2\n"
        "sxtab16 r10, r4, r9, ror #8\n"
        "sxtab16 r9, r4, r9\n"
        "str r10, [r6], #4\n"
        "str r9, [r5], #4\n"
        "12: cmp r5, lr\n"
        "beq 5f\n"
        "3: ldr r9, [r0]\n"
        "ldr r10, [r0, r2]\n"
        "add r0, r0, r2, lsl #1\n"
        "sxtab16 r11, r4, r9\n"
        "sxtab16 r12, r4, r10\n"
        "sxtab16 r9, r4, r9, ror #8\n"
        "sxtab16 r10, r4, r10, ror #8\n"
        "strd r11, r12, [r5], #8\n"
        "strd r9, r10, [r6], #8\n"
        "cmp r5, lr\n"
        "bne 3b\n"
        "b 5f\n"
        "4: ldr r9, [r0]\n"
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
        "cmp r5, lr\n"
        "bne 4b\n"
        "5: ldr r0, [sp, #4]\n"
        "subs r0, #1\n"
        "str r0, [sp, #4]\n"
        "bne 0b\n"
        "add sp, #24\n"
        "pop {r4-r11, pc}\n" SMG_END("smg_pack_columns"));

#endif
