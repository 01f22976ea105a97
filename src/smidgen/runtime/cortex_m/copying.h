/* Bytes that move as they are, a word at a time, wherever they lie. */
#ifndef SMIDGEN_COPYING_H
#define SMIDGEN_COPYING_H

#include "packed.h"

static inline void smg_copy(int8_t *to, const int8_t *from, int32_t count) {
    for (; count >= 8; count -= 8, to += 8, from += 8) {
        const uint32_t first = smg_four(from), second = smg_four(from + 4);
        __builtin_memcpy(to, &first, sizeof first);
        __builtin_memcpy(to + 4, &second, sizeof second);
    }
    for (; count > 0; count--) *to++ = *from++;
}

#endif
