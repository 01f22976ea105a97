/* What a save holds: whole blocks of the state, or of each block the bytes that differ from those of the first save. */
#ifndef STORE_BLOCKS_H
#define STORE_BLOCKS_H

#include "store_sectors.h"

enum { SMG_STORE_BLOCKS = 256 };
enum { SMG_FOR_CHECK, SMG_FOR_LOAD, SMG_FOR_COMPARE }; /* what a save is read for */

/* All blocks of the state are marked. */
void smg_store_mark_all(smg_store *store);

/* The blocks of a save, and the CRC up to behind them: the first save of a chain has all of them, whole. To compare
 * marks the blocks that differ from the first save, and counts what `smg_store_is_same` asks for. */
int smg_store_take_blocks(smg_store *store, smg_place *at, int purpose, uint32_t *crc);

/* The blocks that are marked to the end of the chain: whole, or what differs from the first save, whose blocks begin at
 * `first`, which goes on to behind them. */
int smg_store_put_blocks(smg_store *store, smg_place *first, uint32_t *crc);

/* After a comparison: whether memory is what the chain's last save left. */
int smg_store_is_same(const smg_store *store);

#endif
