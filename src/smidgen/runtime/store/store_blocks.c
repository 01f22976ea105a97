/* Blocks of the state, at most 256: in a chain's first save whole, in later ones eight bytes at a time, a byte that
 * says which of them differ from the first save and then these. A bit for each block says which there are. */
#include "store_blocks.h"

enum { LEAST = 16, GROUP = 8, AHEAD = 32 };

/* Bytes of a chain that were read ahead, so that flash is not asked for each. */
typedef struct {
    smg_place at;
    uint32_t next, there;
    uint8_t bytes[AHEAD];
} ahead;

static uint32_t block_bytes(uint32_t bytes) {
    return ((bytes + SMG_STORE_BLOCKS - 1) / SMG_STORE_BLOCKS + LEAST - 1) / LEAST * LEAST;
}

static uint32_t block_count(uint32_t bytes) { return (bytes + block_bytes(bytes) - 1) / block_bytes(bytes); }

/* The bytes of a block: the last one may be short. */
static uint32_t block_size(uint32_t bytes, uint32_t block) {
    const uint32_t size = block_bytes(bytes), left = bytes - block * size;
    return left < size ? left : size;
}

static uint8_t *block_data(const smg_store *store, uint32_t block) {
    return (uint8_t *)store->kept.data + block * block_bytes(store->kept.bytes);
}

static int has(const uint8_t *blocks, uint32_t block) { return blocks[block / 8] >> block % 8 & 1; }

static void mark(smg_store *store, uint32_t block) { store->changed[block / 8] |= (uint8_t)(1u << block % 8); }

void smg_store_mark_all(smg_store *store) {
    for (uint32_t i = 0; i < sizeof store->changed; i++) store->changed[i] = 0;
    for (uint32_t i = 0; i < block_count(store->kept.bytes); i++) mark(store, i);
}

static int take_whole(smg_store *store, uint32_t block, smg_place *at, int purpose, uint32_t *crc) {
    uint8_t *data = block_data(store, block);
    uint32_t differs = 0;
    const uint32_t size = block_size(store->kept.bytes, block);
    for (uint32_t left = size, part; left; left -= part, data += part) {
        part = left < SMG_STORE_BUFFER ? left : SMG_STORE_BUFFER;
        uint8_t *to = purpose == SMG_FOR_LOAD ? data : (uint8_t *)store->buffer;
        const int failed = smg_store_take(store, store->chain.number, at, to, part);
        if (failed) return failed;
        *crc = smg_store_crc(*crc, to, part);
        for (uint32_t i = 0; i < part; i++) differs += to[i] != data[i];
    }
    if (purpose != SMG_FOR_COMPARE || !differs) return SMG_STORE_OK;
    mark(store, block);
    store->differing += differs;
    store->delta_bytes += differs + (size + GROUP - 1) / GROUP;
    return SMG_STORE_OK;
}

static int next_byte(const smg_store *store, ahead *from, uint8_t *to, uint32_t *crc) {
    if (from->next == from->there) {
        const uint32_t left = store->flash->sector_bytes - from->at.offset;
        const uint32_t room = left ? left : store->flash->sector_bytes - smg_store_head_bytes(store->flash);
        const smg_place begin = from->at;
        from->next = 0;
        from->there = room < AHEAD ? room : AHEAD;
        if (smg_store_take(store, store->chain.number, &from->at, from->bytes, from->there)) {
            /* Behind what was saved a unit may be torn: no further ahead than this one. */
            const uint32_t unit = store->flash->unit_bytes - (left ? begin.offset % store->flash->unit_bytes : 0);
            if (unit < from->there) from->there = unit;
            from->at = begin;
            const int failed = smg_store_take(store, store->chain.number, &from->at, from->bytes, from->there);
            if (failed) return failed;
        }
    }
    *to = from->bytes[from->next++];
    *crc = smg_store_crc(*crc, to, 1);
    return SMG_STORE_OK;
}

