/* What a store costs on a board: does as each request says, over flash that is pretended in SRAM.
 *
 * o: open, w: save all, s: save one byte that changed, l: load, n: nothing. The answer is what the store gave. */
#include "smidgen_store.h"

enum { STATE = 32768, SECTOR = 4096, SECTORS = 20 };

#include "asked.h"

static uint8_t state[STATE];
static smg_store store;

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

int main(void) {
    answer_all();
    return 0;
}
