/* Built into a program that is timed: when each of its kernels was called and when it was done. */
#define _POSIX_C_SOURCE 199309L /* for clock_gettime */
#include "clock.h"

#include <time.h>

static double marks[SMG_MARKS];
static int count;

void smg_mark(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (count < SMG_MARKS) marks[count++] = (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Nanoseconds at each mark since the last call, and how many there are. */
const double *smg_take_marks(int *taken) {
    *taken = count;
    count = 0;
    return marks;
}
