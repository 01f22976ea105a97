/* Saves: what is in them, which chain of them counts, and when a new chain begins.
 *
 * A save counts once the unit behind it is programmed: only then is it certain that its own last unit was programmed
 * to its end. What a cut may have left after it is never programmed over: the first save after a restart goes into a
 * sector that it erases, whose head says which save it follows. */
#include "store_blocks.h"

enum { SAVE = 0x45564153, DONE = 0 };    /* SAVE reads "SAVE" */
enum { NUMBER = 1, FILLER, HEAD_WORDS }; /* of a save's head, which SAVE begins */

/* What a save of so many bytes of state takes: its head, which blocks there are, the blocks, its CRC. */
static uint32_t save_bytes(const smg_flash *flash, uint32_t bytes) {
    return smg_store_units(flash, (HEAD_WORDS + 1) * 4 + SMG_STORE_BLOCKS / 8 + bytes);
}

/* The bytes of a sector behind its head. */
static uint32_t sector_room(const smg_flash *flash) { return flash->sector_bytes - smg_store_head_bytes(flash); }

/* The bytes by which a save is filled up where `there` bytes are left in the sector it begins in: so many that two
 * units behind it lie in the sector it ends in. */
static uint32_t filler(const smg_flash *flash, uint32_t bytes, uint32_t there) {
    const uint32_t size = save_bytes(flash, bytes), room = sector_room(flash), unit = flash->unit_bytes;
    const uint32_t left = size <= there ? there - size : (room - (size - there) % room) % room;
    return left < 2 * unit ? left + unit : 0;
}

/* The sectors that a save opens where `there` bytes are left in the last, with the unit that says that it is done. */
static uint32_t opened(const smg_flash *flash, uint32_t bytes, uint32_t there) {
    const uint32_t size = save_bytes(flash, bytes) + filler(flash, bytes, there) + flash->unit_bytes;
    return size <= there ? 0 : (size - there + sector_room(flash) - 1) / sector_room(flash);
}

uint32_t smg_store_sectors(const smg_flash *flash, uint32_t bytes) { return 2 * opened(flash, bytes, 0); }

/* One save of the chain: 0 where it is whole, and then its number, its CRC and where it ends. */
static int read_save(smg_store *store, smg_place *at, int purpose, uint32_t *number, uint32_t *crc) {
    uint32_t head[HEAD_WORDS], check;
    int failed = smg_store_take(store, store->chain.number, at, head, sizeof head);
    if (!failed && (head[0] != SAVE || head[FILLER] > 2 * store->flash->unit_bytes)) failed = SMG_STORE_TORN;
    if (failed) return failed;
    *crc = smg_store_crc(0, &store->chain.link, sizeof store->chain.link);
    *crc = smg_store_crc(*crc, head, sizeof head);
    failed = smg_store_take_blocks(store, at, purpose, crc);
    for (uint32_t i = 0; i < head[FILLER] && !failed; i++) {
        failed = smg_store_take(store, store->chain.number, at, store->buffer, 1);
        *crc = smg_store_crc(*crc, store->buffer, 1);
    }
    if (!failed) failed = smg_store_take(store, store->chain.number, at, &check, sizeof check);
    if (!failed && check != *crc) failed = SMG_STORE_TORN;
    at->offset = smg_store_units(store->flash, at->offset);
    *number = head[NUMBER];
    return failed;
}

/* Whether something follows a save that was programmed after it, and if so to behind it: the unit that says so, another
 * (the first could be the one that was cut), or a sector that goes on from this save. */
static int is_done(const smg_store *store, smg_place *at, uint32_t crc) {
    const uint32_t unit = store->flash->unit_bytes, end = store->flash->sector_bytes;
    smg_place next = *at;
    uint32_t link;
    for (uint32_t i = 0; i < 2 && at->offset + i * unit < end; i++) {
        smg_place there = {at->position, at->index, at->offset + i * unit};
        uint8_t first = 0xff;
        if (smg_store_take(store, store->chain.number, &there, &first, 1) || first == 0xff) continue;
        at->offset += unit;
        return 1;
    }
    if (smg_store_step(store, store->chain.number, &next, &link) || link != crc) return 0;
    at->offset = end;
    return 1;
}

