/* Every kernel that computes in float or double includes this: each operation must be rounded to its own type. */
#ifndef SMIDGEN_EXACT_FLOATS_H
#define SMIDGEN_EXACT_FLOATS_H

#include <float.h>

/* The x87 keeps more bits than a float has, and s390x may compute float in double: both would learn other numbers. */
#if !defined(FLT_EVAL_METHOD) || FLT_EVAL_METHOD != 0
#error "this compiler computes float with more bits than float has; on x86 build with -msse2 -mfpmath=sse, elsewhere with -fexcess-precision=fast or another target"
#endif

#if defined(__FAST_MATH__)
#error "-ffast-math computes other numbers than the reference; build without it"
#endif

#endif
