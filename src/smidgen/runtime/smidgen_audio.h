/* Sound -> a network's input: log-mel features, or their DCT, frame by frame while the samples come.
 *
 * Integers throughout, no libraries; docs/internals/audio.md says what each step computes. */
#ifndef SMIDGEN_AUDIO_H
#define SMIDGEN_AUDIO_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A frame is made of the last `window` samples, every `hop`; `size` is the Fourier transform's. Features become int8:
 * times multiplier * 2^-shift, rounded, moved by zero. */
typedef struct {
    int32_t window, hop, size, bands, coefficients; /* no coefficients: the bands themselves */
    int32_t bins;                                   /* of the transform that count */
    int32_t frames, across;                         /* of an input, which may hold them side by side */
    int32_t multiplier, shift, zero;
    int64_t offset;          /* under the logarithm, * 2^62 */
    const int32_t *hann;     /* Q30, up to the middle of a window */
    const int32_t *turns;    /* Q30, cosine and sine of -2 pi k / size */
    const uint16_t *first;   /* each band's first bin */
    const uint16_t *count;   /* and how many it has */
    const uint16_t *weights; /* Q16, band after band */
    const uint16_t *logs;    /* Q15, log2 of 1 to 2 */
    const int16_t *mix;      /* Q14, the DCT's cosines */
} smg_log_mel_s8_params;

/* What was heard: the samples of the frame under way, and the features of the last `frames` frames as a ring. */
typedef struct {
    int16_t *samples; /* [window] */
    int8_t *features; /* [frames][coefficients or bands] */
    int32_t *scratch; /* [size] */
    int32_t held;     /* samples there are */
    int32_t next;     /* the frame of the ring to be written next */
} smg_heard;

/* The features of one window of samples. */
void smg_log_mel_s8(const smg_log_mel_s8_params *p, const int16_t *samples, int8_t *y, int32_t *scratch);

/* As if there had been silence up to now. */
void smg_hear_silence(const smg_log_mel_s8_params *p, smg_heard *heard);

/* Take so many samples more. */
void smg_hear(const smg_log_mel_s8_params *p, smg_heard *heard, const int16_t *samples, int32_t count);

/* Row `index` of the input that the last frames make, the oldest first. */
void smg_heard_row(const smg_log_mel_s8_params *p, const smg_heard *heard, int8_t *row, int32_t index);

#ifdef __cplusplus
}
#endif

#endif
