/* A board's program that answers with three numbers, by semihosting, and then waits for a request that never comes. */
#ifndef BOARD_ANSWERS_H
#define BOARD_ANSWERS_H

#include <stdint.h>

enum { OPEN = 0x01, WRITE = 0x05, READ = 0x06, BINARY_WRITE = 5 };

static int32_t ask(int32_t operation, const void *arguments) {
    register int32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = arguments;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static int answer(int32_t first, int32_t second, int32_t third) {
    const struct {
        const char *name;
        int32_t mode, length;
    } opened = {"answers", BINARY_WRITE, 7};
    int32_t answers[3] = {first, second, third};
    const struct {
        int32_t handle;
        void *data;
        int32_t size;
    } written = {ask(OPEN, &opened), answers, sizeof answers};
    ask(WRITE, &written);
    for (;;) ask(READ, &written);
}

#endif
