/* Saves whose power is cut at every program and erase: the old state or the new one is there, never a mix, never none.
 *
 * Runs on this machine under sanitizers and on an emulated board: each check gives 0, or the line that failed. */
#ifndef STORE_CHECKS_H
#define STORE_CHECKS_H

#include "emulated_flash.h"
#include "smidgen_store.h"

enum { STATE = 300, HISTORY = 64 };
#ifndef BYTES
#define BYTES 16 /* of a unit, at each of which a cut is tried */
#endif

#define HOLDS(claim) \
    do {             \
        if (!(claim)) return __LINE__; \
    } while (0)

/* Flash and the sectors of a store. It may correct errors: then what is torn does not read. */
typedef struct {
    uint32_t sector_bytes, unit_bytes, first, sectors;
    int corrects;
} part;

static emulated_flash chip, snapshot, after;
static uint8_t state[STATE], history[HISTORY][STATE];
static smg_store store, earlier, later;
static int32_t cuts;

static const smg_flash *driver(const part *of) {
    static smg_flash flash;
    flash = (smg_flash){emulated_erase, emulated_program, emulated_read, &chip, of->sector_bytes, of->unit_bytes};
    return &flash;
}

static void unpack(const part *of, uint32_t seed) {
    emulated_unpack(&chip, of->sector_bytes, of->unit_bytes, of->first + of->sectors, seed);
    chip.corrects = of->corrects;
}

static int start(const part *of) {
    chip.off = 0;
    memset(&store, 0xa5, sizeof store);
    memset(state, 0x5a, sizeof state);
    const smg_region region = {"state", of->first, of->sectors};
    const smg_kept kept = {state, STATE, {0x12345678u, 0x9abcdef0u}};
    return smg_store_open(&store, driver(of), region, kept);
}

/* What is learned up to save `number`: a few bytes more, now and then all. */
static void learn(int number) {
    uint32_t random = (uint32_t)number * 747796405u + 1;
    const int all = number % 9 == 0, count = number % 5 == 4 ? 0 : 1 + number % 4;
    for (int i = 0; i < (all ? STATE : count); i++) {
        random = random * 1664525u + 1013904223u;
        state[all ? i : 2 + (int)(random >> 8) % (STATE - 2)] ^= (uint8_t)(1 + (random >> 24) % 255);
    }
    state[0] = (uint8_t)number; /* so that no two are alike */
    state[1] = (uint8_t)(number >> 8);
    memcpy(history[number % HISTORY], state, STATE);
}

static int is(int number) { return !memcmp(state, history[number % HISTORY], STATE); }

/* After a cut in save `number`: what is there, and whether it goes on from there. */
static int recovers(const part *of, int number) {
    const int opened = start(of);
    for (int i = 0; i < STATE; i++) HOLDS(state[i] == 0x5a); /* memory is as it was */
    const int loaded = smg_store_load(&store);
    if (number == 0 && loaded != SMG_STORE_OK) { /* the first save, which may read otherwise each time */
        HOLDS(loaded == SMG_STORE_EMPTY || loaded == SMG_STORE_TORN || (opened == SMG_STORE_OK && chip.way > SOME));
    } else {
        HOLDS(opened == SMG_STORE_OK && loaded == SMG_STORE_OK);
        HOLDS(is(number) || (number && is(number - 1)));
    }
    memcpy(state, history[number % HISTORY], STATE);
    state[number % STATE] ^= 0x80;
    HOLDS(smg_store_save(&store) == SMG_STORE_OK);
    HOLDS(start(of) == SMG_STORE_OK);
    HOLDS(smg_store_load(&store) == SMG_STORE_OK);
    state[number % STATE] ^= 0x80;
    HOLDS(is(number));
    HOLDS(!chip.twice);
    return 0;
}

/* One cut of a save, from the flash and the memory before it. */
static int cut_once(const part *of, int number, int32_t at, int way, int byte) {
    chip = snapshot;
    chip.random += (uint32_t)(at * WAYS + way) * 2246822519u + (uint32_t)byte + 2;
    store = earlier;
    memcpy(state, history[number], STATE);
    chip.until_cut = at;
    chip.way = way;
    chip.byte = byte;
    HOLDS(smg_store_save(&store) == SMG_STORE_WORN);
    HOLDS(chip.off);
    cuts++;
    return recovers(of, number);
}

/* Every cut of one save: at each operation, in each way; in every sixth save at each byte of a unit, too. */
static int cut_everywhere(const part *of, int number, int32_t operations, int first_way) {
    after = chip;
    later = store;
    for (int32_t at = 0; at < operations; at++) {
        for (int way = first_way; way < WAYS; way++) {
            const int failed = cut_once(of, number, at, way, -1);
            if (failed) return failed;
        }
        for (int byte = 0; byte < BYTES && byte < (int)of->unit_bytes && number % 6 == 1; byte++) {
            const int failed = cut_once(of, number, at, SOME, byte);
            if (failed) return failed;
        }
    }
    chip = after;
    store = later;
    memcpy(state, history[number], STATE);
    return 0;
}

