/* The checks of a ring on this machine: prints the cuts that each part of flash saw, or the line of what failed.
 *
 * Among the parts: an example in each sector, several in one, one over several sectors, pages of 256 bytes,
 * and the last three with error correction. */
#include <stdio.h>

#include "replay_checks.h"

static const part parts[] = {
    {512, 8, 4, 10, 212, 0}, {1024, 16, 2, 5, 100, 0}, {128, 4, 8, 40, 200, 0}, {512, 4, 4, 12, 20, 0}, {1024, 256, 2, 6, 150, 0},
    {512, 8, 4, 10, 212, 1}, {1024, 16, 2, 5, 100, 1}, {512, 16, 4, 12, 20, 1}};

static const part few = {64, 4, 0, 5, 12, 0}; /* room for four */

int main(void) {
    for (int i = 0; i < (int)(sizeof parts / sizeof *parts); i++) {
        cuts = 0;
        for (uint32_t seed = 1; seed <= 2; seed++) {
            const int failed = cut_at_random(&parts[i], 250, seed);
            if (failed) return printf("part %d, seed %u: line %d of replay_checks.h\n", i, seed, failed), 1;
        }
        printf("part %d: %d cuts\n", i, (int)cuts);
        const int unequal = shares(&parts[i]);
        if (unequal) return printf("part %d, shares: line %d of replay_checks.h\n", i, unequal), 1;
        const int worn = wear_and_refuse(&parts[i]);
        if (worn) return printf("part %d, worn: line %d of replay_checks.h\n", i, worn), 1;
        const int forgot = remembers(&parts[i]);
        if (forgot) return printf("part %d, restarted: line %d of replay_checks.h\n", i, forgot), 1;
        const int drawn = refuses_what_changed(&parts[i], 0), named = refuses_what_changed(&parts[i], 1);
        if (drawn || named) return printf("part %d, changed: line %d of replay_checks.h\n", i, drawn ? drawn : named), 1;
    }
    const int unfair = reservoir(&few);
    if (unfair) return printf("reservoir: line %d of replay_checks.h\n", unfair), 1;
    if (100 * early < 35 * firsts || 100 * early > 65 * firsts)
        return printf("%u of %u examples are from the first half\n", early, firsts), 1;
    return 0;
}
