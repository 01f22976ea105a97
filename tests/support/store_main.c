/* The checks of a store on this machine: prints the cuts that each part of flash saw, or the line of what failed.
 *
 * Among the parts: two states and no more, few large sectors, pages of 256 bytes, sectors smaller than a state,
 * and the last five with error correction. */
#include <stdio.h>
#include <stdlib.h>

#include "store_checks.h"

static const part parts[] = {
    {512, 8, 0, 6, 0}, {512, 16, 1, 2, 0}, {256, 16, 0, 16, 0}, {4096, 32, 0, 2, 0}, {1024, 256, 0, 8, 0}, {128, 16, 2, 12, 0},
    {512, 8, 0, 6, 1}, {512, 16, 1, 2, 1}, {4096, 16, 0, 2, 1}, {128, 16, 2, 12, 1}, {256, 16, 0, 16, 1}};

/* Cuts at random moments: of a part, how many, and how many sectors wear out. Seeds 38, 15 and 72 cut twice in a row
 * where that costs a save, unless a store makes sure of the last one before it erases anything. */
static const struct {
    int part, rounds;
    uint32_t seed, worn;
} random_cuts[] = {{0, 350, 1, 2},  {0, 350, 2, 2}, {1, 300, 38, 0}, {2, 450, 1, 3}, {2, 450, 2, 3},
                   {3, 150, 1, 0}, {4, 350, 1, 2}, {5, 300, 15, 0}, {5, 300, 72, 0},
                   {6, 350, 1, 2}, {7, 300, 2, 0}, {8, 150, 3, 0}, {9, 450, 4, 0}, {9, 450, 5, 0}, {10, 450, 1, 3}, {10, 450, 2, 3}};

/* Takes the number of saves that are cut everywhere. */
int main(int count, char **arguments) {
    const int saves = count > 1 ? atoi(arguments[1]) : 50;
    for (int i = 0; i < (int)(sizeof parts / sizeof *parts); i++) {
        cuts = 0;
        const int failed = cut_all(&parts[i], saves, NOTHING);
        if (failed) return printf("part %d: line %d of store_checks.h\n", i, failed), 1;
        printf("part %d: %d cuts\n", i, (int)cuts);
        const int taken = damage_anywhere(&parts[i], 300);
        if (taken) return printf("part %d, damaged: line %d of store_checks.h\n", i, taken), 1;
        const int tight = room_behind(&parts[i]);
        if (tight) return printf("part %d, at its end: line %d of store_checks.h\n", i, tight), 1;
    }
    for (int i = 0; i < (int)(sizeof random_cuts / sizeof *random_cuts); i++) {
        const part *of = &parts[random_cuts[i].part];
        const int lost = cut_at_random(of, random_cuts[i].rounds, random_cuts[i].seed, random_cuts[i].worn);
        if (lost) return printf("random cuts %d: line %d of store_checks.h\n", i, lost), 1;
    }
    return 0;
}
