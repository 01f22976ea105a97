/* Sectors of a store: heads that say which chain they belong to, and bytes that go on from one to the next. */
#include "store_sectors.h"

enum { CHUNK = 32, WORN = 8, RING = 0x53474d53, LAYOUT = 1 }; /* RING reads "SMGS" */

/* CRC-32 as Ethernet and zip have it, four bits at a time. */
uint32_t smg_store_crc(uint32_t crc, const void *data, uint32_t bytes) {
    static const uint32_t table[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    const uint8_t *from = data;
    crc = ~crc;
    for (uint32_t i = 0; i < bytes; i++) {
        crc ^= from[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

uint32_t smg_store_units(const smg_flash *flash, uint32_t bytes) {
    return (bytes + flash->unit_bytes - 1) / flash->unit_bytes * flash->unit_bytes;
}

uint32_t smg_store_head_bytes(const smg_flash *flash) {
    return smg_store_units(flash, SMG_HEAD_WORDS * (uint32_t)sizeof(uint32_t));
}

static uint32_t address(const smg_store *store, uint32_t position, uint32_t offset) {
    return (store->region.first + position) * store->flash->sector_bytes + offset;
}

static int read(const smg_store *store, uint32_t position, uint32_t offset, void *to, uint32_t bytes) {
    const smg_flash *flash = store->flash;
    return flash->read(flash->context, address(store, position, offset), to, bytes) ? SMG_STORE_TORN : SMG_STORE_OK;
}

/* The words of a head that are the same for every sector of this store. */
static void identify(const smg_store *store, uint32_t head[SMG_HEAD_WORDS]) {
    const char *name = store->region.name;
    for (int i = 0; i < SMG_HEAD_WORDS; i++) head[i] = 0;
    head[SMG_HEAD_MAGIC] = RING;
    head[SMG_HEAD_VERSION] = LAYOUT;
    for (uint32_t i = 0; i < 8 && *name; i++) head[SMG_HEAD_NAME + i / 4] |= (uint32_t)(uint8_t)*name++ << i % 4 * 8;
    head[SMG_HEAD_PROGRAM] = store->kept.program[0];
    head[SMG_HEAD_PROGRAM + 1] = store->kept.program[1];
    head[SMG_HEAD_BYTES] = store->kept.bytes;
}

static uint32_t head_crc(const uint32_t head[SMG_HEAD_WORDS]) {
    return smg_store_crc(0, head, SMG_HEAD_CRC * (uint32_t)sizeof head[0]);
}

int smg_store_head(const smg_store *store, uint32_t position, uint32_t head[SMG_HEAD_WORDS]) {
    uint32_t own[SMG_HEAD_WORDS], blank = 0xffffffffu;
    if (read(store, position, 0, head, SMG_HEAD_WORDS * (uint32_t)sizeof head[0])) return SMG_SECTOR_UNREAD;
    for (int i = 0; i < SMG_HEAD_WORDS; i++) blank &= head[i];
    if (blank == 0xffffffffu) return SMG_SECTOR_BLANK;
    if (head[SMG_HEAD_MAGIC] != RING || head[SMG_HEAD_CRC] != head_crc(head)) return SMG_SECTOR_JUNK;
    if (head[SMG_HEAD_VERSION] != LAYOUT) return SMG_SECTOR_LAYOUT;
    identify(store, own);
    for (int i = 0; i < SMG_HEAD_CHAIN; i++)
        if (head[i] != own[i]) return SMG_SECTOR_OTHER;
    return SMG_SECTOR_OURS;
}

int smg_store_step(const smg_store *store, uint32_t chain, smg_place *at, uint32_t *link) {
    uint32_t head[SMG_HEAD_WORDS];
    for (uint32_t i = 1; i < store->region.sectors; i++) { /* the next one, but where sectors are worn */
        const uint32_t position = (at->position + i) % store->region.sectors;
        const int says = smg_store_head(store, position, head);
        if (says == SMG_SECTOR_OURS && head[SMG_HEAD_CHAIN] == chain && head[SMG_HEAD_INDEX] == at->index + 1) {
            *at = (smg_place){position, at->index + 1, smg_store_head_bytes(store->flash)};
            *link = head[SMG_HEAD_LINK];
            return SMG_STORE_OK;
        }
    }
    return SMG_STORE_TORN;
}

int smg_store_take(const smg_store *store, uint32_t chain, smg_place *at, void *to, uint32_t bytes) {
    uint8_t *next = to;
    while (bytes) {
        uint32_t link, part = store->flash->sector_bytes - at->offset;
        int failed = part ? SMG_STORE_OK : smg_store_step(store, chain, at, &link);
        if (failed) return failed;
        if (!part) continue;
        if (part > bytes) part = bytes;
        failed = read(store, at->position, at->offset, next, part);
        if (failed) return failed;
        at->offset += part;
        next += part;
        bytes -= part;
    }
    return SMG_STORE_OK;
}

/* Whether flash reads as what was programmed, or as blank where nothing is given. */
static int reads_as(const smg_store *store, uint32_t position, uint32_t offset, const uint8_t *data, uint32_t bytes) {
    uint8_t found[CHUNK];
    for (uint32_t at = 0; at < bytes; at += CHUNK) {
        const uint32_t part = bytes - at < CHUNK ? bytes - at : CHUNK;
        if (read(store, position, offset + at, found, part)) return 0;
        for (uint32_t i = 0; i < part; i++)
            if (found[i] != (data ? data[at + i] : 0xff)) return 0;
    }
    return 1;
}

int smg_store_is_blank(const smg_store *store, uint32_t position, uint32_t offset, uint32_t bytes) {
    return reads_as(store, position, offset, 0, bytes);
}

int smg_store_erase(const smg_store *store, uint32_t position) {
    const smg_flash *flash = store->flash;
    if (flash->erase(flash->context, address(store, position, 0))) return SMG_STORE_WORN;
    return smg_store_is_blank(store, position, 0, flash->sector_bytes) ? SMG_STORE_OK : SMG_STORE_WORN;
}

static int is_worn(const smg_store *store, uint32_t position) {
    for (int i = 0; i < store->worn_count; i++)
        if (store->worn[i] == position) return 1;
    return 0;
}

static void remember_worn(smg_store *store, uint32_t position) {
    if (store->worn_count < WORN && !is_worn(store, position)) store->worn[store->worn_count++] = (uint16_t)position;
}

/* What the buffer holds to where the chain ends, padded to whole units. */
int smg_store_flush(smg_store *store) {
    const smg_flash *flash = store->flash;
    const uint32_t position = store->chain.end.position, offset = store->chain.end.offset;
    const uint32_t bytes = smg_store_units(flash, store->held);
    uint8_t *buffer = (uint8_t *)store->buffer;
    if (!bytes) return SMG_STORE_OK;
    for (uint32_t i = store->held; i < bytes; i++) buffer[i] = 0xff;
    store->held = 0;
    if (flash->program(flash->context, address(store, position, offset), buffer, bytes) ||
        !reads_as(store, position, offset, buffer, bytes)) {
        remember_worn(store, position);
        return SMG_STORE_WORN;
    }
    store->chain.end.offset += bytes;
    return SMG_STORE_OK;
}

int smg_store_enter(smg_store *store) {
    uint32_t head[SMG_HEAD_WORDS];
    identify(store, head);
    head[SMG_HEAD_CHAIN] = store->chain.number;
    head[SMG_HEAD_INDEX] = ++store->chain.end.index;
    head[SMG_HEAD_LINK] = store->chain.link;
    head[SMG_HEAD_CRC] = head_crc(head);
    while (store->left) {
        store->left--;
        store->chain.end.position = (store->chain.end.position + 1) % store->region.sectors;
        store->chain.end.offset = 0;
        if (is_worn(store, store->chain.end.position)) continue;
        if (smg_store_erase(store, store->chain.end.position)) {
            remember_worn(store, store->chain.end.position);
            continue;
        }
        uint8_t *buffer = (uint8_t *)store->buffer;
        store->held = sizeof head;
        for (uint32_t i = 0; i < store->held; i++) buffer[i] = ((const uint8_t *)head)[i];
        if (!smg_store_flush(store)) return SMG_STORE_OK;
    }
    return SMG_STORE_WORN;
}

int smg_store_put(smg_store *store, const void *data, uint32_t bytes) {
    const uint8_t *next = data;
    const uint32_t most = SMG_STORE_BUFFER / store->flash->unit_bytes * store->flash->unit_bytes;
    while (bytes) {
        const uint32_t there = store->flash->sector_bytes - store->chain.end.offset, room = there < most ? there : most;
        if (!there && smg_store_enter(store)) return SMG_STORE_WORN;
        if (!there) continue;
        ((uint8_t *)store->buffer)[store->held++] = *next++;
        bytes--;
        if (store->held == room && smg_store_flush(store)) return SMG_STORE_WORN;
    }
    return SMG_STORE_OK;
}