static int cut_all(const part *of, int saves, int first_way) {
    unpack(of, 7);
    HOLDS(start(of) == SMG_STORE_EMPTY);
    for (int number = 0; number < saves; number++) {
        if (number % 11 == 10) { /* a restart now and then */
            HOLDS(start(of) == SMG_STORE_OK);
            HOLDS(smg_store_load(&store) == SMG_STORE_OK);
            HOLDS(is(number - 1));
        }
        snapshot = chip;
        earlier = store;
        learn(number);
        HOLDS(smg_store_save(&store) == SMG_STORE_OK);
        HOLDS(store.saves == (uint32_t)number + 1);
        const int failed = cut_everywhere(of, number, chip.done - snapshot.done, first_way);
        if (failed) return failed;
    }
    return 0;
}

/* Which of the saves from `least` to `most` the memory holds, or -1. */
static int which(int least, int most) {
    for (int number = most; number >= least; number--)
        if (is(number)) return number;
    return -1;
}

/* The operations that the next save takes, found by a save that is then forgotten. */
static int32_t operations(int number) {
    static uint8_t learned[STATE];
    memcpy(learned, state, STATE);
    snapshot = chip;
    earlier = store;
    learn(number);
    (void)smg_store_save(&store);
    const int32_t count = chip.done - snapshot.done;
    chip = snapshot;
    store = earlier;
    memcpy(state, learned, STATE);
    return count;
}

/* The power fails again and again, at random moments, also while what the last cut left is mended: no save that said it
 * was done is ever lost. Sectors wear out meanwhile, as many as are said. */
static int cut_at_random(const part *of, int rounds, uint32_t seed, uint32_t worn) {
    int done = 0, tried = 0;
    unpack(of, seed);
    HOLDS(start(of) == SMG_STORE_EMPTY);
    learn(0);
    HOLDS(smg_store_save(&store) == SMG_STORE_OK);
    for (int round = 0; round < rounds; round++) {
        const uint32_t random = emulated_random(&chip);
        if (round % 100 == 50 && (uint32_t)round / 100 < worn)
            (round % 200 == 50 ? chip.stuck : chip.unwilling)[of->first + random % of->sectors] = 1;
        chip.way = (int)(random >> 8) % WAYS;
        chip.until_cut = tried - done < HISTORY / 2 ? (int32_t)(random >> 12) % 90 : -1;
        if (random % 2 && chip.until_cut >= 0) { /* in what says that a save is there, which may then be or not be */
            chip.until_cut = -1;
            chip.until_cut = operations(tried + 1) - 1;
            chip.way = random & 2 ? UNCERTAIN : WAVERING;
        }
        const int lasting = chip.until_cut < 0 ? 1 : 1000;
        for (int i = 0; i < lasting && !chip.off; i++) {
            learn(++tried);
            const int failed = smg_store_save(&store);
            if (!failed) done = tried;
            HOLDS(!failed == !chip.off);
        }
        for (int again = 0; again < 2; again++) {
            HOLDS(start(of) == SMG_STORE_OK);
            HOLDS(smg_store_load(&store) == SMG_STORE_OK);
            HOLDS(which(done, tried) >= 0);
        }
        HOLDS(!chip.twice);
        cuts++;
    }
    return 0;
}

/* Behind the unit that says that a save is done there is room for another in its sector, whatever size it has: else
 * nothing could make sure of a unit that was cut before the next sector is erased. */
static int room_behind(const part *of) {
    for (uint32_t bytes = 1; bytes <= STATE; bytes++) {
        unpack(of, bytes);
        memset(state, 0x5a, sizeof state);
        const smg_region region = {"state", of->first, of->sectors};
        HOLDS(smg_store_open(&store, driver(of), region, (smg_kept){state, bytes, {1, 2}}) == SMG_STORE_EMPTY);
        for (int number = 0; number < 4; number++) {
            state[number % bytes]++;
            HOLDS(smg_store_save(&store) == SMG_STORE_OK);
            HOLDS(store.chain.end.offset + of->unit_bytes <= of->sector_bytes);
        }
    }
    return 0;
}

/* Bytes of flash change anywhere, as no cut leaves them: a state that was saved is there or none; the next is kept. */
static int damage_anywhere(const part *of, int rounds) {
    unpack(of, 5);
    HOLDS(start(of) == SMG_STORE_EMPTY);
    for (int number = 0; number < 12; number++) {
        learn(number);
        HOLDS(smg_store_save(&store) == SMG_STORE_OK);
    }
    snapshot = chip;
    for (int round = 0; round < rounds; round++) {
        const uint32_t random = emulated_random(&snapshot), bytes = of->sectors * of->sector_bytes;
        chip = snapshot;
        for (uint32_t i = 0; i <= random % 4; i++)
            chip.bytes[of->first * of->sector_bytes + emulated_random(&snapshot) % bytes] ^= (uint8_t)(random >> 8 | 1);
        if (start(of) == SMG_STORE_OK) {
            HOLDS(smg_store_load(&store) == SMG_STORE_OK);
            HOLDS(which(0, 11) >= 0);
        }
        if (store.refused) continue; /* a head that was changed to look like another program's */
        memcpy(state, history[3], STATE);
        HOLDS(smg_store_save(&store) == SMG_STORE_OK);
        HOLDS(start(of) == SMG_STORE_OK && smg_store_load(&store) == SMG_STORE_OK && is(3));
    }
    return 0;
}

#endif
