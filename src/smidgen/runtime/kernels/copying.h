/* Bytes that move as they are. */
#ifndef SMIDGEN_COPYING_H
#define SMIDGEN_COPYING_H

#include <stdint.h>

static inline void smg_copy(int8_t *to, const int8_t *from, int32_t count) {
    for (int32_t i = 0; i < count; i++) to[i] = from[i];
}

#endif
