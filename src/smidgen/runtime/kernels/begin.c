/* State as it begins, from tables in flash. */
#include "smidgen_training.h"

void smg_begin_state(uint8_t *state, const smg_initial *initial, int32_t count) {
    for (int32_t n = 0; n < count; n++) {
        const void *source = initial[n].from;
        const uint8_t *from = source;
        const int16_t *narrow = source;
        void *place = state + initial[n].to;
        int32_t *wide = place;
        uint8_t *to = place;
        if (initial[n].narrow)
            for (int32_t i = 0; i < initial[n].bytes / 4; i++) wide[i] = narrow[i];
        else
            for (int32_t i = 0; i < initial[n].bytes; i++) to[i] = from ? from[i] : initial[n].fill;
    }
}

void smg_list_state(uint8_t *state, const smg_listed *listed, int32_t count) {
    for (int32_t n = 0; n < count; n++) {
        void *place = state + listed[n].to;
        *(int32_t *)place = listed[n].number;
    }
}

void smg_gather_state(uint8_t *state, const smg_gathered *gathered, int32_t count) {
    for (int32_t n = 0; n < count; n++) {
        const int8_t *from = gathered[n].from;
        uint8_t *to = state + gathered[n].to;
        for (int32_t r = 0; r < gathered[n].rows; r++, from += gathered[n].channels)
            for (int32_t i = 0; i < gathered[n].count; i++) *to++ = (uint8_t)from[gathered[n].channel[i]];
    }
}
