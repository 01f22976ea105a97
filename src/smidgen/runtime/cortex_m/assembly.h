/* Functions written in assembly: how they begin and end, and how their sums become int8. */
#ifndef SMIDGEN_ASSEMBLY_H
#define SMIDGEN_ASSEMBLY_H

#define SMG_FUNCTION(name)                                                                                       \
    ".syntax unified\n.pushsection .text." name ", \"ax\", %progbits\n.balign 4\n.thumb\n.thumb_func\n.type " name \
    ", %function\n" name ":\n"
#define SMG_END(name) ".size " name ", . - " name "\n.popsection\n"

/* A sum in register `sum` becomes int8, exactly as TFLite rounds it:
 *   the rounded upper half of twice the product: twice a multiplier of [2^30, 2^31) is 2^32 more than the number in
 *   `m`, so the sum itself is added to the upper half;
 *   a shift to the right by r, halves away from zero: 1 off a negative number, half a unit on, then down. All but
 *   the last bit of the shift and the zero point are one multiplication by h = 2^(17 - r) for 3 <= r <= 17 (`near`);
 *   for other shifts, with h = r - 1, it takes two instructions (`far`). `c` is twice the zero point, and 1 for the
 *   half. Where the zero point is the least int8, all that is negative becomes that, and needs no care (`floor`). */
#define SMG_SCALE_MACROS                                                                  \
    ".macro smg_near sum, m, h, c\n"                                                      \
    "smmlar \\sum, \\sum, \\m, \\sum\n"                                                   \
    "add \\sum, \\sum, \\sum, asr #31\n"                                                  \
    "smlawb \\sum, \\sum, \\h, \\c\n"                                                     \
    "ssat \\sum, #8, \\sum, asr #1\n"                                                     \
    ".endm\n"                                                                             \
    ".macro smg_floor sum, m, h, c\n"                                                     \
    "smmlar \\sum, \\sum, \\m, \\sum\n"                                                   \
    "smlawb \\sum, \\sum, \\h, \\c\n"                                                     \
    "ssat \\sum, #8, \\sum, asr #1\n"                                                     \
    ".endm\n"                                                                             \
    ".macro smg_far sum, m, h, c\n"                                                       \
    "smmlar \\sum, \\sum, \\m, \\sum\n"                                                   \
    "add \\sum, \\sum, \\sum, asr #31\n"                                                  \
    "asr \\sum, \\sum, \\h\n"                                                             \
    "qadd \\sum, \\sum, \\c\n"                                                            \
    "ssat \\sum, #8, \\sum, asr #1\n"                                                     \
    ".endm\n"

#endif
