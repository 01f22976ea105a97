/* A serial line by semihosting, and a clock that stands still. */
#include <zephyr/device.h>
#include <zephyr/drivers/uart.h>
#include <zephyr/kernel.h>

enum { OPEN = 0x01, WRITE = 0x05, READ = 0x06 };

struct device console_device;

static int ask(int operation, const void *arguments) {
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = arguments;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static int opened(const char *name, int length, int mode) {
    const intptr_t arguments[] = {(intptr_t)name, mode, length};
    return ask(OPEN, arguments);
}

/* The emulator stops here until there is a byte. */
int uart_poll_in(const struct device *dev, unsigned char *p_char) {
    if (!console_device.in) console_device.in = opened("line-in", 7, 1);
    const intptr_t arguments[] = {dev->in, (intptr_t)p_char, 1};
    return ask(READ, arguments) == 0 ? 0 : -1;
}

void uart_poll_out(const struct device *dev, unsigned char out_char) {
    if (!console_device.out) console_device.out = opened("line-out", 8, 5);
    const intptr_t arguments[] = {dev->out, (intptr_t)&out_char, 1};
    ask(WRITE, arguments);
}

uint32_t k_cycle_get_32(void) { return 1; }
