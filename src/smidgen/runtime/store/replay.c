/* Which examples are kept: an equal share for each class, drawn by reservoir sampling, and room for the next. */
#include "replay_slots.h"

#include "store_sectors.h"

/* A number below a bound, by Marsaglia's xorshift. */
static uint32_t draw(smg_replay *ring, uint32_t bound) {
    ring->random ^= ring->random << 13;
    ring->random ^= ring->random >> 17;
    ring->random ^= ring->random << 5;
    return (uint32_t)((uint64_t)ring->random * bound >> 32);
}

uint32_t smg_replay_count(const smg_replay *ring, uint32_t label) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < smg_replay_slots(ring); i++)
        count += smg_replay_is_live(ring, i) && (label >= SMG_REPLAY_CLASSES || ring->label[i] == label);
    return count;
}

uint32_t smg_replay_room(const smg_flash *flash, uint32_t sectors, uint32_t bytes) {
    const smg_division by = smg_replay_divide(flash, sectors, bytes);
    return smg_replay_kept(by.groups, by.slots);
}

/* The examples that are kept at most: those of groups that can be written. */
static uint32_t capacity(const smg_replay *ring) {
    uint32_t groups = 0;
    for (uint32_t i = 0; i < ring->division.groups; i++) groups += !smg_replay_is_worn(ring, i);
    return smg_replay_kept(groups, ring->division.slots);
}

static uint32_t largest_class(const smg_replay *ring) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < SMG_REPLAY_CLASSES; i++)
        if (smg_replay_count(ring, i) > smg_replay_count(ring, best)) best = i;
    return best;
}

/* Example `index` of those of a class, or of all. */
static uint32_t nth(const smg_replay *ring, uint32_t label, uint32_t index) {
    for (uint32_t i = 0; i < smg_replay_slots(ring); i++) {
        if (!smg_replay_is_live(ring, i) || (label < SMG_REPLAY_CLASSES && ring->label[i] != label)) continue;
        if (!index--) return i;
    }
    return SMG_NO_SLOT;
}

/* Forgets one example of a class. Flash keeps it until its group is erased: a restart may find it again. */
static void forget_one(smg_replay *ring, uint32_t label) {
    const uint32_t slot = nth(ring, label, draw(ring, smg_replay_count(ring, label)));
    if (slot != SMG_NO_SLOT) ring->label[slot] = SMG_SLOT_FREE;
}

static void forget_group(smg_replay *ring, uint32_t group) {
    for (uint32_t i = group * ring->division.slots; i < (group + 1) * ring->division.slots; i++)
        if (smg_replay_is_live(ring, i)) ring->label[i] = SMG_SLOT_FREE;
}

static void fit(smg_replay *ring, uint32_t most) {
    while (smg_replay_count(ring, SMG_REPLAY_CLASSES) > most) forget_one(ring, largest_class(ring));
}

static uint32_t sequence_of(const smg_replay *ring, uint32_t slot) {
    uint32_t head[SMG_SLOT_WORDS];
    return smg_replay_head(ring, smg_replay_address(ring, slot), head) ? 0 : head[SMG_SLOT_SEQUENCE];
}

/* The slot of another group that holds the same example: a cut came between its copy and what made room for it. */
static uint32_t twin(const smg_replay *ring, uint32_t slot) {
    const uint32_t own = sequence_of(ring, slot), group = slot / ring->division.slots;
    for (uint32_t i = 0; i < smg_replay_slots(ring); i++)
        if (i / ring->division.slots != group && ring->label[i] == ring->label[slot] && sequence_of(ring, i) == own)
            return i;
    return SMG_NO_SLOT;
}

static int is_free(const smg_replay *ring, uint32_t group) {
    return !smg_replay_is_worn(ring, group) && !smg_replay_live_in(ring, group);
}

static uint32_t free_groups(const smg_replay *ring) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < ring->division.groups; i++) count += (uint32_t)is_free(ring, i);
    return count;
}

