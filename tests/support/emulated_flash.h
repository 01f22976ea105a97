/* A part of flash as it behaves where the power fails: an erase sets bits, a program clears them, and what is cut
 * leaves bits that are set, cleared, or read otherwise each time. In flash with error correction what is cut leaves
 * units that cannot be read, always or now and then. */
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
/* Of a byte: it reads now as `before`, its unit cannot be read, not now and then, and was programmed since the erase. */
enum { WAVERS = 1, FAULTS = 2, FALTERS = 4, TOUCHED = 8 };

typedef struct {
    uint8_t bytes[ROOM], uncertain[ROOM]; /* bits that read otherwise each time */
    uint8_t before[ROOM], marks[ROOM];    /* what bytes read as now and then */
    int corrects, byte; /* errors, so that what was torn does not read; the byte of the unit that a cut meets, or -1 */
    uint32_t twice;     /* units that were programmed although they showed what a program had left */
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
    flash->until_cut = flash->byte = -1;
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
        flash->marks[at] &= (uint8_t)~WAVERS;
        if (flash->way == WAVERING) flash->marks[at] |= WAVERS;
        flash->bytes[at] = after;
        flash->uncertain[at] &= (uint8_t)~any;
        return;
    }
    flash->bytes[at] = (uint8_t)((flash->bytes[at] & ~any) | (drawn & any));
    flash->uncertain[at] &= (uint8_t)~any;
    if (flash->way == UNCERTAIN) flash->uncertain[at] |= unsure;
}

/* What a cut leaves of a unit with error correction: nothing that could be read, or as if whole now and then; of an
 * erase, old and blank units among them. */
static void emulated_break(emulated_flash *flash, uint32_t unit, const uint8_t *data) {
    const uint32_t random = emulated_random(flash);
    for (uint32_t i = 0; i < flash->unit_bytes && flash->way != NOTHING; i++) {
        const uint32_t at = unit + i;
        flash->before[at] = flash->bytes[at];
        if (data || flash->way != UNCERTAIN || random & 1) flash->bytes[at] = data ? flash->bytes[at] & data[i] : 0xff;
        if (flash->way == SOME && (data || random & 2)) flash->marks[at] |= FAULTS;
        if (flash->way == UNCERTAIN || flash->way == WAVERING) flash->marks[at] |= FALTERS;
        if (flash->way == WAVERING && !data) flash->marks[at] |= WAVERS;
    }
}

/* A unit that a cut meets while it is programmed. */
static void emulated_cut(emulated_flash *flash, uint32_t unit, const uint8_t *data) {
    int shows = flash->corrects && flash->way != NOTHING;
    if (flash->corrects) {
        emulated_break(flash, unit, data);
    } else {
        for (uint32_t i = 0; i < flash->unit_bytes; i++) {
            const uint8_t before = flash->bytes[unit + i], after = before & data[i];
            if (flash->byte > (int)i) flash->bytes[unit + i] = after;
            if (flash->byte < 0 || flash->byte == (int)i) emulated_tear(flash, unit + i, after, before & (uint8_t)~data[i]);
        }
    }
    for (uint32_t at = unit; at < unit + flash->unit_bytes; at++)
        shows |= !(flash->marks[at] & WAVERS) && (flash->bytes[at] | flash->uncertain[at]) != 0xff;
    for (uint32_t i = 0; i < flash->unit_bytes && shows; i++) flash->marks[unit + i] |= TOUCHED;
}

/* A sector whose erase is cut: nothing may be programmed there, unless it may read as if it had never begun. */
static void emulated_half_erase(emulated_flash *flash, uint32_t address) {
    for (uint32_t at = address; at < address + flash->sector_bytes; at++) {
        if (!flash->corrects) emulated_tear(flash, at, 0xff, 0xff);
        else if (at % flash->unit_bytes == 0) emulated_break(flash, at, 0);
        if (flash->way == EVERYTHING) flash->marks[at] = 0;
        if (flash->way == SOME) flash->marks[at] |= TOUCHED;
        if (flash->way > SOME) flash->marks[at] &= (uint8_t)~TOUCHED;
    }
}

static int emulated_erase(void *context, uint32_t address) {
    emulated_flash *flash = context;
    const uint32_t sector = address / flash->sector_bytes;
    if (flash->off || address % flash->sector_bytes || sector >= flash->sectors) return 1;
    flash->erases[sector]++;
    if (!emulated_lasts(flash)) return emulated_half_erase(flash, address), 1;
    for (uint32_t i = address; i < address + flash->sector_bytes; i++) {
        flash->bytes[i] = flash->stuck[sector] && i % 7 == 3 ? flash->bytes[i] & 0xef : 0xff;
        flash->uncertain[i] = flash->marks[i] = 0;
    }
    return 0;
}

static int emulated_program(void *context, uint32_t address, const void *data, uint32_t bytes) {
    emulated_flash *flash = context;
    const uint8_t *from = data;
    if (flash->off || address % flash->unit_bytes || bytes % flash->unit_bytes ||
        address + bytes > flash->sectors * flash->sector_bytes)
        return 1;
    for (uint32_t unit = 0; unit < bytes; unit += flash->unit_bytes) {
        flash->twice += flash->marks[address + unit] & TOUCHED ? 1 : 0;
        if (!emulated_lasts(flash)) return emulated_cut(flash, address + unit, from + unit), 1;
        for (uint32_t i = unit; i < unit + flash->unit_bytes; i++) {
            const uint32_t at = address + i;
            const int unwilling = flash->unwilling[at / flash->sector_bytes] && at % flash->sector_bytes > 64;
            flash->bytes[at] &= unwilling && at % 5 == 2 ? from[i] | 8 : from[i];
            flash->before[at] &= from[i];
            flash->uncertain[at] &= from[i];
            flash->marks[at] |= TOUCHED;
        }
    }
    return 0;
}

static int emulated_read(void *context, uint32_t address, void *data, uint32_t bytes) {
    emulated_flash *flash = context;
    uint8_t *to = data;
    const int earlier_now = (int)(emulated_random(flash) >> 7 & 1);
    if (flash->off || address + bytes > flash->sectors * flash->sector_bytes) return 1;
    for (uint32_t i = 0; i < bytes; i++) {
        const uint8_t unsure = flash->uncertain[address + i], marks = flash->marks[address + i];
        const int faults = flash->corrects && marks & (FAULTS | FALTERS);
        if (faults && (marks & FAULTS || emulated_random(flash) & 16)) return 1;
        to[i] = (earlier_now && marks & WAVERS ? flash->before : flash->bytes)[address + i];
        if (unsure) to[i] ^= (uint8_t)(emulated_random(flash) & unsure);
    }
    return 0;
}

#endif
