/* Functions that the compiler is to leave out of line: what is rare is shorter so, and a loop has all registers. */
#ifndef SMIDGEN_NOINLINE_H
#define SMIDGEN_NOINLINE_H

#define SMG_NOINLINE __attribute__((noinline))

#endif
