/* A store by the driver of a chip, which does as each request says and answers with what the store gave and the state.
 *
 * o: open, s: save after some of the state changed, w: save after all of it did, l: load. */
#include "smidgen_store.h"

enum { OPEN = 0x01, WRITE = 0x05, READ = 0x06, STATE = 5000 };

extern const smg_flash chip_flash;

static struct {
    int32_t given;
    uint8_t state[STATE];
} answer;
static smg_store store;

static int32_t ask(int32_t operation, const void *arguments) {
    register int32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = arguments;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static int32_t serve(char request) {
    const smg_region region = {"state", 0, REGION};
    const smg_kept kept = {answer.state, STATE, {1, 2}};
    switch (request) {
    case 'o': return smg_store_open(&store, &chip_flash, region, kept);
    case 'w':
        for (uint32_t i = 0; i < STATE; i++) answer.state[i] = (uint8_t)(answer.state[i] * 5 + i);
        return smg_store_save(&store);
    case 's': answer.state[STATE / 2] ^= 0x55; return smg_store_save(&store);
    default: return smg_store_load(&store);
    }
}

typedef struct {
    int32_t handle;
    void *data;
    int32_t size;
} transfer;

typedef struct {
    const char *name;
    int32_t mode, length;
} file;

int main(void) {
    const file requests = {"requests", 1, 8}, answers = {"answers", 5, 7};
    char request = 0;
    const transfer taken = {ask(OPEN, &requests), &request, 1}, sent = {ask(OPEN, &answers), &answer, sizeof answer};
    while (ask(READ, &taken) == 0) {
        answer.given = serve(request);
        ask(WRITE, &sent);
    }
    return 0;
}
