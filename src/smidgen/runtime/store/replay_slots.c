/* Slots of a ring: a latent goes in first, its head last, so that what has a head is whole. */
#include "replay_slots.h"

#include "store_sectors.h"

enum { MAGIC = 0x4c474d53, LAYOUT = 1, CHUNK = 32, WIDEST = 8 }; /* MAGIC reads "SMGL" */

static uint32_t head_bytes(const smg_flash *flash) {
    return smg_store_units(flash, SMG_SLOT_WORDS * (uint32_t)sizeof(uint32_t));
}

uint32_t smg_replay_kept(uint32_t groups, uint32_t slots) {
    return groups < 2 ? 0 : (groups - 1) * slots - (slots - 1) * (groups - 1) / 8;
}

smg_division smg_replay_divide(const smg_flash *flash, uint32_t sectors, uint32_t bytes) {
    const uint32_t slot = head_bytes(flash) + smg_store_units(flash, bytes);
    const uint32_t least = (slot + flash->sector_bytes - 1) / flash->sector_bytes;
    smg_division best = {0};
    for (uint32_t wide = least; wide < least + WIDEST && wide <= sectors; wide++) {
        smg_division one = {wide, sectors / wide, wide * flash->sector_bytes / slot, slot};
        if (one.groups > SMG_REPLAY_SLOTS) one.groups = SMG_REPLAY_SLOTS;
        if (one.slots > SMG_REPLAY_SLOTS / one.groups) one.slots = SMG_REPLAY_SLOTS / one.groups;
        if (smg_replay_kept(one.groups, one.slots) > smg_replay_kept(best.groups, best.slots)) best = one;
    }
    return best;
}

uint32_t smg_replay_slots(const smg_replay *ring) { return ring->division.groups * ring->division.slots; }

static uint32_t group_address(const smg_replay *ring, uint32_t group) {
    return (ring->region.first + group * ring->division.sectors) * ring->flash->sector_bytes;
}

uint32_t smg_replay_address(const smg_replay *ring, uint32_t slot) {
    const smg_division *by = &ring->division;
    return group_address(ring, slot / by->slots) + slot % by->slots * by->slot_bytes;
}

/* The words of a head that are the same for every example of this ring. */
static void identify(const smg_replay *ring, uint32_t head[SMG_SLOT_WORDS]) {
    const char *name = ring->region.name;
    for (int i = 0; i < SMG_SLOT_WORDS; i++) head[i] = 0;
    head[SMG_SLOT_MAGIC] = MAGIC;
    head[SMG_SLOT_VERSION] = LAYOUT;
    for (uint32_t i = 0; i < 8 && *name; i++) head[SMG_SLOT_NAME + i / 4] |= (uint32_t)(uint8_t)*name++ << i % 4 * 8;
    head[SMG_SLOT_PROGRAM] = ring->latents.program[0];
    head[SMG_SLOT_PROGRAM + 1] = ring->latents.program[1];
    head[SMG_SLOT_BYTES] = ring->latents.bytes;
}

static uint32_t head_crc(const uint32_t head[SMG_SLOT_WORDS]) {
    return smg_store_crc(0, head, SMG_SLOT_CRC * (uint32_t)sizeof head[0]);
}

int smg_replay_head(const smg_replay *ring, uint32_t address, uint32_t head[SMG_SLOT_WORDS]) {
    const smg_flash *flash = ring->flash;
    uint32_t own[SMG_SLOT_WORDS];
    if (flash->read(flash->context, address, head, (uint32_t)sizeof own)) return SMG_STORE_READ;
    if (head[SMG_SLOT_MAGIC] != MAGIC || head[SMG_SLOT_CRC] != head_crc(head)) return SMG_STORE_EMPTY;
    if (head[SMG_SLOT_VERSION] != LAYOUT) return SMG_STORE_LAYOUT;
    identify(ring, own);
    for (int i = 0; i < SMG_SLOT_LABEL; i++)
        if (head[i] != own[i]) return SMG_STORE_OTHER;
    return head[SMG_SLOT_LABEL] < SMG_REPLAY_CLASSES ? SMG_STORE_OK : SMG_STORE_OTHER;
}

int smg_replay_is_live(const smg_replay *ring, uint32_t slot) { return ring->label[slot] < SMG_SLOT_WORN; }

uint32_t smg_replay_live_in(const smg_replay *ring, uint32_t group) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < ring->division.slots; i++)
        count += (uint32_t)smg_replay_is_live(ring, group * ring->division.slots + i);
    return count;
}

int smg_replay_is_worn(const smg_replay *ring, uint32_t group) {
    for (uint32_t i = 0; i < ring->division.slots; i++)
        if (ring->label[group * ring->division.slots + i] == SMG_SLOT_WORN) return 1;
    return 0;
}

