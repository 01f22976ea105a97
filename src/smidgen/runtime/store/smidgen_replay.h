/* Examples kept in flash to learn from again: latents with their labels, an equal share of them for each class.
 *
 * A region of flash is divided into groups of sectors that are erased together, and each group into slots for one
 * example each. Where a class has its share, which examples stay is drawn so that each that was ever offered is as
 * likely as any other. Where the power fails an example is whole or not there. docs/internals/replay.md describes the layout.
 * Nothing is allocated; nothing is written but between begin and end, and by clear. */
#ifndef SMIDGEN_REPLAY_H
#define SMIDGEN_REPLAY_H

#include "smidgen_store.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef SMG_REPLAY_SLOTS
#define SMG_REPLAY_SLOTS 256 /* at most: each takes a byte of SRAM */
#endif

#ifndef SMG_REPLAY_CLASSES
#define SMG_REPLAY_CLASSES 32 /* labels from 0 up to below this, at most 250: each takes 4 bytes of SRAM */
#endif

enum { SMG_REPLAY_PASSED = 1 }; /* beside the codes of smidgen_store.h: this example is not kept */

/* What is kept: how many bytes a latent has, the fingerprint of what makes it, and where random numbers begin. */
typedef struct {
    uint32_t bytes, program[2], seed;
} smg_latents;

/* How a region is divided. */
typedef struct {
    uint32_t sectors;           /* that a group has */
    uint32_t groups, slots;     /* of the region; of a group */
    uint32_t slot_bytes;
} smg_division;

/* All that a ring holds in SRAM. Its fields are its own. */
typedef struct {
    const smg_flash *flash;
    smg_region region;
    smg_latents latents;
    smg_division division;
    uint32_t sequence, random;         /* of the last example; the generator's state */
    uint32_t seen[SMG_REPLAY_CLASSES]; /* examples that were offered of each class */
    uint32_t last_group, next, end;    /* the group that is filled, and its slots that are still blank */
    uint32_t slot, moved, crc, held;   /* the example at hand: its bytes so far, their CRC, and those in the buffer */
    uint32_t begun_label;
    int8_t refused, writing, reading;
    uint8_t label[SMG_REPLAY_SLOTS]; /* of each slot's example */
    uint32_t buffer[(SMG_STORE_BUFFER + 3) / 4];
} smg_replay;

/* Looks at what the region holds: OK where there are examples, EMPTY, or why it cannot be used. */
int smg_replay_open(smg_replay *ring, const smg_flash *flash, smg_region region, smg_latents latents);

/* An example of a class is offered: OK where its latent is to follow, in pieces, or PASSED. The place for it is made. */
int smg_replay_begin(smg_replay *ring, uint32_t label);
int smg_replay_write(smg_replay *ring, const void *piece, uint32_t bytes);
int smg_replay_end(smg_replay *ring);

/* One of the examples at random: OK and its label, or EMPTY. Its latent is then read in pieces; the last of them gives
 * TORN where it is not what was written: learn nothing from it then. It is not picked again. */
int smg_replay_pick(smg_replay *ring, uint32_t *label);
int smg_replay_read(smg_replay *ring, void *piece, uint32_t bytes);

/* How many examples there are: of one class, or of all for a label of SMG_REPLAY_CLASSES. */
uint32_t smg_replay_count(const smg_replay *ring, uint32_t label);

/* Erases the region, whatever it holds. */
int smg_replay_clear(smg_replay *ring);

/* How many examples of so many bytes a region of so many sectors holds. */
uint32_t smg_replay_room(const smg_flash *flash, uint32_t sectors, uint32_t bytes);

#ifdef __cplusplus
}
#endif

#endif
