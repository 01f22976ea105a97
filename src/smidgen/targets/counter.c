/* Called by the emulator before each block of instructions: counts them by block and by node, watches the stack.
 *
 * The arrays and the struct are the caller's; counter.py has the same fields. */
#include <stdint.h>

enum { GENERATED = 1, KERNEL = 2, ENTRY = 4 }; /* roles of the code at an address */

typedef struct {
    uint64_t executed;               /* instructions of this block while a call is measured */
    uint32_t size;                   /* bytes, 0 before it is first met */
    uint32_t instructions;           /* in it */
    uint32_t role;                   /* of its first instruction */
    uint32_t unused;
} block;

typedef struct {
    block *blocks;                   /* one for each halfword of code */
    const uint16_t *code;
    const int32_t *calls;            /* the node behind each kernel call, in order */
    uint64_t *nodes;                 /* instructions of each node; the last: of the code between the kernels */
    int (*read_register)(void *emulator, int which, void *value);
    int (*stop)(void *emulator);
    uint64_t origin, size;           /* of the code, in bytes */
    uint64_t total, limit;           /* instructions since the start, and where to stop */
    int32_t stack_register, link_register;
    int32_t call_count, node_count;
    int32_t called;                  /* kernel calls made in the call that is measured */
    int32_t node;                    /* whose kernel runs; node_count between kernels */
    int32_t inside;                  /* a call is measured */
    int32_t after_generated;         /* the block before was generated code */
    uint32_t back;                   /* where the measured call returns to */
    uint32_t lowest_stack;
    uint32_t fault, last, before;    /* for QEMU: where faults lead, the block that ran last, and the one before */
    uint16_t wide_mask, wide_from;   /* an instruction takes two halfwords where these bits of the first come to that */
} counter;

static uint32_t instructions_in(const counter *c, const uint16_t *code, uint32_t halfwords) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < halfwords; count++) i += (code[i] & c->wide_mask) >= c->wide_from ? 2 : 1;
    return count;
}

/* A call into the program: count from here to where it returns. */
static void enter(counter *c, void *emulator) {
    for (uint64_t i = 0; i < c->size / 2; i++) c->blocks[i].executed = 0;
    for (int32_t i = 0; i <= c->node_count; i++) c->nodes[i] = 0;
    c->inside = 1;
    c->called = 0;
    c->read_register(emulator, c->link_register, &c->back);
    c->back &= ~(uint32_t)1;
}

static void follow(counter *c, void *emulator, uint32_t address, uint32_t role) {
    if (c->inside && address == c->back) c->inside = 0;
    if (!c->inside && (role & ENTRY)) enter(c, emulator);
    if (role & GENERATED) c->node = c->node_count;
    if ((role & KERNEL) && c->after_generated && c->inside) {
        c->node = c->called < c->call_count ? c->calls[c->called] : c->node_count;
        c->called++;
    }
    c->after_generated = (role & GENERATED) != 0;
}

void count_block(void *emulator, uint64_t address, uint32_t size, void *data) {
    counter *c = data;
    uint32_t stack;
    if (address < c->origin || address - c->origin >= c->size) {
        c->stop(emulator); /* there is no code there */
        return;
    }
    block *b = c->blocks + (address - c->origin) / 2;
    if (b->size != size) {
        b->size = size;
        b->instructions = instructions_in(c, c->code + (address - c->origin) / 2, size / 2);
    }
    follow(c, emulator, (uint32_t)address, b->role);
    c->total += b->instructions;
    if (c->inside) {
        b->executed += b->instructions;
        c->nodes[c->node] += b->instructions;
    }
    c->read_register(emulator, c->stack_register, &stack);
    if (stack < c->lowest_stack) c->lowest_stack = stack;
    if (c->total > c->limit) c->stop(emulator);
}