/* After a restart: one group is free, and no example is there twice. What another group also holds is missed least. */
static void settle(smg_replay *ring) {
    const uint32_t slots = ring->division.slots;
    if (!free_groups(ring)) {
        uint32_t least = 0xffffffffu, chosen = 0;
        for (uint32_t group = 0; group < ring->division.groups; group++) {
            uint32_t missed = 0;
            for (uint32_t i = group * slots; i < (group + 1) * slots; i++)
                missed += smg_replay_is_live(ring, i) && twin(ring, i) == SMG_NO_SLOT;
            if (missed < least) {
                least = missed;
                chosen = group;
            }
        }
        forget_group(ring, chosen);
    }
    for (uint32_t i = 0; i < smg_replay_slots(ring); i++)
        if (smg_replay_is_live(ring, i) && twin(ring, i) != SMG_NO_SLOT) ring->label[i] = SMG_SLOT_FREE;
    fit(ring, capacity(ring));
}

static int is_possible(const smg_replay *ring) {
    const smg_flash *flash = ring->flash;
    const uint32_t unit = flash->unit_bytes;
    return unit && unit <= SMG_STORE_BUFFER && flash->sector_bytes % unit == 0 && flash->sector_bytes &&
           ring->latents.bytes && ring->latents.bytes < 0x40000000u && SMG_REPLAY_CLASSES < SMG_SLOT_WORN;
}

/* What each slot holds; OK, or why the region is not to be touched. A head of others lies where a sector begins. */
static int look(smg_replay *ring) {
    uint32_t head[SMG_SLOT_WORDS], unread = 0;
    for (uint32_t i = 0; i < ring->region.sectors; i++) {
        const int says = smg_replay_head(ring, (ring->region.first + i) * ring->flash->sector_bytes, head);
        if (says == SMG_STORE_OTHER || says == SMG_STORE_LAYOUT) return says;
        unread += says == SMG_STORE_READ; /* a unit that a cut tore may not read */
    }
    if (unread == ring->region.sectors) return SMG_STORE_READ;
    for (uint32_t i = 0; i < smg_replay_slots(ring); i++) {
        const int says = smg_replay_head(ring, smg_replay_address(ring, i), head);
        if (says == SMG_STORE_OTHER) return says;
        if (says) continue;
        const uint32_t label = head[SMG_SLOT_LABEL];
        ring->label[i] = (uint8_t)label;
        if (head[SMG_SLOT_SEQUENCE] > ring->sequence) {
            ring->sequence = head[SMG_SLOT_SEQUENCE];
            ring->last_group = i / ring->division.slots;
        }
        if (head[SMG_SLOT_SEEN] > ring->seen[label]) ring->seen[label] = head[SMG_SLOT_SEEN];
    }
    return SMG_STORE_OK;
}

int smg_replay_open(smg_replay *ring, const smg_flash *flash, smg_region region, smg_latents latents) {
    uint8_t *bytes = (uint8_t *)ring;
    for (uint32_t i = 0; i < sizeof *ring; i++) bytes[i] = 0;
    ring->flash = flash;
    ring->region = region;
    ring->latents = latents;
    for (uint32_t i = 0; i < SMG_REPLAY_SLOTS; i++) ring->label[i] = SMG_SLOT_FREE;
    if (!is_possible(ring)) return ring->refused = SMG_STORE_SETUP;
    ring->division = smg_replay_divide(flash, region.sectors, latents.bytes);
    if (!ring->division.groups) return ring->refused = SMG_STORE_FULL;
    const int failed = look(ring);
    if (failed) return ring->refused = (int8_t)failed;
    ring->random = (latents.seed ^ ring->sequence * 2654435761u) | 1u;
    settle(ring);
    return smg_replay_count(ring, SMG_REPLAY_CLASSES) ? SMG_STORE_OK : SMG_STORE_EMPTY;
}

/* The latent of an example in pieces: what is read for the arena goes to `piece`, else to a small memory here. */
static int take(smg_replay *ring, void *piece, uint32_t bytes) {
    const smg_flash *flash = ring->flash;
    const uint32_t begin = ring->division.slot_bytes - smg_store_units(flash, ring->latents.bytes);
    if (bytes > ring->latents.bytes - ring->moved) return SMG_STORE_SETUP;
    if (flash->read(flash->context, smg_replay_address(ring, ring->slot) + begin + ring->moved, piece, bytes))
        return SMG_STORE_TORN;
    ring->crc = smg_store_crc(ring->crc, piece, bytes);
    ring->moved += bytes;
    return SMG_STORE_OK;
}

