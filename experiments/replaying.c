/* What replay costs on a board: does as each request says, over flash that is pretended in SRAM.
 *
 * i: as after a reset, o: open the ring, t: a step, k: a step whose latent is kept, r: a step on what was kept. The
 * answer is the ring's. */
#include "model_replay.h"

enum { OPEN = 0x01, WRITE = 0x05, READ = 0x06 };
enum { SECTOR = 4096, SECTORS = 8 };

static uint8_t cells[SECTOR * SECTORS];
static smg_replay ring;

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

static void read_row(void *context, void *row, int index) {
    (void)context;
    for (int i = 0; i < ROW_BYTES; i++) ((int8_t *)row)[i] = (int8_t)(index * i);
}

static int32_t serve(char request) {
    static const smg_flash flash = {erase, program, read, 0, SECTOR, 4};
    const smg_region region = {"replay", 0, SECTORS};
    float loss = 0;
    switch (request) {
    case 'o': return smg_replay_open(&ring, &flash, region, (smg_latents)MODEL_KEPT(1));
    case 'i': model_init(); break;
    case 't': loss = model_train(1, 0.01f); break;
    case 'k': loss = model_train_kept(&ring, 1, 0.01f); break;
    case 'r': return model_replay_kept(&ring, 0.01f, &loss);
    }
    return loss < 0;
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
    model_init();
    model_source(read_row, 0);
    while (ask(READ, &taken) == 0) {
        given = serve(request);
        ask(WRITE, &sent);
    }
    return 0;
}
