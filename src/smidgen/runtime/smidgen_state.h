/* How the state of a program begins: what learns, and what is carried from run to run. */
#ifndef SMIDGEN_STATE_H
#define SMIDGEN_STATE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* State as it begins: `bytes` at `to` in its block, copied from flash or, where there is nothing to copy, all alike;
 * where `narrow`, they are numbers of 32 bits that flash has in 16. */
typedef struct {
    const void *from;
    int32_t to, bytes;
    uint8_t fill, narrow;
} smg_initial;

void smg_begin_state(uint8_t *state, const smg_initial *initial, int32_t count);

/* A number that 16 bits do not hold, and where in the block of state it lies. */
typedef struct {
    int32_t to, number;
} smg_listed;

void smg_list_state(uint8_t *state, const smg_listed *listed, int32_t count);

/* Trained channels, `count` of the `channels` in each row, begin as the frozen ones they are laid over. */
typedef struct {
    const int8_t *from;
    const int16_t *channel;
    int32_t to, rows, channels, count;
} smg_gathered;

void smg_gather_state(uint8_t *state, const smg_gathered *gathered, int32_t count);

#ifdef __cplusplus
}
#endif

#endif
