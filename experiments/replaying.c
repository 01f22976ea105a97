/* What replay costs on a board: does as each request says, over flash that is pretended in SRAM.
 *
 * i: as after a reset, o: open the ring, t: a step, k: a step whose latent is kept, r: a step on what was kept. The
 * answer is the ring's. */
#include "model_replay.h"

enum { SECTOR = 4096, SECTORS = 8 };

#include "asked.h"

static smg_replay ring;

static void read_row(void *context, void *row, int index) {
    (void)context;
    for (int i = 0; i < ROW_BYTES; i++) ((int8_t *)row)[i] = (int8_t)(index * i);
}

static int32_t serve(char request) {
    static const smg_flash flash = {erase, program, read, 0, SECTOR, 4};
    const smg_region region = {"replay", 0, SECTORS};
    float loss = 0;
    switch (request) {
    case 'o': return smg_replay_open(&ring, &flash, region, (smg_latents)MODEL_KEPT(1));
    case 'i': model_init(); break;
    case 't': loss = model_train(1, 0.01f); break;
    case 'k': loss = model_train_kept(&ring, 1, 0.01f); break;
    case 'r': return model_replay_kept(&ring, 0.01f, &loss);
    }
    return loss < 0;
}

int main(void) {
    model_init();
    model_source(read_row, 0);
    answer_all();
    return 0;
}