/* The bytes of a block that differ from the first save. */
static int take_delta(smg_store *store, uint32_t block, ahead *from, int purpose, uint32_t *crc) {
    const uint32_t size = block_size(store->kept.bytes, block);
    uint8_t *data = block_data(store, block), which = 0, byte;
    for (uint32_t i = 0; i < size; i++) {
        int failed = i % GROUP ? SMG_STORE_OK : next_byte(store, from, &which, crc);
        if (!failed && which >> i % GROUP & 1) {
            failed = next_byte(store, from, &byte, crc);
            if (!failed && purpose == SMG_FOR_LOAD) data[i] = byte;
            if (!failed && purpose == SMG_FOR_COMPARE) store->repeated += byte == data[i];
            if (!failed && purpose == SMG_FOR_COMPARE) store->held_bytes++;
        }
        if (failed) return failed;
    }
    return SMG_STORE_OK;
}

int smg_store_take_blocks(smg_store *store, smg_place *at, int purpose, uint32_t *crc) {
    const uint32_t count = block_count(store->kept.bytes), whole = !store->chain.length;
    uint8_t blocks[SMG_STORE_BLOCKS / 8];
    uint32_t there = 0;
    int failed = smg_store_take(store, store->chain.number, at, blocks, sizeof blocks);
    *crc = smg_store_crc(*crc, blocks, sizeof blocks);
    if (whole && purpose == SMG_FOR_COMPARE) {
        for (uint32_t i = 0; i < sizeof blocks; i++) store->changed[i] = 0;
        store->differing = store->delta_bytes = store->repeated = store->held_bytes = 0;
    }
    ahead from = {.at = *at};
    for (uint32_t block = 0; block < SMG_STORE_BLOCKS && !failed; block++) {
        if (!has(blocks, block)) continue;
        if (block >= count) return SMG_STORE_TORN;
        there++;
        failed = whole ? take_whole(store, block, at, purpose, crc) : take_delta(store, block, &from, purpose, crc);
    }
    if (!whole) {
        *at = from.at;
        at->offset -= from.there - from.next;
    }
    return !failed && whole && there != count ? SMG_STORE_TORN : failed; /* the first holds everything */
}

static int put(smg_store *store, const void *data, uint32_t bytes, uint32_t *crc) {
    *crc = smg_store_crc(*crc, data, bytes);
    return smg_store_put(store, data, bytes);
}

/* Of up to eight bytes those that differ from the first save, behind a byte that says which. */
static int put_group(smg_store *store, const uint8_t *data, const uint8_t *before, uint32_t bytes, uint32_t *crc) {
    uint8_t group[GROUP + 1] = {0};
    uint32_t count = 1;
    for (uint32_t i = 0; i < bytes; i++) {
        if (data[i] == before[i]) continue;
        group[0] |= (uint8_t)(1u << i);
        group[count++] = data[i];
    }
    return put(store, group, count, crc);
}

/* One block, or nothing of it where it is not marked; `before` goes on to behind it in the first save. */
static int put_delta(smg_store *store, uint32_t block, smg_place *before, uint32_t *crc) {
    const uint32_t size = block_size(store->kept.bytes, block);
    const uint8_t *data = block_data(store, block);
    uint8_t old[AHEAD];
    for (uint32_t at = 0; at < size; at += AHEAD) {
        const uint32_t part = size - at < AHEAD ? size - at : AHEAD;
        int failed = smg_store_take(store, store->chain.number, before, old, part);
        for (uint32_t i = 0; i < part && !failed && has(store->changed, block); i += GROUP)
            failed = put_group(store, data + at + i, old + i, part - i < GROUP ? part - i : GROUP, crc);
        if (failed) return failed;
    }
    return SMG_STORE_OK;
}

int smg_store_put_blocks(smg_store *store, smg_place *first, uint32_t *crc) {
    const uint32_t bytes = store->kept.bytes;
    uint8_t skipped[SMG_STORE_BLOCKS / 8];
    int failed = put(store, store->changed, sizeof store->changed, crc);
    if (first && !failed) failed = smg_store_take(store, store->chain.number, first, skipped, sizeof skipped);
    for (uint32_t block = 0; block < block_count(bytes) && !failed; block++)
        failed = first ? put_delta(store, block, first, crc)
                       : put(store, block_data(store, block), block_size(bytes, block), crc);
    return failed;
}

int smg_store_is_same(const smg_store *store) {
    return store->repeated == store->held_bytes && store->differing == store->held_bytes;
}
