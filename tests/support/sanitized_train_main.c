/* Trains on recorded samples from the file named first, keeps the state and takes it back, then writes it to stdout. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "model.h"

enum { STEPS = 3 };

static uint8_t kept[MODEL_STATE_BYTES + 16], image[MODEL_INPUT_0_BYTES];
static int position;

static int put(void *context, const void *data, int size) {
    (void)context;
    memcpy(kept + position, data, (size_t)size);
    position += size;
    return 0;
}

static int take(void *context, void *data, int size) {
    (void)context;
    memcpy(data, kept + position, (size_t)size);
    position += size;
    return 0;
}

#if STREAMED
static void read_row(void *context, void *row, int index) {
    (void)context;
    memcpy(row, image + index * ROW_BYTES, ROW_BYTES);
}

static void show(void) { model_source(read_row, 0); }
#else
static void show(void) { memcpy(model_input(0), image, sizeof image); }
#endif

int main(int count, char **arguments) {
    FILE *file = count == 2 ? fopen(arguments[1], "rb") : 0;
    if (!file) return 2;
    model_init();
    for (int step = 0; step < STEPS; step++) {
        if (fread(image, 1, sizeof image, file) != sizeof image) return 2;
        show();
        model_train(step % 2, 0.02f);
    }
    fclose(file);
    if (model_save(put, 0)) return 3;
    model_init();
    position = 0;
    if (model_load(take, 0)) return 3;
    show();
    model_predict();
    return fwrite(model_state(), 1, MODEL_STATE_BYTES, stdout) != MODEL_STATE_BYTES;
}
