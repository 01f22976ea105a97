/* The serial line by semihosting, and the two functions of a sketch. */
#include "Arduino.h"

enum { OPEN = 0x01, WRITE = 0x05, READ = 0x06 };

Line Serial;

static intptr_t to_host, from_host;
static uint8_t buffer[64];
static int first, last;
static bool told = true; /* that the buffer is empty */

static intptr_t ask(intptr_t operation, const void *arguments) {
  register intptr_t r0 __asm__("r0") = operation;
  register const void *r1 __asm__("r1") = arguments;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

void Line::begin(unsigned long) {
  const intptr_t in[] = {(intptr_t) "line-in", 1, 7}, out[] = {(intptr_t) "line-out", 5, 8};
  from_host = ask(OPEN, in);
  to_host = ask(OPEN, out);
}

/* Says once that nothing is there; asked again, the emulator stops until there is something. */
int Line::available() {
  if (first == last && told) {
    const intptr_t arguments[] = {from_host, (intptr_t)buffer, (intptr_t)sizeof buffer};
    first = 0;
    last = (int)sizeof buffer - (int)ask(READ, arguments);
  }
  told = first == last;
  return last - first;
}

int Line::read() { return first == last ? -1 : buffer[first++]; }

size_t Line::write(const uint8_t *data, size_t size) {
  const intptr_t arguments[] = {to_host, (intptr_t)data, (intptr_t)size};
  ask(WRITE, arguments);
  return size;
}

unsigned long micros() { return 1; }

int main() {
  setup();
  for (;;) loop();
}
