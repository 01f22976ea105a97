/* A ring of examples and a store of state in one flash, and power that fails at random moments: the old state or the
 * new one is there, and every example is whole or not there.
 *
 * What is learned here is a sum of latents: enough to tell every state from every other. Runs on this machine under
 * sanitizers and on an emulated board: each check gives 0, or the line that failed. */
#ifndef REPLAY_CHECKS_H
#define REPLAY_CHECKS_H

#include "emulated_flash.h"
#include "replay_slots.h"
#include "store_sectors.h"

enum { STATE = 120, HISTORY = 64, CLASSES = 3, LATENT = 212 };

#define HOLDS(claim) \
    do {             \
        if (!(claim)) return __LINE__; \
    } while (0)

/* Flash, the sectors of the store, and those of the ring behind it. */
typedef struct {
    uint32_t sector_bytes, unit_bytes, kept, sectors, bytes;
    int corrects; /* errors: then what is torn does not read */
} part;

static emulated_flash chip;
static uint8_t state[STATE], history[HISTORY][STATE], latent[LATENT];
static smg_store store;
static smg_replay ring;
static uint32_t offered, firsts, early; /* images; kept of the first class, and of these from the first half of them */
static int32_t cuts;

static const smg_flash *driver(const part *of) {
    static smg_flash flash;
    flash = (smg_flash){emulated_erase, emulated_program, emulated_read, &chip, of->sector_bytes, of->unit_bytes};
    return &flash;
}

static void unpack(const part *of, uint32_t seed) {
    emulated_unpack(&chip, of->sector_bytes, of->unit_bytes, of->kept + of->sectors, seed);
    chip.corrects = of->corrects;
    offered = 0;
}

static int start_ring(const part *of, uint32_t program) {
    const smg_region region = {"replay", of->kept, of->sectors};
    const smg_latents latents = {of->bytes, {program, 2}, 99};
    memset(&ring, 0xa5, sizeof ring);
    return smg_replay_open(&ring, driver(of), region, latents);
}

static int start(const part *of) {
    const smg_region region = {"state", 0, of->kept};
    const smg_kept kept = {state, STATE, {0x12345678u, 0x9abcdef0u}};
    chip.off = 0;
    memset(&store, 0xa5, sizeof store);
    return smg_store_open(&store, driver(of), region, kept);
}

/* Byte `at` of the latent of example `id`, which its first four bytes are. */
static uint8_t byte_of(uint32_t id, uint32_t at) {
    return (uint8_t)(at < 4 ? id >> 8 * at : (id * 2246822519u + at * 747796405u) >> 13);
}

static uint32_t label_of(uint32_t id) { return id * 2654435761u >> 16 & 0xff ? id % CLASSES : 0; }

/* An image of a class comes: its latent is kept or passed over. */
static int offer_as(const part *of, uint32_t id, uint32_t label) {
    int failed = smg_replay_begin(&ring, label);
    if (failed) return failed;
    for (uint32_t at = 0, piece; at < of->bytes; at += piece) {
        piece = 1 + (id + at) % 37 < of->bytes - at ? 1 + (id + at) % 37 : of->bytes - at;
        for (uint32_t i = 0; i < piece; i++) latent[i] = byte_of(id, at + i);
        failed = smg_replay_write(&ring, latent, piece);
        if (failed) return failed;
    }
    return smg_replay_end(&ring);
}

static int offer(const part *of, uint32_t id) { return offer_as(of, id, label_of(id)); }

/* The example at hand, in pieces: OK where it is whole, 1 where it is what nobody offered. */
static int taken(const part *of, uint32_t label) {
    uint32_t id = 0;
    for (uint32_t at = 0, piece; at < of->bytes; at += piece) {
        piece = at + 50 < of->bytes ? 50 : of->bytes - at;
        const int failed = smg_replay_read(&ring, latent + at, piece);
        if (failed) return failed;
    }
    for (uint32_t i = 0; i < 4; i++) id |= (uint32_t)latent[i] << 8 * i;
    if (!id || id > offered || label != label_of(id)) return 1;
    for (uint32_t i = 0; i < of->bytes; i++)
        if (latent[i] != byte_of(id, i)) return 1;
    return SMG_STORE_OK;
}

/* One of the examples teaches. */
static int replay(const part *of) {
    uint32_t label;
    int failed = smg_replay_pick(&ring, &label);
    if (failed) return failed;
    failed = taken(of, label);
    if (failed) return failed;
    for (uint32_t i = 4; i < STATE; i++) state[i] = (uint8_t)(state[i] + latent[i % of->bytes] + 1);
    return SMG_STORE_OK;
}

