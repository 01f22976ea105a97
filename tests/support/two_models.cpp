// Two models in one program learn turn by turn: the arguments are the number of steps and two files to save to.
#include <stdlib.h>

#include "kws.h"
#include "learner.h"
#include "vww.h"

LEARNER(kws, KWS)
LEARNER(vww, VWW)

int main(int, char **words) {
    kws_init();
    vww_init();
    for (int step = 0; step < atoi(words[1]); step++) {
        kws_step(step);
        vww_step(step);
    }
    return kws_keep(words[2]) + vww_keep(words[3]);
}
