/* Flash of an nRF52: pages of 4 KB, words of 4 bytes, 10,000 erases each. No SDK is needed.
 *
 * Here the last 64 KB of an nRF52840's 1 MB; leave them out of FLASH in the linker script. The core stands still while
 * a page is erased (85 ms) or a word written (41 us). Where a SoftDevice runs, call sd_flash_page_erase and
 * sd_flash_write instead and wait for their events. */
#include "smidgen_store.h"

#define FIRST 0x000F0000u
#define PAGES 16u
#define PAGE 4096u

#define NVMC_READY (*(volatile uint32_t *)0x4001E400u)
#define NVMC_CONFIG (*(volatile uint32_t *)0x4001E504u)
#define NVMC_ERASEPAGE (*(volatile uint32_t *)0x4001E508u)

enum { READ_ONLY, WRITE, ERASE };

static void set(uint32_t mode) {
    while (!NVMC_READY) {
    }
    NVMC_CONFIG = mode;
    __asm__ volatile("isb\n\tdsb" ::: "memory");
}

static int erase(void *context, uint32_t address) {
    (void)context;
    if (address >= PAGES * PAGE) return 1;
    set(ERASE);
    NVMC_ERASEPAGE = FIRST + address;
    set(READ_ONLY);
    return 0;
}

static int program(void *context, uint32_t address, const void *data, uint32_t bytes) {
    const uint32_t *words = data; /* the store hands over its buffer, which is aligned */
    (void)context;
    if (address + bytes > PAGES * PAGE) return 1;
    set(WRITE);
    for (uint32_t i = 0; i < bytes / 4; i++) {
        ((volatile uint32_t *)(uintptr_t)(FIRST + address))[i] = words[i];
        while (!NVMC_READY) {
        }
    }
    set(READ_ONLY);
    return 0;
}

static int read(void *context, uint32_t address, void *data, uint32_t bytes) {
    const volatile uint8_t *from = (const volatile uint8_t *)(uintptr_t)(FIRST + address);
    uint8_t *to = data;
    (void)context;
    if (address + bytes > PAGES * PAGE) return 1;
    for (uint32_t i = 0; i < bytes; i++) to[i] = from[i];
    return 0;
}

extern const smg_flash chip_flash;
const smg_flash chip_flash = {erase, program, read, 0, PAGE, 4};
