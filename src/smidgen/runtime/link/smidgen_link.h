/* Requests and answers over a byte stream that loses, repeats and changes bytes.
 *
 * A frame is 0, then its content and CRC-32 as COBS writes them, without any 0, then 0. What does not arrive as it was
 * sent is noticed. Every request has a number: one that comes again is answered again, and never done twice. One buffer
 * holds what comes, then what goes. Nothing here waits, reads or writes: a program's own header does, by functions of
 * yours. */
#ifndef SMIDGEN_LINK_H
#define SMIDGEN_LINK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SMG_LINK_VERSION = 1,
    SMG_LINK_PIECE = 224,  /* bytes of data that a frame carries at most */
    SMG_LINK_ASKED = 7,    /* before the data of a request: session (4), number (2), what is asked for */
    SMG_LINK_HEAD = 11,    /* before the data of an answer: session (4), boot (4), number (2), how it went */
    SMG_LINK_SUM = 4,      /* behind the data: CRC-32 */
    SMG_LINK_BEFORE = 2,   /* before the content: the 0, and the first byte of COBS */
    SMG_LINK_FRAME = SMG_LINK_HEAD + SMG_LINK_PIECE + SMG_LINK_SUM /* below 255, so that COBS adds a single byte */
};

/* What a request asks for; docs/device.md has the data that goes with it. */
enum {
    SMG_LINK_HELLO = 1, SMG_LINK_ROWS, SMG_LINK_LABEL, SMG_LINK_TRAIN, SMG_LINK_PREDICT, SMG_LINK_OUTPUT,
    SMG_LINK_STATISTICS, SMG_LINK_SAVE, SMG_LINK_LOAD, SMG_LINK_READ, SMG_LINK_WRITE, SMG_LINK_ADOPT,
    SMG_LINK_REPLAY, SMG_LINK_RESET, SMG_LINK_OBSERVE, SMG_LINK_SOLVE
};

/* How it went: done; the frame is damaged; no such session, as after a reset; a number that does not follow; not in
 * this program; not now, or not with this data; tried and failed, with the code that says why. */
enum {
    SMG_LINK_DONE = 0, SMG_LINK_DAMAGED, SMG_LINK_STRANGER, SMG_LINK_DISORDER, SMG_LINK_UNKNOWN, SMG_LINK_REFUSED,
    SMG_LINK_FAILED
};

enum { SMG_FRAME_PART = 0, SMG_FRAME_WHOLE, SMG_FRAME_DAMAGED }; /* what came so far */

typedef struct {
    uint8_t bytes[SMG_LINK_BEFORE + SMG_LINK_FRAME + 1];
    int32_t count; /* bytes of content so far; of a whole frame without its CRC-32 */
    uint8_t left;  /* bytes up to the next that COBS counts from */
    uint8_t code;  /* what it counted last; 0 before a frame begins */
    uint8_t bad;   /* too long */
} smg_frame;

typedef struct {
    smg_frame frame;
    uint32_t boot, session, sum;   /* of this run of the program, of the host, of the last request */
    uint32_t number;               /* of the last request */
    uint8_t command, status, size; /* what it asked for, how it went, and how many bytes of `kept` say more */
    uint8_t kept[8];
    uint8_t open, told;            /* there is a session; the last answer is computed again on request */
    uint32_t damaged, again;       /* frames so far */
} smg_link;

static inline uint8_t *smg_frame_content(smg_frame *frame) { return frame->bytes + SMG_LINK_BEFORE; }

/* The data of the request at hand, and how many bytes of it; and where that of its answer goes. */
static inline uint8_t *smg_link_data(smg_link *link) { return smg_frame_content(&link->frame) + SMG_LINK_ASKED; }
static inline int32_t smg_link_size(const smg_link *link) { return link->frame.count - SMG_LINK_ASKED; }
static inline uint8_t *smg_link_room(smg_link *link) { return smg_frame_content(&link->frame) + SMG_LINK_HEAD; }

/* One byte more of a frame. */
int32_t smg_frame_take(smg_frame *frame, uint8_t byte);

/* Make `count` bytes of content a frame in place; how many bytes, from `bytes` on, are to be sent. */
int32_t smg_frame_close(smg_frame *frame, int32_t count);

/* One byte more. 0: nothing is to be done. SMG_LINK_REQUEST: a request is at hand and wants an answer. More: so many
 * bytes of the frame are to be sent. */
enum { SMG_LINK_REQUEST = 1 };
int32_t smg_link_take(smg_link *link, uint8_t byte);

/* Answer the request at hand: with up to two numbers, which are kept for when it comes again (`size` is 0, 4 or 8); or
 * with `size` bytes in the room for them, by a request that changes nothing and may be done again. Both give how many
 * bytes of the frame are to be sent. */
int32_t smg_link_answer(smg_link *link, uint8_t status, uint32_t first, uint32_t second, uint8_t size);
int32_t smg_link_tell(smg_link *link, int32_t size);

/* CRC-32 (IEEE 802.3) of bytes that follow others, whose CRC-32 is `before`; 0 where none do. */
uint32_t smg_link_sum(uint32_t before, const void *data, int32_t size);

void smg_link_copy(void *to, const void *from, int32_t size);

/* Numbers of some bytes, the lowest first, and floats as such numbers. */
uint32_t smg_link_number(const uint8_t *from, int32_t size);
void smg_link_put(uint8_t *to, int32_t size, uint32_t number);
float smg_link_float(uint32_t bits);
uint32_t smg_link_bits(float number);

#ifdef __cplusplus
}
#endif

#endif
