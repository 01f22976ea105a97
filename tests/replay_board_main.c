/* The checks of a ring on an emulated board: answers with the line of the check that failed, or 0, and the cuts. */
#include "replay_checks.h"

enum { OPEN = 0x01, WRITE = 0x05, READ = 0x06, BINARY_WRITE = 5 };

static int32_t ask(int32_t operation, const void *arguments) {
    register int32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = arguments;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

int main(void) {
    static const part small_pages = {512, 64, 4, 10, 212};
    const struct {
        const char *name;
        int32_t mode, length;
    } opened = {"answers", BINARY_WRITE, 7};
    int32_t answers[3] = {0};
    const struct {
        int32_t handle;
        void *data;
        int32_t size;
    } written = {ask(OPEN, &opened), answers, sizeof answers};
    answers[0] = cut_at_random(&small_pages, ROUNDS, 5);
    answers[1] = cuts;
    answers[2] = wear_and_refuse(&small_pages);
    if (!answers[2]) answers[2] = shares(&small_pages);
    ask(WRITE, &written);
    for (;;) ask(READ, &written); /* waits for a request that never comes */
}
