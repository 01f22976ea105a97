/* Slots of a ring of examples: where each is, what its head holds, and how a group of them is erased and reused. */
#ifndef REPLAY_SLOTS_H
#define REPLAY_SLOTS_H

#include "smidgen_replay.h"

enum { SMG_SLOT_FREE = 255, SMG_SLOT_WORN = 254, SMG_NO_SLOT = 0x7fffffff }; /* among labels; among slots */

/* Words of a slot's head, which is programmed after the latent behind it: every layout begins with the first two. */
enum {
    SMG_SLOT_MAGIC, SMG_SLOT_VERSION, SMG_SLOT_NAME, SMG_SLOT_PROGRAM = 4, SMG_SLOT_BYTES = 6, SMG_SLOT_LABEL,
    SMG_SLOT_SEQUENCE, SMG_SLOT_SEEN, SMG_SLOT_DATA_CRC, SMG_SLOT_CRC, SMG_SLOT_WORDS
};

/* The division of a region that holds the most examples; none in it where there is no room for two groups. */
smg_division smg_replay_divide(const smg_flash *flash, uint32_t sectors, uint32_t bytes);

/* How many examples are kept where so many groups of so many slots can be used: one group is free, and where groups
 * have several slots an eighth of the others, so that few examples are copied for each that is written. */
uint32_t smg_replay_kept(uint32_t groups, uint32_t slots);

uint32_t smg_replay_slots(const smg_replay *ring);
uint32_t smg_replay_address(const smg_replay *ring, uint32_t slot);

/* What flash holds at an address: 0 and the head of an example of this ring; EMPTY, OTHER, LAYOUT or READ. */
int smg_replay_head(const smg_replay *ring, uint32_t address, uint32_t head[SMG_SLOT_WORDS]);

int smg_replay_is_live(const smg_replay *ring, uint32_t slot);

/* Slots of a group that hold an example; and whether any of them cannot be written. */
uint32_t smg_replay_live_in(const smg_replay *ring, uint32_t group);
int smg_replay_is_worn(const smg_replay *ring, uint32_t group);

/* Makes a group blank: OK, or WORN, and then it is never written again. */
int smg_replay_erase(smg_replay *ring, uint32_t group);

/* The latent of the slot at hand, in pieces, and then its head; 0 or WORN. */
void smg_replay_start(smg_replay *ring, uint32_t slot);
int smg_replay_put(smg_replay *ring, const uint8_t *data, uint32_t bytes);
int smg_replay_finish(smg_replay *ring, uint32_t label, uint32_t sequence, uint32_t seen);

#endif
