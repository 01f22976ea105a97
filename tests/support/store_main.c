/* The checks of a store on this machine: prints the cuts that each part of flash saw, or the line of what failed.
 *
 * Among the parts: two states and no more, few large sectors, pages of 256 bytes, sectors smaller than a state. */
#include <stdio.h>

#include "store_checks.h"

static const part parts[] = {
    {512, 8, 0, 6}, {512, 16, 1, 2}, {256, 16, 0, 16}, {4096, 32, 0, 2}, {1024, 256, 0, 8}, {128, 16, 2, 12}};

/* Cuts at random moments: of a part, how many, and how many sectors wear out. Seeds 38, 15 and 72 cut twice in a row
 * where that costs a save, unless a store makes sure of the last one before it erases anything. */
static const struct {
    int part, rounds;
    uint32_t seed, worn;
} random_cuts[] = {{0, 350, 1, 2},  {0, 350, 2, 2}, {1, 300, 38, 0}, {2, 450, 1, 3}, {2, 450, 2, 3},
                   {3, 150, 1, 0}, {4, 350, 1, 2}, {5, 300, 15, 0}, {5, 300, 72, 0}};

int main(void) {
    for (int i = 0; i < (int)(sizeof parts / sizeof *parts); i++) {
        cuts = 0;
        const int failed = cut_all(&parts[i], 50, NOTHING);
        if (failed) return printf("part %d: line %d of store_checks.h\n", i, failed), 1;
        printf("part %d: %d cuts\n", i, (int)cuts);
        const int taken = damage_anywhere(&parts[i], 300);
        if (taken) return printf("part %d, damaged: line %d of store_checks.h\n", i, taken), 1;
    }
    for (int i = 0; i < (int)(sizeof random_cuts / sizeof *random_cuts); i++) {
        const part *of = &parts[random_cuts[i].part];
        const int lost = cut_at_random(of, random_cuts[i].rounds, random_cuts[i].seed, random_cuts[i].worn);
        if (lost) return printf("random cuts %d: line %d of store_checks.h\n", i, lost), 1;
    }
    return 0;
}
