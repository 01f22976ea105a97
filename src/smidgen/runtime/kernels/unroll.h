/* Loops that are worth their length: for DSPs compilers are set to unroll no others, as flash is scarce. */
#ifndef SMIDGEN_UNROLL_H
#define SMIDGEN_UNROLL_H

#if defined(__clang__)
#define SMG_UNROLL _Pragma("clang loop unroll_count(2)")
#define SMG_UNROLL_ALL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define SMG_UNROLL _Pragma("GCC unroll 2")
#define SMG_UNROLL_ALL _Pragma("GCC unroll 16")
#else
#define SMG_UNROLL
#define SMG_UNROLL_ALL
#endif

#endif
