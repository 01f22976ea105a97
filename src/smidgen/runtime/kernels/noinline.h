/* Functions that the compiler is to leave out of line: what is rare is shorter so, and a loop has all registers. */
#ifndef SMIDGEN_NOINLINE_H
#define SMIDGEN_NOINLINE_H

#define SMG_NOINLINE __attribute__((noinline))

/* The same for what runs seldom, or is little of the whole: to be short rather than fast. */
#if defined(__clang__)
#define SMG_SHORT __attribute__((noinline, cold, minsize))
#else
#define SMG_SHORT __attribute__((noinline, cold))
#endif

#endif
