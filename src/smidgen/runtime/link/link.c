/* Frames of a link (COBS, which keeps zeros for the ends of frames, and CRC-32), and requests by their numbers. */
#include "smidgen_link.h"

/* CRC-32 of each half byte. */
static const uint32_t halves[16] = {
    0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u, 0x4db26158u, 0x5005713cu,
    0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu, 0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu,
};

uint32_t smg_link_sum(uint32_t before, const void *data, int32_t size) {
    const uint8_t *from = (const uint8_t *)data;
    uint32_t sum = ~before;
    for (int32_t i = 0; i < size; i++) {
        sum ^= from[i];
        sum = (sum >> 4) ^ halves[sum & 15u];
        sum = (sum >> 4) ^ halves[sum & 15u];
    }
    return ~sum;
}

uint32_t smg_link_number(const uint8_t *from, int32_t size) {
    uint32_t number = 0;
    for (int32_t i = size; i--;) number = (number << 8) | from[i];
    return number;
}

void smg_link_put(uint8_t *to, int32_t size, uint32_t number) {
    for (int32_t i = 0; i < size; i++) to[i] = (uint8_t)(number >> (8 * i));
}

void smg_link_copy(void *to, const void *from, int32_t size) {
    uint8_t *one = (uint8_t *)to;
    const uint8_t *other = (const uint8_t *)from;
    for (int32_t i = 0; i < size; i++) one[i] = other[i];
}

float smg_link_float(uint32_t bits) {
    const union {
        uint32_t bits;
        float number;
    } same = {bits};
    return same.number;
}

uint32_t smg_link_bits(float number) {
    uint32_t bits;
    smg_link_copy(&bits, &number, sizeof bits);
    return bits;
}

static void append(smg_frame *frame, uint8_t byte) {
    if (frame->count < SMG_LINK_FRAME) {
        smg_frame_content(frame)[frame->count++] = byte;
    } else {
        frame->bad = 1;
    }
}

/* A zero ends a frame: is it whole? Nothing between two zeros is no frame. */
static int32_t end(smg_frame *frame) {
    const int32_t begun = frame->code, complete = !frame->left && !frame->bad, count = frame->count - SMG_LINK_SUM;
    const uint8_t *content = smg_frame_content(frame);
    frame->left = frame->code = frame->bad = 0;
    frame->count = 0;
    if (!begun) return SMG_FRAME_PART;
    if (!complete || count < 0) return SMG_FRAME_DAMAGED;
    if (smg_link_number(content + count, SMG_LINK_SUM) != smg_link_sum(0, content, count)) return SMG_FRAME_DAMAGED;
    frame->count = count;
    return SMG_FRAME_WHOLE;
}

int32_t smg_frame_take(smg_frame *frame, uint8_t byte) {
    if (!byte) return end(frame);
    if (!frame->code) frame->count = 0; /* of the frame before, which was whole */
    if (frame->left) {
        append(frame, byte);
        frame->left--;
    } else {
        if (frame->code && frame->code != 0xff) append(frame, 0);
        frame->code = byte;
        frame->left = (uint8_t)(byte - 1);
    }
    return SMG_FRAME_PART;
}

int32_t smg_frame_close(smg_frame *frame, int32_t count) {
    uint8_t *content = smg_frame_content(frame);
    smg_link_put(content + count, SMG_LINK_SUM, smg_link_sum(0, content, count));
    const int32_t last = count + SMG_LINK_SUM + 1; /* from the byte of COBS on */
    uint8_t *coded = frame->bytes + 1;
    int32_t at = 0;
    for (int32_t i = 1; i <= last; i++)
        if (i == last || !coded[i]) {
            coded[at] = (uint8_t)(i - at);
            at = i;
        }
    frame->bytes[0] = coded[last] = 0;
    frame->count = 0;
    return last + 2;
}

/* An answer whose data lies in its place already. */
static int32_t answered(smg_link *link, uint32_t session, uint32_t number, uint8_t status, int32_t size) {
    uint8_t *head = smg_frame_content(&link->frame);
    smg_link_put(head, 4, session);
    smg_link_put(head + 4, 4, link->boot);
    smg_link_put(head + 8, 2, number);
    head[10] = status;
    return smg_frame_close(&link->frame, SMG_LINK_HEAD + size);
}

static int32_t answered_again(smg_link *link) {
    smg_link_copy(smg_link_room(link), link->kept, link->size);
    return answered(link, link->session, link->number, link->status, link->size);
}

int32_t smg_link_answer(smg_link *link, uint8_t status, uint32_t first, uint32_t second, uint8_t size) {
    link->status = status;
    link->size = size;
    link->told = 0;
    smg_link_put(link->kept, 4, first);
    smg_link_put(link->kept + 4, 4, second);
    return answered_again(link);
}

int32_t smg_link_tell(smg_link *link, int32_t size) {
    link->told = 1;
    return answered(link, link->session, link->number, SMG_LINK_DONE, size);
}

/* A whole request: is it to be done? If not, it is answered. */
static int32_t accepted(smg_link *link) {
    const uint8_t *head = smg_frame_content(&link->frame);
    const uint32_t session = smg_link_number(head, 4), number = smg_link_number(head + 4, 2);
    const uint32_t sum = smg_link_number(head + link->frame.count, SMG_LINK_SUM); /* as it came: it was right */
    const int known = link->open && session == link->session, hello = head[6] == SMG_LINK_HELLO;
    if (known && number == link->number && sum == link->sum) {
        link->again++;
        return link->told ? SMG_LINK_REQUEST : answered_again(link);
    }
    if (!hello && !known) return answered(link, session, number, SMG_LINK_STRANGER, 0);
    if (!hello && number != ((link->number + 1) & 0xffffu)) {
        return answered(link, session, number, SMG_LINK_DISORDER, 0);
    }
    link->open = 1;
    link->session = session;
    link->number = number;
    link->sum = sum;
    link->command = head[6];
    return SMG_LINK_REQUEST;
}

int32_t smg_link_take(smg_link *link, uint8_t byte) {
    const int32_t found = smg_frame_take(&link->frame, byte);
    if (found == SMG_FRAME_PART) return 0;
    if (found == SMG_FRAME_WHOLE && smg_link_size(link) >= 0 && smg_link_size(link) <= SMG_LINK_PIECE) {
        return accepted(link);
    }
    link->damaged++;
    return answered(link, 0, 0, SMG_LINK_DAMAGED, 0);
}
