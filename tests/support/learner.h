/* What teaches a model of a given prefix some images and saves what it learned, in C and in C++ alike. */
#ifndef LEARNER_H
#define LEARNER_H

#include <stdint.h>
#include <stdio.h>

static int put(void *file, const void *data, int size) {
    return fwrite(data, 1, (size_t)size, (FILE *)file) != (size_t)size;
}

#define LEARNER(prefix, PREFIX)                                                      \
    static void prefix##_step(int step) {                                            \
        int8_t *input = (int8_t *)prefix##_input(0);                                 \
        for (int i = 0; i < PREFIX##_INPUT_0_BYTES; i++)                             \
            input[i] = (int8_t)(i * (step + 3) % 251 - 125);                         \
        prefix##_train(step % 2, 0.05f);                                             \
    }                                                                                \
    static int prefix##_keep(const char *path) {                                     \
        FILE *file = fopen(path, "wb");                                              \
        return file == NULL || prefix##_save(put, file) != 0 || fclose(file) != 0;   \
    }

#endif
