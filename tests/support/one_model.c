/* One of the two models of two_models.cpp by itself: the arguments are the number of steps and a file to save to. */
#include <stdlib.h>

#include "learner.h"
#include "model.h"

LEARNER(model, MODEL)

int main(int count, char **words) {
    model_init();
    for (int step = 0; count == 3 && step < atoi(words[1]); step++) model_step(step);
    return model_keep(words[2]);
}
