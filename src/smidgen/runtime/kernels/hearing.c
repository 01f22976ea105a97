/* Samples as they come -> frames, of which the last ones are kept. */
#include "smidgen_audio.h"

static int32_t features(const smg_log_mel_s8_params *p) { return p->coefficients ? p->coefficients : p->bands; }

static void frame(const smg_log_mel_s8_params *p, smg_heard *heard) {
    smg_log_mel_s8(p, heard->samples, heard->features + heard->next * features(p), heard->scratch);
    heard->next = heard->next + 1 < p->frames ? heard->next + 1 : 0;
}

void smg_hear_silence(const smg_log_mel_s8_params *p, smg_heard *heard) {
    for (int32_t i = 0; i < p->window; i++) heard->samples[i] = 0;
    heard->held = heard->next = 0;
    frame(p, heard);
    for (int32_t i = features(p); i < p->frames * features(p); i++)
        heard->features[i] = heard->features[i - features(p)];
}

void smg_hear(const smg_log_mel_s8_params *p, smg_heard *heard, const int16_t *samples, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        heard->samples[heard->held++] = samples[i];
        if (heard->held < p->window) continue;
        frame(p, heard);
        heard->held = p->window - p->hop;
        for (int32_t k = 0; k < heard->held; k++) heard->samples[k] = heard->samples[k + p->hop];
    }
}

void smg_heard_row(const smg_log_mel_s8_params *p, const smg_heard *heard, int8_t *row, int32_t index) {
    const int32_t count = p->across ? p->frames : features(p);
    for (int32_t i = 0; i < count; i++) {
        const int32_t at = (p->across ? i : index) + heard->next, feature = p->across ? index : i;
        row[i] = heard->features[(at < p->frames ? at : at - p->frames) * features(p) + feature];
    }
}
