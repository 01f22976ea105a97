/* A part of flash as it behaves where the power fails: an erase sets bits, a program clears them, and what is cut
 * leaves bits that are set, cleared, or read otherwise each time. */
#ifndef EMULATED_FLASH_H
#define EMULATED_FLASH_H

#include <stddef.h>
#include <stdint.h>

/* A board has no <string.h>, but its compiler's own. */
void *memcpy(void *to, const void *from, size_t bytes);
void *memset(void *to, int byte, size_t bytes);
int memcmp(const void *one, const void *other, size_t bytes);

#ifndef EMULATED_ROOM
#define EMULATED_ROOM 8192
#endif

enum { ROOM = EMULATED_ROOM, SECTORS = EMULATED_ROOM / 128 };
/* What a cut leaves of the operation that it meets: some bits of it, bits that read otherwise each time, or the whole,
 * which reads now as done and now as never begun. */
enum { NOTHING, EVERYTHING, SOME, UNCERTAIN, WAVERING, WAYS };

typedef struct {
    uint8_t bytes[ROOM], uncertain[ROOM]; /* bits that read otherwise each time */
    uint8_t before[ROOM], wavers[ROOM];   /* what bytes read as now and then */
    uint32_t sector_bytes, unit_bytes, sectors, random, erases[SECTORS];
    int32_t until_cut;      /* operations, of which each program of a unit and each erase is one; negative: no cut */
    int32_t done;           /* operations so far */
    int way, off;           /* what the cut leaves; the power is gone */
    int stuck[SECTORS];     /* worn: an erase leaves bits at 0 there */
    int unwilling[SECTORS]; /* worn: a program leaves bits at 1 there */
} emulated_flash;

/* A chip from the factory. */
static inline void emulated_unpack(
    emulated_flash *flash, uint32_t sector_bytes, uint32_t unit_bytes, uint32_t sectors, uint32_t seed) {
    memset(flash, 0, sizeof *flash);
    memset(flash->bytes, 0xff, sizeof flash->bytes);
    flash->sector_bytes = sector_bytes;
    flash->unit_bytes = unit_bytes;
    flash->sectors = sectors;
    flash->random = seed * 2654435761u + 1;
    flash->until_cut = -1;
}

static uint32_t emulated_random(emulated_flash *flash) {
    flash->random ^= flash->random << 13;
    flash->random ^= flash->random >> 17;
    flash->random ^= flash->random << 5;
    return flash->random;
}

/* Whether the power lasts through one more operation. */
static int emulated_lasts(emulated_flash *flash) {
    flash->done++;
    if (flash->until_cut < 0) return 1;
    if (flash->until_cut-- > 0) return 1;
    flash->off = 1;
    flash->until_cut = -1;
    return 0;
}

/* What a cut leaves of a byte that should become `after`; `any` are the bits that it may have brought anywhere. */
static void emulated_tear(emulated_flash *flash, uint32_t at, uint8_t after, uint8_t any) {
    const uint8_t drawn = (uint8_t)emulated_random(flash), unsure = (uint8_t)(emulated_random(flash) & any);
    if (flash->way == NOTHING) return;
    if (flash->way == EVERYTHING || flash->way == WAVERING) {
        flash->before[at] = flash->bytes[at];
        flash->wavers[at] = flash->way == WAVERING;
        flash->bytes[at] = after;
        flash->uncertain[at] &= (uint8_t)~any;
        return;
    }
    flash->bytes[at] = (uint8_t)((flash->bytes[at] & ~any) | (drawn & any));
    flash->uncertain[at] &= (uint8_t)~any;
    if (flash->way == UNCERTAIN) flash->uncertain[at] |= unsure;
}

static int emulated_erase(void *context, uint32_t address) {
    emulated_flash *flash = context;
    const uint32_t sector = address / flash->sector_bytes;
    if (flash->off || address % flash->sector_bytes || sector >= flash->sectors) return 1;
    const int lasts = emulated_lasts(flash);
    flash->erases[sector]++;
    for (uint32_t i = address; i < address + flash->sector_bytes; i++) {
        if (!lasts) {
            emulated_tear(flash, i, 0xff, 0xff);
        } else {
            flash->bytes[i] = flash->stuck[sector] && i % 7 == 3 ? flash->bytes[i] & 0xef : 0xff;
            flash->uncertain[i] = flash->wavers[i] = 0;
        }
    }
    return !lasts;
}

static int emulated_program(void *context, uint32_t address, const void *data, uint32_t bytes) {
    emulated_flash *flash = context;
    const uint8_t *from = data;
    if (flash->off || address % flash->unit_bytes || bytes % flash->unit_bytes ||
        address + bytes > flash->sectors * flash->sector_bytes)
        return 1;
    for (uint32_t unit = 0; unit < bytes; unit += flash->unit_bytes) {
        const int lasts = emulated_lasts(flash);
        for (uint32_t i = unit; i < unit + flash->unit_bytes; i++) {
            const uint32_t at = address + i;
            if (!lasts) {
                emulated_tear(flash, at, flash->bytes[at] & from[i], (uint8_t)(flash->bytes[at] & ~from[i]));
            } else {
                const int unwilling = flash->unwilling[at / flash->sector_bytes] && at % flash->sector_bytes > 64;
                flash->bytes[at] &= unwilling && at % 5 == 2 ? from[i] | 8 : from[i];
                flash->before[at] &= from[i];
                flash->uncertain[at] &= from[i];
            }
        }
        if (!lasts) return 1;
    }
    return 0;
}

static int emulated_read(void *context, uint32_t address, void *data, uint32_t bytes) {
    emulated_flash *flash = context;
    uint8_t *to = data;
    const int earlier_now = (int)(emulated_random(flash) >> 7 & 1);
    if (flash->off || address + bytes > flash->sectors * flash->sector_bytes) return 1;
    for (uint32_t i = 0; i < bytes; i++) {
        const uint8_t unsure = flash->uncertain[address + i];
        to[i] = (earlier_now && flash->wavers[address + i] ? flash->before : flash->bytes)[address + i];
        if (unsure) to[i] ^= (uint8_t)(emulated_random(flash) & unsure);
    }
    return 0;
}

#endif
