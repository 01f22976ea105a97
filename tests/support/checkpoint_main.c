/* Every way in which a load can fail leaves the program as after model_init: exits with the number of the way that does
 * not. The first argument is the file to save to, the second one that another program saved. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "model.h"

enum { HEAD = 16, SIZE = HEAD + MODEL_STATE_BYTES, LOGITS = MODEL_OUTPUT_1_BYTES };

static uint8_t storage[SIZE];
static int position, least; /* reading fails from `least` on */

static int put(void *context, const void *data, int size) {
    (void)context;
    memcpy(storage + position, data, (size_t)size);
    position += size;
    return 0;
}

/* As much as there is before `least`, then a failure. */
static int take(void *context, void *data, int size) {
    const int there = position + size <= least ? size : least > position ? least - position : 0;
    (void)context;
    memcpy(data, storage + position, (size_t)there);
    position += there;
    return there == size ? 0 : 5;
}

/* What a prediction and a step give, and the state after them. */
typedef struct {
    int best;
    float loss;
    uint8_t logits[LOGITS], before[MODEL_STATE_BYTES], after[MODEL_STATE_BYTES];
} trace;

static void show(int seed) {
    int8_t *input = model_input(0);
    for (int i = 0; i < MODEL_INPUT_0_BYTES; i++) input[i] = (int8_t)(i * (seed + 3) % 251 - 125);
}

static void follow(trace *of) {
    memset(of, 0, sizeof *of);
    memcpy(of->before, model_state(), MODEL_STATE_BYTES);
    show(9);
    of->best = model_predict();
    memcpy(of->logits, model_output(1), LOGITS);
    show(9);
    of->loss = model_train(1, 0.05f);
    memcpy(of->after, model_state(), MODEL_STATE_BYTES);
}

static void learn(void) {
    for (int step = 0; step < 4; step++) {
        show(step);
        model_train(step % 2, 0.1f);
    }
}

static int load(int until) {
    position = 0;
    least = until;
    return model_load(take, 0);
}

static trace fresh, found;

/* Whether a load from what storage holds fails, with this number where one is given, and starts afresh. */
static int starts_afresh(int until, int expected) {
    learn();
    const int failed = load(until);
    follow(&found);
    return failed && (!expected || failed == expected) && !memcmp(&fresh, &found, sizeof fresh);
}

static int file(const char *name, const char *mode) {
    FILE *opened = fopen(name, mode);
    if (!opened) return 1;
    const size_t count = mode[0] == 'w' ? fwrite(storage, 1, SIZE, opened) : fread(storage, 1, SIZE, opened);
    return fclose(opened) || count != SIZE;
}

static int damaged(void) {
    static uint8_t whole[SIZE];
    memcpy(whole, storage, SIZE);
    const int cuts[] = {0, 1, HEAD - 1, HEAD, HEAD + 1, SIZE / 2, SIZE - 1};
    for (int i = 0; i < (int)(sizeof cuts / sizeof *cuts); i++)
        if (!starts_afresh(cuts[i], 5)) return 10 + i;
    for (int i = 0; i < SIZE; i += i < HEAD ? 3 : 151) {
        storage[i] ^= 1;
        if (!starts_afresh(SIZE, -1)) return 20;
        storage[i] ^= 1;
    }
    memset(storage + SIZE / 2, 0xff, SIZE - SIZE / 2); /* the power failed while it was written */
    if (!starts_afresh(SIZE, -1)) return 21;
    memset(storage, 0xff, SIZE);
    if (!starts_afresh(SIZE, -1)) return 22;
    memset(storage, 0, SIZE);
    if (!starts_afresh(SIZE, -1)) return 23;
    memcpy(storage, whole, SIZE);
    return 0;
}

int main(int count, char **names) {
    static trace learned;
    model_init();
    follow(&fresh);
    learn();
    if (model_save(put, 0) || position != SIZE) return 1;
    follow(&learned);
    if (load(SIZE)) return 2;
    follow(&found);
    if (memcmp(&learned, &found, sizeof found) || !memcmp(&learned, &fresh, sizeof fresh)) return 3;
    const int wrong = damaged();
    if (wrong) return wrong;
    if (load(SIZE) || count < 2 || file(names[1], "wb")) return 4;
    if (count > 2 && (file(names[2], "rb") || !starts_afresh(SIZE, -1))) return 5;
    return 0;
}
