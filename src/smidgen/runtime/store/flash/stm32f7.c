/* Flash of an STM32F74x or F75x: few large sectors, 10,000 erases each. No SDK is needed.
 *
 * Of 1 MB, sectors 0 to 3 have 32 KB, sector 4 has 128 KB and 5 to 7 have 256 KB. Those of a store are of one size:
 *   6 and 7    two of 256 KB, here; the program keeps 512 KB in one piece. An erase takes about a second.
 *   1 to 3     three of 32 KB, for states below 32,000 bytes; vectors stay in sector 0, the rest begins in 4, so
 *              that the program has 896 KB. An erase takes about a quarter of a second. Set LARGE to 0.
 * Meanwhile the core stands still, unless all it runs lies in RAM. Supply from 2.7 V up: words of 32 bits. */
#include "smidgen_store.h"

#define LARGE 1
#if LARGE
enum { FIRST_SECTOR = 6, COUNT = 2, SECTOR = 256 * 1024 };
#define FIRST 0x08080000u
#else
enum { FIRST_SECTOR = 1, COUNT = 3, SECTOR = 32 * 1024 };
#define FIRST 0x08008000u
#endif

#define KEYR (*(volatile uint32_t *)0x40023C04u)
#define SR (*(volatile uint32_t *)0x40023C0Cu)
#define CR (*(volatile uint32_t *)0x40023C10u)
#define DCIMVAC (*(volatile uint32_t *)0xE000EF5Cu) /* forgets a line of the data cache */

enum { BUSY = 1 << 16, ERRORS = 0xF2, PG = 1, SER = 2, WORDS = 2 << 8, STRT = 1 << 16 };
#define LOCK (1u << 31)

static void unlock(void) {
    while (SR & BUSY) {
    }
    if (CR & LOCK) {
        KEYR = 0x45670123u;
        KEYR = 0xCDEF89ABu;
    }
    SR = ERRORS;
}

/* Waits, and gives 0 where nothing went wrong. */
static int finish(void) {
    __asm__ volatile("dsb" ::: "memory");
    while (SR & BUSY) {
    }
    const int failed = (SR & ERRORS) != 0;
    CR = LOCK;
    return failed;
}

static int erase(void *context, uint32_t address) {
    (void)context;
    if (address >= (uint32_t)COUNT * SECTOR) return 1;
    unlock();
    CR = WORDS | SER | (FIRST_SECTOR + address / SECTOR) << 3;
    CR |= STRT;
    return finish();
}

static int program(void *context, uint32_t address, const void *data, uint32_t bytes) {
    const uint32_t *words = data; /* the store hands over its buffer, which is aligned */
    (void)context;
    if (address + bytes > (uint32_t)COUNT * SECTOR) return 1;
    unlock();
    CR = WORDS | PG;
    for (uint32_t i = 0; i < bytes / 4; i++) {
        ((volatile uint32_t *)(uintptr_t)(FIRST + address))[i] = words[i];
        __asm__ volatile("dsb" ::: "memory");
        while (SR & BUSY) {
        }
    }
    return finish();
}

static int read(void *context, uint32_t address, void *data, uint32_t bytes) {
    const volatile uint8_t *from = (const volatile uint8_t *)(uintptr_t)(FIRST + address);
    uint8_t *to = data;
    (void)context;
    if (address + bytes > (uint32_t)COUNT * SECTOR) return 1;
    for (uint32_t line = (FIRST + address) & ~31u; line < FIRST + address + bytes; line += 32) DCIMVAC = line;
    __asm__ volatile("dsb\n\tisb" ::: "memory");
    for (uint32_t i = 0; i < bytes; i++) to[i] = from[i];
    return 0;
}

extern const smg_flash chip_flash;
const smg_flash chip_flash = {erase, program, read, 0, SECTOR, 4};