/* How many examples are whole, of all that the ring says it has; below 0 the line where one is not what was offered. */
static int whole(const part *of) {
    static uint8_t seen[SMG_REPLAY_SLOTS][4];
    int count = 0;
    for (uint32_t slot = 0; slot < smg_replay_slots(&ring); slot++) {
        if (!smg_replay_is_live(&ring, slot)) continue;
        const uint32_t label = ring.label[slot];
        smg_replay_start(&ring, slot);
        ring.reading = 1;
        const int found = taken(of, label);
        if (found == SMG_STORE_TORN) continue;
        if (found) return -__LINE__;
        for (int i = 0; i < count; i++)
            if (!memcmp(seen[i], latent, 4)) return -__LINE__; /* twice */
        memcpy(seen[count++], latent, 4);
    }
    return count;
}

static void note(int number) {
    state[0] = (uint8_t)number;
    state[1] = (uint8_t)(number >> 8);
    memcpy(history[number % HISTORY], state, STATE);
}

static int which(int least, int most) {
    for (int number = most; number >= least; number--)
        if (!memcmp(state, history[number % HISTORY], STATE)) return number;
    return -1;
}

/* Images, replayed steps and saves until the power fails, or for a while: what was done when it did. With `erasing`
 * the power fails where the ring next makes a group anew, after some more operations. */
static int work(const part *of, int *done, int *tried, int32_t erasing) {
    const int lasting = chip.until_cut < 0 && erasing < 0 ? 3 : 400;
    for (int i = 0; i < lasting && !chip.off; i++) {
        if (erasing >= 0 && chip.until_cut < 0 && i > 20 && ring.next == ring.end) chip.until_cut = erasing;
        int code = offer(of, ++offered);
        HOLDS(chip.off ? code == SMG_STORE_WORN || code == SMG_REPLAY_PASSED || !code : code == 0 || code == 1);
        for (int again = 0; again < 3 && !chip.off; again++) HOLDS(replay(of) != 1);
        if (i % 3 != 2) continue;
        note(++*tried);
        if (!smg_store_save(&store)) *done = *tried;
        HOLDS((*done == *tried) == !chip.off);
    }
    return 0;
}

/* The power fails so often, at any program or erase of the ring or of the store. */
static int cut_at_random(const part *of, int rounds, uint32_t seed) {
    int done = 0, tried = 0, most = 0;
    unpack(of, seed);
    memset(state, 0, sizeof state);
    HOLDS(start(of) == SMG_STORE_EMPTY && start_ring(of, 1) == SMG_STORE_EMPTY);
    note(0);
    HOLDS(smg_store_save(&store) == SMG_STORE_OK);
    for (int round = 0; round < rounds; round++) {
        const uint32_t random = emulated_random(&chip);
        chip.way = (int)(random >> 8) % WAYS;
        const int32_t operations = (int32_t)(random >> 12) % 400;
        const int lasts = tried - done > HISTORY / 2; /* a save that is done, before the history is too short */
        const int32_t erasing = random & 1 && !lasts ? operations % 4 : -1;
        chip.until_cut = erasing < 0 && !lasts ? operations : -1;
        /* As if nothing more had been offered than is there: else few examples were still taken in. */
        for (uint32_t label = 0; label < CLASSES; label++) ring.seen[label] = smg_replay_count(&ring, label);
        const int failed = work(of, &done, &tried, erasing);
        chip.until_cut = -1;
        if (failed) return failed;
        cuts += chip.off;
        memset(state, 0x5a, sizeof state);
        HOLDS(start(of) == SMG_STORE_OK && smg_store_load(&store) == SMG_STORE_OK);
        HOLDS(which(done, tried) >= 0);
        const int opened = start_ring(of, 1);
        HOLDS(opened == SMG_STORE_OK || (opened == SMG_STORE_EMPTY && !most));
        const int there = whole(of);
        HOLDS(there >= 0);
        /* What a cut costs: the example that was being written, and those that a group which wavers seems to have. */
        HOLDS(there + (int)ring.division.slots + 1 >= most);
        most = there;
        HOLDS(!chip.twice);
    }
    return 0;
}

/* Classes come one after the other: each has its share, and of each the examples are drawn from all that were. */
static int shares(const part *of) {
    unpack(of, 3);
    HOLDS(start_ring(of, 1) == SMG_STORE_EMPTY);
    const uint32_t room = smg_replay_room(driver(of), of->sectors, of->bytes);
    for (uint32_t id = 1; id <= 60 * room; id++) {
        while (label_of(++offered) > (id - 1) / (20 * room)) continue;
        HOLDS(offer(of, offered) >= 0);
        HOLDS(smg_replay_count(&ring, SMG_REPLAY_CLASSES) == (id < room ? id : room));
    }
    HOLDS(smg_replay_count(&ring, SMG_REPLAY_CLASSES) == room);
    HOLDS(whole(of) == (int)room);
    for (uint32_t slot = 0; slot < smg_replay_slots(&ring); slot++) {
        if (!smg_replay_is_live(&ring, slot)) continue;
        const uint32_t label = ring.label[slot];
        smg_replay_start(&ring, slot);
        ring.reading = 1;
        HOLDS(taken(of, label) == SMG_STORE_OK);
        firsts += !label;
        early += !label && (latent[0] | (uint32_t)latent[1] << 8) < offered / 2;
    }
    for (uint32_t label = 0; label < CLASSES; label++) {
        const uint32_t count = smg_replay_count(&ring, label);
        HOLDS(count == room / CLASSES || count == room / CLASSES + 1);
    }
    return 0;
}

