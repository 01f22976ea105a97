/* Where gradients pass: a bit for each element that its activation did not clamp, four elements at a time. */
#include "smidgen_training.h"

#include "arithmetic.h"

/* What all eights share, at the offsets the assembly names; least and span in every byte. */
typedef struct {
    uint32_t least, span, lower, upper;
    const uint8_t *end; /* of the mask */
} limits;

/* Of aligned words one bit for each byte of which `least` can be taken and leaves at most `span`: SEL goes by the greater-or-equal flags
 * of USUB8, and USAD8 adds up bytes of a bit each. */
static void mask_eights(const int8_t *y, uint8_t *mask, const limits *all) {
    register uint32_t r0 __asm__("r0") = (uint32_t)(uintptr_t)y, r1 __asm__("r1") = (uint32_t)(uintptr_t)mask;
    register uint32_t r12 __asm__("r12") = (uint32_t)(uintptr_t)all;
    __asm__ volatile(
        "push {r4-r9}\n ldm r12, {r2-r6}\n mov r7, #0\n"
        "1: ldm r0!, {r8, r9}\n"
        "usub8 r8, r8, r2\n usub8 r8, r3, r8\n sel r8, r4, r7\n"
        "usub8 r9, r9, r2\n usub8 r9, r3, r9\n sel r9, r5, r7\n"
        "usad8 r8, r8, r7\n usada8 r8, r9, r7, r8\n strb r8, [r1], #1\n cmp r1, r6\n bne 1b\n"
        "pop {r4-r9}\n"
        : "+r"(r0), "+r"(r1)
        : "r"(r12)
        : "r2", "r3", "cc", "memory");
}

void smg_mask_s8(const smg_mask_s8_params *p, const int8_t *y, uint8_t *mask) {
    const int32_t between = p->hi - p->lo - 2; /* negative where nothing lies inside */
    const int32_t whole = between < 0 || (uintptr_t)y % 4 ? 0 : p->n / 8;
    const uint32_t every = 0x01010101u;
    const limits all = {every * (uint8_t)(p->lo + 1), every * (uint8_t)between, 0x08040201u, 0x80402010u, mask + whole};
    if (whole) mask_eights(y, mask, &all);
    for (int32_t i = 8 * whole; i < p->n; i += 8) {
        uint32_t bits = 0;
        for (int32_t k = i; k < smg_min(i + 8, p->n); k++) bits |= (uint32_t)(y[k] > p->lo && y[k] < p->hi) << (k - i);
        mask[i / 8] = (uint8_t)bits;
    }
}
