/* Bytes that move as they are, a word at a time where both places are aligned. */
#ifndef SMIDGEN_COPYING_H
#define SMIDGEN_COPYING_H

#include <stdint.h>

static inline void smg_copy(int8_t *to, const int8_t *from, int32_t count) {
    if ((((uintptr_t)to | (uintptr_t)from) & 3) == 0) {
        for (; count >= 8; count -= 8, to += 8, from += 8) {
            uint32_t words[2];
            __builtin_memcpy(words, __builtin_assume_aligned(from, 4), sizeof words);
            __builtin_memcpy(__builtin_assume_aligned(to, 4), words, sizeof words);
        }
    }
    for (; count > 0; count--) *to++ = *from++;
}

#endif