/* One example to another slot, in pieces; one that is damaged is left behind. */
static int copy(smg_replay *ring, uint32_t from, uint32_t to) {
    uint32_t head[SMG_SLOT_WORDS], piece[8];
    const uint32_t begin = ring->division.slot_bytes - smg_store_units(ring->flash, ring->latents.bytes);
    int failed = smg_replay_head(ring, smg_replay_address(ring, from), head);
    smg_replay_start(ring, to);
    for (uint32_t at = 0, part; at < ring->latents.bytes && !failed; at += part) {
        part = ring->latents.bytes - at < sizeof piece ? ring->latents.bytes - at : (uint32_t)sizeof piece;
        if (ring->flash->read(ring->flash->context, smg_replay_address(ring, from) + begin + at, piece, part))
            failed = SMG_STORE_TORN;
        if (!failed) failed = smg_replay_put(ring, (const uint8_t *)piece, part);
    }
    if (!failed && ring->crc != head[SMG_SLOT_DATA_CRC]) failed = SMG_STORE_TORN;
    if (!failed)
        failed = smg_replay_finish(ring, head[SMG_SLOT_LABEL], head[SMG_SLOT_SEQUENCE], head[SMG_SLOT_SEEN]);
    return failed;
}

/* The group with the fewest examples that can be erased, but for the one that is filled. */
static uint32_t emptiest(const smg_replay *ring) {
    uint32_t chosen = SMG_NO_SLOT, least = 0xffffffffu;
    for (uint32_t i = 0; i < ring->division.groups; i++) {
        const uint32_t live = smg_replay_live_in(ring, i);
        if (i == ring->last_group || smg_replay_is_worn(ring, i) || live >= least) continue;
        least = live;
        chosen = i;
    }
    return chosen;
}

/* Moves a group's examples to the one that is filled, so that it can be erased. */
static int move(smg_replay *ring, uint32_t group) {
    const uint32_t slots = ring->division.slots;
    /* To move as many as fit would make no room. */
    if (group == SMG_NO_SLOT || smg_replay_live_in(ring, group) == slots) return SMG_STORE_WORN;
    for (uint32_t i = group * slots; i < (group + 1) * slots; i++) {
        if (!smg_replay_is_live(ring, i)) continue;
        if (ring->next == ring->end || copy(ring, i, ring->next++) == SMG_STORE_WORN) return SMG_STORE_WORN;
        ring->label[i] = SMG_SLOT_FREE; /* it has moved, or it was damaged */
    }
    return SMG_STORE_OK;
}

/* The next group round the ring that holds nothing; where wear has left none, one that is made to hold nothing. */
static uint32_t next_free(smg_replay *ring) {
    const uint32_t groups = ring->division.groups;
    if (!free_groups(ring)) {
        const uint32_t group = emptiest(ring);
        if (group == SMG_NO_SLOT) return group;
        forget_group(ring, group);
    }
    uint32_t group = (ring->last_group + 1) % groups;
    while (!is_free(ring, group)) group = (group + 1) % groups;
    return group;
}

/* A blank slot to ring->next: in the group that is filled, or in one that is erased. */
static int find_blank(smg_replay *ring) {
    while (ring->next == ring->end) {
        const uint32_t group = next_free(ring);
        const int last = free_groups(ring) == 1;
        if (group == SMG_NO_SLOT) return SMG_STORE_WORN;
        if (smg_replay_erase(ring, group)) {
            if (!capacity(ring)) return SMG_STORE_WORN;
            fit(ring, capacity(ring) - 1);
            continue;
        }
        ring->last_group = group;
        ring->next = group * ring->division.slots;
        ring->end = ring->next + ring->division.slots;
        if (last && move(ring, emptiest(ring))) return SMG_STORE_WORN;
    }
    return SMG_STORE_OK;
}

