/* The checks of a store on this machine: prints the cuts that each part of flash saw, or the line of what failed.
 *
 * Among the parts: two states and no more, few large sectors, pages of 256 bytes, sectors smaller than a state. */
#include <stdio.h>

#include "store_checks.h"

static const part parts[] = {
    {512, 8, 0, 6}, {512, 16, 1, 2}, {256, 16, 0, 16}, {4096, 32, 0, 2}, {1024, 256, 0, 8}, {128, 16, 2, 12}};
static const uint32_t worn[] = {2, 0, 3, 0, 2, 0};        /* sectors that may wear out */
static const uint32_t seeds[] = {1, 2, 154, 231, 1386}; /* the last ones cut twice where it hurts most */

int main(void) {
    for (int i = 0; i < (int)(sizeof parts / sizeof *parts); i++) {
        cuts = 0;
        const int failed = cut_all(&parts[i], 50, NOTHING);
        if (failed) return printf("part %d: line %d of store_checks.h\n", i, failed), 1;
        printf("part %d: %d cuts\n", i, (int)cuts);
        for (int j = 0; j < (i == 5 ? 5 : 2); j++) {
            const int lost = cut_at_random(&parts[i], i == 5 ? 300 : 150 + 100 * (int)worn[i], seeds[j], worn[i]);
            if (lost) return printf("part %d, seed %u: line %d of store_checks.h\n", i, (unsigned)seeds[j], lost), 1;
        }
    }
    return 0;
}