/* The slots of a group without an example can no longer be used; those with one can still be read. */
static int wear_out(smg_replay *ring, uint32_t group) {
    for (uint32_t i = group * ring->division.slots; i < (group + 1) * ring->division.slots; i++)
        if (!smg_replay_is_live(ring, i)) ring->label[i] = SMG_SLOT_WORN;
    if (group == ring->last_group) ring->next = ring->end;
    return SMG_STORE_WORN;
}

/* Whether flash reads as what was programmed, or as blank where nothing is given. */
static int reads_as(const smg_flash *flash, uint32_t address, const uint8_t *data, uint32_t bytes) {
    uint8_t found[CHUNK];
    for (uint32_t at = 0; at < bytes; at += CHUNK) {
        const uint32_t part = bytes - at < CHUNK ? bytes - at : CHUNK;
        if (flash->read(flash->context, address + at, found, part)) return 0;
        for (uint32_t i = 0; i < part; i++)
            if (found[i] != (data ? data[at + i] : 0xff)) return 0;
    }
    return 1;
}

int smg_replay_erase(smg_replay *ring, uint32_t group) {
    const smg_flash *flash = ring->flash;
    for (uint32_t i = 0; i < ring->division.sectors; i++) {
        const uint32_t address = group_address(ring, group) + i * flash->sector_bytes;
        if (flash->erase(flash->context, address) || !reads_as(flash, address, 0, flash->sector_bytes))
            return wear_out(ring, group);
    }
    return SMG_STORE_OK;
}

/* What the buffer holds to an address, padded to whole units; no program goes over the end of a sector. */
static int flush(smg_replay *ring, uint32_t address) {
    const smg_flash *flash = ring->flash;
    const uint32_t bytes = smg_store_units(flash, ring->held);
    uint8_t *buffer = (uint8_t *)ring->buffer;
    for (uint32_t i = ring->held; i < bytes; i++) buffer[i] = 0xff;
    ring->held = 0;
    for (uint32_t at = 0, part; at < bytes; at += part) {
        const uint32_t there = flash->sector_bytes - (address + at) % flash->sector_bytes;
        part = bytes - at < there ? bytes - at : there;
        if (flash->program(flash->context, address + at, buffer + at, part) ||
            !reads_as(flash, address + at, buffer + at, part))
            return wear_out(ring, ring->slot / ring->division.slots);
    }
    return SMG_STORE_OK;
}

void smg_replay_start(smg_replay *ring, uint32_t slot) {
    ring->slot = slot;
    ring->moved = ring->crc = ring->held = 0;
}

/* Where the bytes go that the buffer holds. */
static uint32_t flush_address(const smg_replay *ring) {
    return smg_replay_address(ring, ring->slot) + head_bytes(ring->flash) + ring->moved - ring->held;
}

int smg_replay_put(smg_replay *ring, const uint8_t *data, uint32_t bytes) {
    const uint32_t most = SMG_STORE_BUFFER / ring->flash->unit_bytes * ring->flash->unit_bytes;
    if (bytes > ring->latents.bytes - ring->moved) return SMG_STORE_SETUP;
    ring->crc = smg_store_crc(ring->crc, data, bytes);
    for (uint32_t i = 0; i < bytes; i++) {
        ((uint8_t *)ring->buffer)[ring->held++] = data[i];
        ring->moved++;
        if (ring->held == most && flush(ring, flush_address(ring))) return SMG_STORE_WORN;
    }
    return SMG_STORE_OK;
}

int smg_replay_finish(smg_replay *ring, uint32_t label, uint32_t sequence, uint32_t seen) {
    uint32_t head[SMG_SLOT_WORDS];
    if (ring->moved != ring->latents.bytes) return SMG_STORE_SETUP;
    if (flush(ring, flush_address(ring))) return SMG_STORE_WORN;
    identify(ring, head);
    head[SMG_SLOT_LABEL] = label;
    head[SMG_SLOT_SEQUENCE] = sequence;
    head[SMG_SLOT_SEEN] = seen;
    head[SMG_SLOT_DATA_CRC] = ring->crc;
    head[SMG_SLOT_CRC] = head_crc(head);
    for (uint32_t at = 0, part; at < sizeof head; at += part) { /* in pieces that the buffer has room for */
        part = (uint32_t)sizeof head - at < SMG_STORE_BUFFER ? (uint32_t)sizeof head - at : SMG_STORE_BUFFER;
        for (uint32_t i = 0; i < part; i++) ((uint8_t *)ring->buffer)[i] = ((const uint8_t *)head)[at + i];
        ring->held = part;
        if (flush(ring, smg_replay_address(ring, ring->slot) + at)) return SMG_STORE_WORN;
    }
    ring->label[ring->slot] = (uint8_t)label;
    return SMG_STORE_OK;
}
