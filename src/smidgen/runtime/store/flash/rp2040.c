/* Flash beside an RP2040 or RP2350, by the Pico SDK: sectors of 4 KB, pages of 256 bytes, 100,000 erases each.
 *
 * Link hardware_flash and hardware_sync. Here the last 64 KB of 2 MB: no part of the program may be there. Interrupts
 * wait while a sector is erased (45 ms, at times 400) or a page programmed (0.4 ms), for no code can be read from flash
 * meanwhile; where the second core runs, stop it first by multicore_lockout_start_blocking(). */
#include <hardware/flash.h>
#include <hardware/sync.h>

#include "smidgen_store.h"

#define FIRST (2u * 1024u * 1024u - SECTORS * FLASH_SECTOR_SIZE)
#define SECTORS 16u

static int erase(void *context, uint32_t address) {
    (void)context;
    if (address >= SECTORS * FLASH_SECTOR_SIZE) return 1;
    const uint32_t interrupts = save_and_disable_interrupts();
    flash_range_erase(FIRST + address, FLASH_SECTOR_SIZE);
    restore_interrupts(interrupts);
    return 0;
}

static int program(void *context, uint32_t address, const void *data, uint32_t bytes) {
    (void)context;
    if (address + bytes > SECTORS * FLASH_SECTOR_SIZE) return 1;
    const uint32_t interrupts = save_and_disable_interrupts();
    flash_range_program(FIRST + address, data, bytes);
    restore_interrupts(interrupts);
    return 0;
}

static int read(void *context, uint32_t address, void *data, uint32_t bytes) {
    const volatile uint8_t *from = (const volatile uint8_t *)(XIP_BASE + FIRST + address);
    uint8_t *to = data;
    (void)context;
    if (address + bytes > SECTORS * FLASH_SECTOR_SIZE) return 1;
    for (uint32_t i = 0; i < bytes; i++) to[i] = from[i];
    return 0;
}

extern const smg_flash chip_flash;
const smg_flash chip_flash = {erase, program, read, 0, FLASH_SECTOR_SIZE, FLASH_PAGE_SIZE};
