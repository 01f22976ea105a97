/* Runs the model on recorded inputs and compares with recorded outputs: the file named first. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "model.h"
#include "sizes.h" /* RUNS, LARGEST, and the bytes of each tensor */

static uint8_t expected[LARGEST];

static int run(FILE *file) {
    int wrong = 0;
    for (int i = 0; i < MODEL_INPUTS; i++)
        if (fread(model_input(i), 1, input_bytes[i], file) != input_bytes[i]) return 1;
    model_run();
    for (int i = 0; i < MODEL_OUTPUTS; i++) {
        if (fread(expected, 1, output_bytes[i], file) != output_bytes[i]) return 1;
        if (memcmp(expected, model_output(i), output_bytes[i]) != 0) {
            printf("output %d differs\n", i);
            wrong = 1;
        }
    }
    return wrong;
}

int main(int count, char **arguments) {
    FILE *file = count == 2 ? fopen(arguments[1], "rb") : 0;
    int wrong = 0;
    if (!file) return 2;
    model_init();
    for (int i = 0; i < RUNS; i++) wrong |= run(file);
    fclose(file);
    return wrong;
}
