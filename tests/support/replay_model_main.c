/* A program that learns from images and from latents in flash, and saves, while the power fails at random moments: the
 * old or the new state loads, and what is replayed is what its frozen front made of an image, with that image's label.
 *
 * Prints how many cuts there were and how many steps were replayed, or the line of what failed. */
#include <stdio.h>

#define EMULATED_ROOM 65536
#include "emulated_flash.h"
#include "model_replay.h"

enum { CUTS = 1000, HISTORY = 64, IMAGES = 12, SECTOR = 512, UNIT = 16, STORE = 64, RING = 16 };

#define HOLDS(claim) \
    do {             \
        if (!(claim)) return __LINE__; \
    } while (0)

static emulated_flash chip;
static const smg_flash flash = {emulated_erase, emulated_program, emulated_read, &chip, SECTOR, UNIT};
static smg_store store;
static smg_replay ring;
static uint8_t history[HISTORY][MODEL_STATE_BYTES], latents[IMAGES][MODEL_KEPT_BYTES];
static int done, tried, replayed, cuts;

static int label_of(int image) { return image % 3; }

static void show(int image) {
    uint8_t *to = model_input(0);
    uint32_t random = (uint32_t)image * 2654435761u + 1;
    for (int i = 0; i < MODEL_INPUT_0_BYTES; i++) {
        random = random * 1664525u + 1013904223u;
        to[i] = (uint8_t)(random >> 24);
    }
}

static void copy_latent(uint8_t *to) {
    static const uint32_t sizes[] = MODEL_LATENT_SIZES;
    for (int i = 0; i < MODEL_LATENTS; to += sizes[i++]) memcpy(to, model_latent(i), sizes[i]);
}

static int start(void) {
    const smg_region state = {"state", 0, STORE}, kept = {"replay", STORE, RING};
    chip.off = 0;
    model_init();
    const int found = smg_store_open(&store, &flash, state, (smg_kept){model_state(), MODEL_STATE_BYTES, MODEL_FINGERPRINT});
    const int there = smg_replay_open(&ring, &flash, kept, (smg_latents)MODEL_KEPT(7));
    HOLDS(there == SMG_STORE_OK || there == SMG_STORE_EMPTY);
    return found == SMG_STORE_EMPTY && !tried ? 0 : found || smg_store_load(&store) ? __LINE__ : 0;
}

/* One of the examples, which is of an image and has its label, and then a step on one. */
static int replay(void) {
    static const uint32_t sizes[] = MODEL_LATENT_SIZES;
    uint8_t found[MODEL_KEPT_BYTES], *to = found;
    uint32_t label;
    float loss;
    int failed = smg_replay_pick(&ring, &label), image = 0;
    for (int i = 0; i < MODEL_LATENTS && !failed; to += sizes[i++]) failed = smg_replay_read(&ring, to, sizes[i]);
    HOLDS(!failed || failed == SMG_STORE_EMPTY || failed == SMG_STORE_TORN);
    if (failed) return 0;
    while (image < IMAGES && memcmp(found, latents[image], MODEL_KEPT_BYTES)) image++;
    HOLDS(image < IMAGES && (uint32_t)label_of(image) == label);
    failed = model_replay_kept(&ring, 0.01f, &loss);
    HOLDS(!failed || failed == SMG_STORE_TORN || failed == SMG_STORE_EMPTY);
    replayed += !failed;
    return 0;
}

static int save(void) {
    memcpy(history[++tried % HISTORY], model_state(), MODEL_STATE_BYTES);
    if (!smg_store_save(&store)) done = tried;
    HOLDS((done == tried) == !chip.off);
    return 0;
}

/* Learning until the power fails, or once where it does not. */
static int work(void) {
    for (int i = 0; i < 200 && !chip.off; i++) {
        const int image = (int)(emulated_random(&chip) % IMAGES);
        show(image);
        model_train_kept(&ring, label_of(image), 0.01f);
        const int failed = chip.off ? 0 : replay();
        if (failed) return failed;
        if (!chip.off && i % 3 == 2 && save()) return __LINE__;
        if (chip.until_cut < 0 && !chip.off && i == 2) break;
    }
    return 0;
}

static int check(void) {
    HOLDS(!start() && !save());
    for (int round = 0; cuts < CUTS; round++) {
        const uint32_t random = emulated_random(&chip);
        chip.way = (int)(random >> 8) % WAYS;
        chip.until_cut = tried - done < HISTORY / 2 ? (int32_t)(random >> 12) % 150 : -1;
        for (uint32_t i = 0; i < 3; i++) ring.seen[i] = smg_replay_count(&ring, i); /* as if nothing else had been */
        int failed = work();
        if (failed) return failed;
        cuts += chip.off;
        failed = start();
        if (failed) return failed;
        int number = tried;
        while (number >= done && memcmp(history[number % HISTORY], model_state(), MODEL_STATE_BYTES)) number--;
        HOLDS(number >= done);
    }
    return 0;
}

int main(void) {
    memset(chip.bytes, 0xff, sizeof chip.bytes);
    chip.sector_bytes = SECTOR;
    chip.unit_bytes = UNIT;
    chip.sectors = STORE + RING;
    chip.random = 12345;
    chip.until_cut = -1;
    model_init();
    for (int image = 0; image < IMAGES; image++) {
        show(image);
        model_front();
        copy_latent(latents[image]);
    }
    const int failed = check();
    if (failed) return printf("line %d of replay_model_main.c\n", failed), 1;
    printf("%d cuts, %d steps replayed\n", cuts, replayed);
    return 0;
}