/* Algorithm R: of a class that has its k places the n-th example is kept with probability k / n. */
static inline int reservoir(const part *of) {
    const uint32_t room = smg_replay_room(driver(of), of->sectors, of->bytes);
    double wanted = 0, variance = 0, kept = 0;
    for (uint32_t seed = 1; seed <= 60; seed++) {
        const smg_latents latents = {of->bytes, {1, 2}, seed};
        unpack(of, seed);
        HOLDS(smg_replay_open(&ring, driver(of), (smg_region){"replay", of->kept, of->sectors}, latents) == SMG_STORE_EMPTY);
        for (uint32_t n = 1; n <= 40 * room; n++) {
            const int code = offer_as(of, n, 0);
            HOLDS(code == SMG_STORE_OK || code == SMG_REPLAY_PASSED);
            if (n <= room) continue;
            const double chance = (double)room / n;
            wanted += chance;
            variance += chance * (1 - chance);
            kept += code == SMG_STORE_OK;
        }
    }
    HOLDS((kept - wanted) * (kept - wanted) < 16 * variance);
    return 0;
}

/* After a restart a class goes on as one of which so many were offered, and with other random numbers. */
static int remembers(const part *of) {
    uint32_t last = 0;
    unpack(of, 3);
    HOLDS(start_ring(of, 1) == SMG_STORE_EMPTY);
    const uint32_t first = ring.random;
    for (uint32_t n = 1; n <= 200; n++)
        if (offer_as(of, n, 2) == SMG_STORE_OK) last = n;
    HOLDS(start_ring(of, 1) == SMG_STORE_OK);
    HOLDS(ring.seen[2] == last && !ring.seen[0] && last > smg_replay_count(&ring, 2));
    const uint32_t then = ring.random;
    HOLDS(then != first);
    HOLDS(start_ring(of, 1) == SMG_STORE_OK && ring.random == then);
    return 0;
}

/* The only example, whose head another took the place of, or whose latent was damaged: it is refused, and not drawn
 * again. */
static int refuses_what_changed(const part *of, int relabelled) {
    uint32_t head[SMG_SLOT_WORDS], label;
    unpack(of, 3);
    HOLDS(start_ring(of, 1) == SMG_STORE_EMPTY && offer_as(of, 1, 2) == SMG_STORE_OK);
    HOLDS(smg_replay_pick(&ring, &label) == SMG_STORE_OK && label == 2);
    const uint32_t at = smg_replay_address(&ring, ring.slot), end = at + ring.division.slot_bytes;
    HOLDS(smg_replay_head(&ring, at, head) == SMG_STORE_OK);
    head[SMG_SLOT_LABEL] = 1;
    head[SMG_SLOT_CRC] = smg_store_crc(0, head, SMG_SLOT_CRC * 4);
    if (relabelled) memcpy(chip.bytes + at, head, sizeof head);
    else chip.bytes[end - smg_store_units(driver(of), of->bytes)] ^= 4;
    HOLDS(taken(of, label) == SMG_STORE_TORN);
    HOLDS(smg_replay_pick(&ring, &label) == SMG_STORE_EMPTY && !smg_replay_count(&ring, SMG_REPLAY_CLASSES));
    return 0;
}

/* Sectors that no longer erase or program are passed over, and what is refused is kept. */
static int wear_and_refuse(const part *of) {
    unpack(of, 11);
    HOLDS(start_ring(of, 1) == SMG_STORE_EMPTY);
    for (int i = 0; i < 300; i++) {
        for (uint32_t label = 0; label < CLASSES; label++) /* as if nothing more had been offered: else few are taken in */
            ring.seen[label] = smg_replay_count(&ring, label);
        if (i == 100) chip.stuck[of->kept + 1] = 1;
        if (i == 200) chip.unwilling[of->kept + of->sectors - 1] = 1;
        const int code = offer(of, ++offered);
        HOLDS(code == SMG_STORE_OK || code == SMG_REPLAY_PASSED || (i > 100 && code == SMG_STORE_WORN));
        HOLDS(whole(of) >= 0);
    }
    const int there = whole(of);
    HOLDS(there > 0);
    HOLDS(start_ring(of, 7) == SMG_STORE_OTHER); /* another program's front */
    HOLDS(offer(of, ++offered) == SMG_STORE_OTHER && replay(of) == SMG_STORE_OTHER);
    HOLDS(start_ring(of, 1) == SMG_STORE_OK && whole(of) >= there);
    HOLDS(smg_replay_begin(&ring, SMG_REPLAY_CLASSES) == SMG_STORE_SETUP);
    return 0;
}

#endif