/* Reads the chain that begins at `from.first` for a purpose: up to its end, or to that of a chain that is known, whose
 * last save counts in any case. With `unsure` a first save counts that is only whole. Gives 1 where a save at the end
 * is whole but not known to be done, else 0; or SMG_STORE_READ where what was whole no longer is. */
static int walk(smg_store *store, smg_chain from, int purpose, const smg_chain *known, int unsure) {
    smg_chain *chain = &store->chain;
    smg_place at = {from.first, 0, smg_store_head_bytes(store->flash)};
    int undone = 0;
    *chain = (smg_chain){from.number, from.first, 0, from.number, at};
    while (!known || chain->length < known->length) {
        uint32_t save, crc, link;
        smg_place behind = at, begin = at;
        const int failed = read_save(store, &behind, SMG_FOR_CHECK, &save, &crc);
        const int done = !failed && is_done(store, &behind, crc);
        if (!failed) undone = !done;
        if (done || (!failed && ((known && crc == known->link) || (unsure && !chain->length)))) {
            /* Only now for its purpose: what does not count would be half in memory. The first and the last suffice. */
            const int wanted = purpose != SMG_FOR_CHECK && (!chain->length || chain->length + 1 == known->length);
            if (wanted && read_save(store, &begin, purpose, &save, &crc)) return SMG_STORE_READ;
            at = behind;
            chain->length++;
            chain->link = crc;
            chain->end = at;
            store->saves = save;
        } else if (smg_store_step(store, from.number, &at, &link) || link != chain->link) {
            break;
        }
    }
    return undone;
}

/* Whether the chain at a position counts, of which with `unsure` the first save need only be whole. */
static int counts(smg_store *store, uint32_t number, uint32_t position, int unsure) {
    const int undone = walk(store, (smg_chain){.number = number, .first = position}, SMG_FOR_CHECK, 0, unsure);
    store->goes_on = store->chain.length && !undone && number == store->highest;
    return store->chain.length > 0;
}

/* The latest chain below a number that some sector begins, or 0. */
static uint32_t latest(const smg_store *store, uint32_t below) {
    uint32_t head[SMG_HEAD_WORDS], found = 0;
    for (uint32_t i = 0; i < store->region.sectors; i++) {
        const int begins = smg_store_head(store, i, head) == SMG_SECTOR_OURS && !head[SMG_HEAD_INDEX];
        if (begins && head[SMG_HEAD_CHAIN] < below && head[SMG_HEAD_CHAIN] > found) found = head[SMG_HEAD_CHAIN];
    }
    return found;
}

static int find(smg_store *store, int unsure) {
    uint32_t head[SMG_HEAD_WORDS];
    for (uint32_t number = 0xffffffffu; (number = latest(store, number)) != 0;)
        for (uint32_t i = 0; i < store->region.sectors; i++) {
            const int says = smg_store_head(store, i, head);
            if (says != SMG_SECTOR_OURS || head[SMG_HEAD_INDEX] || head[SMG_HEAD_CHAIN] != number) continue;
            if (counts(store, number, i, unsure)) return 1;
        }
    return 0;
}

static int is_possible(const smg_flash *flash, smg_region region, smg_kept kept) {
    const uint32_t unit = flash->unit_bytes, least = SMG_HEAD_WORDS * 4;
    return unit && unit <= SMG_STORE_BUFFER && SMG_STORE_BUFFER >= (least + unit - 1) / unit * unit &&
           flash->sector_bytes % unit == 0 && flash->sector_bytes >= smg_store_head_bytes(flash) + 3 * unit &&
           region.sectors <= 0x10000 && kept.bytes && kept.bytes < 0x10000000;
}

