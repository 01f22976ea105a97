/* Chains of sectors: what is read of them and written to them goes on from one to the next. */
#ifndef STORE_SECTORS_H
#define STORE_SECTORS_H

#include "smidgen_store.h"

/* What the head of a sector says: a unit that a cut tore may not read. */
enum { SMG_SECTOR_BLANK, SMG_SECTOR_JUNK, SMG_SECTOR_UNREAD, SMG_SECTOR_LAYOUT, SMG_SECTOR_OTHER, SMG_SECTOR_OURS };

/* Words of a sector's head: every layout begins with the first two and ends with a CRC of what is before it. */
enum {
    SMG_HEAD_MAGIC, SMG_HEAD_VERSION, SMG_HEAD_NAME, SMG_HEAD_PROGRAM = 4, SMG_HEAD_BYTES = 6, SMG_HEAD_CHAIN,
    SMG_HEAD_INDEX, SMG_HEAD_LINK, SMG_HEAD_CRC, SMG_HEAD_WORDS
};

uint32_t smg_store_crc(uint32_t crc, const void *data, uint32_t bytes);

/* Bytes rounded up to whole units, and what a sector's head takes. */
uint32_t smg_store_units(const smg_flash *flash, uint32_t bytes);
uint32_t smg_store_head_bytes(const smg_flash *flash);

/* The head of the sector at a position, and what it says: a number from above. */
int smg_store_head(const smg_store *store, uint32_t position, uint32_t head[SMG_HEAD_WORDS]);

/* To the start of the chain's next sector, and what its head says the last save before it was; 0 where there is one. */
int smg_store_step(const smg_store *store, uint32_t chain, smg_place *at, uint32_t *link);

/* The next bytes of a chain; 0, or SMG_STORE_TORN where the chain ends or they cannot be read. */
int smg_store_take(const smg_store *store, uint32_t chain, smg_place *at, void *to, uint32_t bytes);

/* Bytes to the end of the chain, in whole units from smg_store_flush on; 0, or SMG_STORE_WORN. */
int smg_store_put(smg_store *store, const void *data, uint32_t bytes);
int smg_store_flush(smg_store *store);

/* A sector more for the chain: erased, blank indeed, with a head. */
int smg_store_enter(smg_store *store);

/* Whether so many bytes of a sector read as 0xFF. */
int smg_store_is_blank(const smg_store *store, uint32_t position, uint32_t offset, uint32_t bytes);

/* One sector to 0xFF; 0 where it reads so. */
int smg_store_erase(const smg_store *store, uint32_t position);

#endif
