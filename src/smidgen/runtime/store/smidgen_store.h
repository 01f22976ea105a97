/* What a program learned, kept in flash: where the power fails the old state is there or the new one, never a mix.
 *
 * A region of flash is a ring of sectors. A chain of saves lies in some of them: the first save holds everything, each
 * that follows the bytes that differ from it. Where the region has no room for one more, a new chain begins in the
 * sectors behind, and the old one stays until that is whole; so all sectors wear alike. docs/internals/flash.md describes
 * the layout. Nothing is allocated, and nothing is written but by save and clear. */
#ifndef SMIDGEN_STORE_H
#define SMIDGEN_STORE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef SMG_STORE_BUFFER
#define SMG_STORE_BUFFER 256 /* bytes that are programmed at once at most: no less than the flash's unit */
#endif

enum {
    SMG_STORE_OK = 0,
    SMG_STORE_EMPTY = -1,  /* nothing was saved there yet */
    SMG_STORE_TORN = -2,   /* nothing whole is there: the first save was cut, or the bytes are no save at all */
    SMG_STORE_OTHER = -3,  /* another program's, or another region's: it stays until smg_store_clear */
    SMG_STORE_LAYOUT = -4, /* another version of this store wrote it: it stays until smg_store_clear */
    SMG_STORE_FULL = -5,   /* the region has too few sectors: smg_store_sectors says how many it takes */
    SMG_STORE_WORN = -6,   /* too few sectors can still be erased and programmed; what was saved before stays */
    SMG_STORE_READ = -7,   /* flash could not be read: no sector at all, or not what was found before */
    SMG_STORE_SETUP = -8   /* sizes that cannot be */
};

/* A part of a chip's flash. The functions give 0 where that went well; addresses count from where yours begin to. A read
 * gives another number where any of its bytes cannot be had, as of a unit that a power cut tore in flash with error
 * correction: its bytes then count as no save. A driver must not let such a read end the program by a fault. */
typedef struct {
    int (*erase)(void *context, uint32_t address); /* the sector there, to 0xFF */
    int (*program)(void *context, uint32_t address, const void *data, uint32_t bytes); /* whole units, never twice */
    int (*read)(void *context, uint32_t address, void *data, uint32_t bytes);
    void *context;
    uint32_t sector_bytes; /* what one erase takes */
    uint32_t unit_bytes;   /* what one program takes at least, and a multiple of which it takes */
} smg_flash;

/* Sectors that hold one thing, by a name of up to 8 characters, which stays where it is: others may hold another. */
typedef struct {
    const char *name;
    uint32_t first, sectors;
} smg_region;

/* What is kept: memory, and the program that understands it. */
typedef struct {
    void *data;
    uint32_t bytes, program[2]; /* the program's fingerprint */
} smg_kept;

/* A place in a chain: the sector's position in the region, its number in the chain, and how far into it. */
typedef struct {
    uint32_t position, index, offset;
} smg_place;

/* Saves that follow each other: where the first begins, how many there are, the CRC of the last and where it ends. */
typedef struct {
    uint32_t number, first, length, link;
    smg_place end;
} smg_chain;

/* All that a store holds in SRAM. Its fields are its own, but `saves` tells how many there were in all. */
typedef struct {
    const smg_flash *flash;
    smg_region region;
    smg_kept kept;
    smg_chain chain;
    uint32_t saves, highest; /* the last chain that was begun */
    uint32_t left;           /* sectors that may still be written */
    uint32_t held;           /* bytes in the buffer */
    int8_t empty, refused;   /* why there is nothing to load; why nothing may be saved */
    uint8_t found, goes_on;  /* there is a chain; it may be gone on with */
    uint8_t fresh, worn_count;
    uint16_t worn[8];
    uint8_t changed[32]; /* a bit for each block that differs from the chain's first save */
    uint32_t differing, delta_bytes;   /* bytes that do, and what a save of them takes */
    uint32_t held_bytes, repeated;     /* bytes that the last save holds, and those of them that memory still has */
    uint32_t buffer[(SMG_STORE_BUFFER + 3) / 4];
} smg_store;

/* Looks at what the region holds: OK where a load will find a state, else why not. Memory stays as it is. */
int smg_store_open(smg_store *store, const smg_flash *flash, smg_region region, smg_kept kept);

/* The last state that was saved, to memory; which is touched only where this gives OK, or READ: then start over. */
int smg_store_load(smg_store *store);

/* Memory into flash, if anything changed since the last save. Where it gives anything but OK, the last save stays. */
int smg_store_save(smg_store *store);

/* Erases the region, whatever it holds. */
int smg_store_clear(smg_store *store);

/* The sectors that a region takes at least for so many bytes: room for two states. */
uint32_t smg_store_sectors(const smg_flash *flash, uint32_t bytes);

#ifdef __cplusplus
}
#endif

#endif