int smg_store_open(smg_store *store, const smg_flash *flash, smg_region region, smg_kept kept) {
    uint32_t head[SMG_HEAD_WORDS];
    uint32_t seen[SMG_SECTOR_OURS + 1] = {0};
    *store = (smg_store){.flash = flash, .region = region, .kept = kept, .fresh = 1};
    store->refused = is_possible(flash, region, kept) ? SMG_STORE_OK : SMG_STORE_SETUP;
    if (!store->refused && region.sectors < smg_store_sectors(flash, kept.bytes)) store->refused = SMG_STORE_FULL;
    if (store->refused) return store->refused;
    for (uint32_t i = 0; i < region.sectors; i++) {
        const int says = smg_store_head(store, i, head);
        seen[says]++;
        if (says == SMG_SECTOR_OURS && head[SMG_HEAD_CHAIN] > store->highest) store->highest = head[SMG_HEAD_CHAIN];
    }
    if (seen[SMG_SECTOR_UNREAD] == region.sectors) return store->refused = SMG_STORE_READ; /* no cut leaves that */
    store->found = (uint8_t)(find(store, 0) || find(store, 1));
    if (store->found) return SMG_STORE_OK;
    store->chain = (smg_chain){0};
    store->saves = 0;
    if (seen[SMG_SECTOR_OTHER]) return store->refused = SMG_STORE_OTHER;
    if (seen[SMG_SECTOR_LAYOUT]) return store->refused = SMG_STORE_LAYOUT;
    return store->empty = seen[SMG_SECTOR_BLANK] < region.sectors ? SMG_STORE_TORN : SMG_STORE_EMPTY;
}

/* Goes through the chain that counts once more. */
static int again(smg_store *store, int purpose) {
    const smg_chain chain = store->chain;
    const uint32_t saves = store->saves;
    const int failed = walk(store, chain, purpose, &chain, 0);
    const int whole = failed >= 0 && store->chain.length == chain.length;
    store->chain = chain;
    store->saves = saves;
    return whole ? SMG_STORE_OK : SMG_STORE_READ;
}

int smg_store_load(smg_store *store) {
    if (store->refused) return store->refused;
    return store->found ? again(store, SMG_FOR_LOAD) : store->empty;
}

/* A unit at the end of the chain that says that the save before it is there. */
static int write_done(smg_store *store) {
    const uint8_t done = DONE;
    int failed = 0;
    for (uint32_t i = 0; i < store->flash->unit_bytes; i++) failed |= smg_store_put(store, &done, 1);
    return failed || smg_store_flush(store) ? SMG_STORE_WORN : SMG_STORE_OK;
}

/* The unit of the save that was found may be one that was cut, and read otherwise the next time: one more behind it
 * makes sure before anything is erased, where all of a unit is blank: another save may have been cut there. */
static void make_sure(smg_store *store) {
    smg_chain *chain = &store->chain;
    const smg_place end = chain->end;
    const uint8_t worn = store->worn_count;
    if (end.offset == store->flash->sector_bytes) return;
    if (smg_store_is_blank(store, end.position, end.offset, store->flash->unit_bytes)) (void)write_done(store);
    chain->end = end;
    store->worn_count = worn;
}

/* A save of the blocks that are marked to the end of the chain, of so many bytes, and then the unit that says it is
 * there: the first save of a chain, or one that holds what differs from that. */
