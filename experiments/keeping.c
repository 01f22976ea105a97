/* What a store costs on a board: does as each request says, over flash that is pretended in SRAM.
 *
 * o: open, w: save all, s: save one byte that changed, l: load, n: nothing. The answer is what the store gave. */
#include "smidgen_store.h"

enum { OPEN = 0x01, WRITE = 0x05, READ = 0x06 };
enum { STATE = 32768, SECTOR = 4096, SECTORS = 20 };

static uint8_t state[STATE], cells[SECTOR * SECTORS];
static smg_store store;

static int32_t ask(int32_t operation, const void *arguments) {
    register int32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = arguments;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static int erase(void *context, uint32_t address) {
    (void)context;
    for (uint32_t i = 0; i < SECTOR; i++) cells[address + i] = 0xff;
    return 0;
}

static int program(void *context, uint32_t address, const void *data, uint32_t bytes) {
    (void)context;
    for (uint32_t i = 0; i < bytes; i++) cells[address + i] &= ((const uint8_t *)data)[i];
    return 0;
}

static int read(void *context, uint32_t address, void *data, uint32_t bytes) {
    (void)context;
    for (uint32_t i = 0; i < bytes; i++) ((uint8_t *)data)[i] = cells[address + i];
    return 0;
}

static int32_t serve(char request) {
    static const smg_flash flash = {erase, program, read, 0, SECTOR, 4};
    const smg_region region = {"state", 0, SECTORS};
    const smg_kept kept = {state, STATE, {1, 2}};
    switch (request) {
    case 'o': return smg_store_open(&store, &flash, region, kept);
    case 'w':
        for (uint32_t i = 0; i < STATE; i++) state[i]++;
        return smg_store_save(&store);
    case 's': state[STATE / 2]++; return smg_store_save(&store);
    case 'l': return smg_store_load(&store);
    default: return 0;
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
    int32_t given = 0;
    const transfer taken = {ask(OPEN, &requests), &request, 1}, sent = {ask(OPEN, &answers), &given, 4};
    for (uint32_t i = 0; i < SECTOR * SECTORS; i++) cells[i] = 0xff;
    while (ask(READ, &taken) == 0) {
        given = serve(request);
        ask(WRITE, &sent);
    }
    return 0;
}
