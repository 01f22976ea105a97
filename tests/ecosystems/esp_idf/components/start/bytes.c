/* What compilers call by themselves. volatile: a loop must not become a call of itself. */
#include <stddef.h>

void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);

void *memcpy(void *to, const void *from, size_t size) {
    for (size_t i = 0; i < size; i++) ((volatile char *)to)[i] = ((const char *)from)[i];
    return to;
}

void *memset(void *to, int byte, size_t size) {
    for (size_t i = 0; i < size; i++) ((volatile char *)to)[i] = (char)byte;
    return to;
}