static int write_save(smg_store *store, uint32_t bytes, int delta) {
    const smg_flash *flash = store->flash;
    const uint32_t fill = filler(flash, bytes, flash->sector_bytes - store->chain.end.offset);
    const uint32_t head[HEAD_WORDS] = {SAVE, store->saves + 1, fill};
    const uint8_t none = 0xff;
    smg_place first = {store->chain.first, 0, smg_store_head_bytes(flash)};
    uint32_t skipped[HEAD_WORDS];
    uint32_t crc = smg_store_crc(0, &store->chain.link, sizeof store->chain.link);
    crc = smg_store_crc(crc, head, sizeof head);
    int failed = smg_store_put(store, head, sizeof head);
    if (!failed && delta) failed = smg_store_take(store, store->chain.number, &first, skipped, sizeof skipped);
    if (!failed) failed = smg_store_put_blocks(store, delta ? &first : 0, &crc);
    for (uint32_t i = 0; i < fill && !failed; i++) {
        crc = smg_store_crc(crc, &none, 1);
        failed = smg_store_put(store, &none, 1);
    }
    if (failed || smg_store_put(store, &crc, sizeof crc) || smg_store_flush(store)) return SMG_STORE_WORN;
    store->chain.link = crc;
    if (write_done(store)) return SMG_STORE_WORN;
    store->chain.length++;
    store->saves++;
    store->found = store->goes_on = 1;
    store->fresh = 0;
    return SMG_STORE_OK;
}

/* The sectors from a chain's first to its last, and those between them that are worn. */
static uint32_t span(const smg_store *store) {
    const uint32_t sectors = store->region.sectors;
    return store->found ? (store->chain.end.position + sectors - store->chain.first) % sectors + 1 : 0;
}

/* One more save on the chain, where sectors for a new chain stay free: half of what is left over may wear out. */
static int append(smg_store *store) {
    const smg_chain before = store->chain;
    const smg_flash *flash = store->flash;
    const uint32_t whole = opened(flash, store->kept.bytes, 0), sectors = store->region.sectors;
    const uint32_t kept_free = whole + (sectors - 2 * whole + 1) / 2, taken = span(store);
    const uint32_t there = store->fresh ? 0 : flash->sector_bytes - store->chain.end.offset;
    store->held = 0;
    store->left = sectors > taken + kept_free ? sectors - taken - kept_free : 0;
    if (opened(flash, store->delta_bytes, there) > store->left) return SMG_STORE_FULL;
    if (!(store->fresh && smg_store_enter(store)) && !write_save(store, store->delta_bytes, 1)) return SMG_STORE_OK;
    store->chain = before;
    store->goes_on = 0;
    return SMG_STORE_WORN;
}

/* A new chain in sectors that the old one does not need; once more where a sector fails on the way. */
static int begin(smg_store *store) {
    const smg_chain before = store->chain;
    const uint32_t sectors = store->region.sectors, left = sectors - span(store);
    const uint32_t last = store->found ? before.end.position : sectors - 1;
    for (int known = -1; known < store->worn_count;) {
        known = store->worn_count;
        store->left = left;
        store->held = 0;
        store->highest++;
        store->chain = (smg_chain){store->highest, 0, 0, store->highest, {last, 0xffffffffu, 0}};
        smg_store_mark_all(store);
        if (!smg_store_enter(store)) {
            store->chain.first = store->chain.end.position;
            if (!write_save(store, store->kept.bytes, 0)) return SMG_STORE_OK;
        }
        store->chain = before;
    }
    return SMG_STORE_WORN;
}

int smg_store_save(smg_store *store) {
    if (store->refused) return store->refused;
    if (store->found && store->goes_on) {
        if (again(store, SMG_FOR_COMPARE)) return SMG_STORE_READ;
        if (smg_store_is_same(store)) return SMG_STORE_OK;
    }
    if (store->found && store->fresh) make_sure(store);
    return store->found && store->goes_on && !append(store) ? SMG_STORE_OK : begin(store);
}

int smg_store_clear(smg_store *store) {
    int failed = SMG_STORE_OK;
    const uint32_t sectors = store->region.sectors, last = store->chain.end.position;
    if (store->refused == SMG_STORE_SETUP) return store->refused;
    for (uint32_t i = 1; i <= sectors; i++) /* the chain that counts comes last, its first save first */
        if (smg_store_erase(store, (last + i) % sectors)) failed = SMG_STORE_WORN;
    const int found = smg_store_open(store, store->flash, store->region, store->kept);
    return failed ? failed : found == SMG_STORE_EMPTY ? SMG_STORE_OK : found;
}