/* Whether an example of a class is kept, one more was offered: and if so, what goes for it. */
static int chosen(smg_replay *ring, uint32_t label) {
    const uint32_t largest = largest_class(ring), own = smg_replay_count(ring, label);
    if (smg_replay_count(ring, SMG_REPLAY_CLASSES) < capacity(ring)) return 1;
    if (smg_replay_count(ring, largest) > own + 1 || !own) {
        forget_one(ring, largest);
        return 1;
    }
    if (draw(ring, ring->seen[label]) >= own) return 0; /* Vitter's algorithm R */
    forget_one(ring, label);
    return 1;
}

int smg_replay_begin(smg_replay *ring, uint32_t label) {
    ring->writing = ring->reading = 0;
    if (ring->refused) return ring->refused;
    if (label >= SMG_REPLAY_CLASSES) return SMG_STORE_SETUP;
    if (!capacity(ring)) return SMG_STORE_WORN;
    ring->seen[label]++;
    if (!chosen(ring, label)) return SMG_REPLAY_PASSED;
    fit(ring, capacity(ring) - 1); /* which is less than it was where sectors wore out */
    if (find_blank(ring)) return SMG_STORE_WORN;
    smg_replay_start(ring, ring->next++);
    ring->begun_label = label;
    ring->writing = 1;
    return SMG_STORE_OK;
}

int smg_replay_write(smg_replay *ring, const void *piece, uint32_t bytes) {
    if (!ring->writing) return ring->refused;
    const int failed = smg_replay_put(ring, piece, bytes);
    if (failed) ring->writing = 0;
    return failed;
}

int smg_replay_end(smg_replay *ring) {
    const int writing = ring->writing;
    ring->writing = 0;
    if (!writing) return ring->refused ? ring->refused : SMG_REPLAY_PASSED;
    const uint32_t sequence = ++ring->sequence;
    return smg_replay_finish(ring, ring->begun_label, sequence, ring->seen[ring->begun_label]);
}

int smg_replay_pick(smg_replay *ring, uint32_t *label) {
    ring->writing = ring->reading = 0;
    if (ring->refused) return ring->refused;
    const uint32_t slot = nth(ring, SMG_REPLAY_CLASSES, draw(ring, smg_replay_count(ring, SMG_REPLAY_CLASSES)));
    if (slot == SMG_NO_SLOT) return SMG_STORE_EMPTY;
    *label = ring->label[slot];
    smg_replay_start(ring, slot);
    ring->reading = 1;
    return SMG_STORE_OK;
}

int smg_replay_read(smg_replay *ring, void *piece, uint32_t bytes) {
    uint32_t head[SMG_SLOT_WORDS];
    if (!ring->reading) return ring->refused ? ring->refused : SMG_STORE_EMPTY;
    int failed = take(ring, piece, bytes);
    if (!failed && ring->moved < ring->latents.bytes) return SMG_STORE_OK;
    ring->reading = 0;
    if (!failed) failed = smg_replay_head(ring, smg_replay_address(ring, ring->slot), head);
    if (!failed && (head[SMG_SLOT_DATA_CRC] != ring->crc || head[SMG_SLOT_LABEL] != ring->label[ring->slot]))
        failed = SMG_STORE_TORN;
    if (failed == SMG_STORE_EMPTY || failed == SMG_STORE_READ) failed = SMG_STORE_TORN;
    if (failed == SMG_STORE_TORN) ring->label[ring->slot] = SMG_SLOT_FREE;
    return failed;
}

int smg_replay_clear(smg_replay *ring) {
    int failed = SMG_STORE_OK;
    const smg_flash *flash = ring->flash;
    if (ring->refused == SMG_STORE_SETUP || ring->refused == SMG_STORE_FULL) return ring->refused;
    for (uint32_t i = 0; i < ring->region.sectors; i++)
        if (flash->erase(flash->context, (ring->region.first + i) * flash->sector_bytes)) failed = SMG_STORE_WORN;
    const int found = smg_replay_open(ring, flash, ring->region, ring->latents);
    return failed ? failed : found == SMG_STORE_EMPTY ? SMG_STORE_OK : found;
}
