/* The checks of a store on this machine: prints how many cuts each part of flash saw, or the line of the check that failed.
 *
 * Among the parts: two states and no more, few large sectors, pages of 256 bytes, sectors smaller than a state. */
#include <stdio.h>

#include "store_checks.h"

static const part parts[] = {{512, 4, 0, 6}, {512, 16, 1, 2}, {256, 8, 0, 16}, {4096, 32, 0, 2}, {1024, 256, 0, 8}, {128, 16, 2, 16}};
static const uint32_t worn[] = {2, 0, 3, 0, 2, 2}; /* sectors that may wear out */

int main(void) {
    for (int i = 0; i < (int)(sizeof parts / sizeof *parts); i++) {
        cuts = 0;
        const int failed = cut_all(&parts[i], 50, NOTHING);
        if (failed) return printf("part %d: line %d of store_checks.h\n", i, failed), 1;
        printf("part %d: %d cuts\n", i, (int)cuts);
        for (uint32_t seed = 1; seed <= 3; seed++) {
            const int lost = cut_at_random(&parts[i], 200 + 100 * (int)worn[i], seed, seed > 1 ? worn[i] : 0);
            if (lost) return printf("part %d, seed %u: line %d of store_checks.h\n", i, seed, lost), 1;
        }
    }
    return 0;
}
