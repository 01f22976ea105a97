/* What the example of a pack leaves to a user: a line, here by semihosting. */
#include <stdint.h>

enum { OPEN = 0x01, WRITE = 0x05, READ = 0x06 };

int line_read(void *data, int size);
void line_write(const void *data, int size);

static int32_t in, out;

static int32_t ask(int32_t operation, const void *arguments) {
    register int32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = arguments;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static int32_t opened(const char *name, int32_t length, int32_t mode) {
    const intptr_t arguments[] = {(intptr_t)name, mode, length};
    return ask(OPEN, arguments);
}

/* The emulator stops here until there is a byte. */
int line_read(void *data, int size) {
    if (!in) in = opened("line-in", 7, 1);
    const intptr_t arguments[] = {in, (intptr_t)data, size};
    return size - (int)ask(READ, arguments);
}

void line_write(const void *data, int size) {
    if (!out) out = opened("line-out", 8, 5);
    const intptr_t arguments[] = {out, (intptr_t)data, size};
    ask(WRITE, arguments);
}
