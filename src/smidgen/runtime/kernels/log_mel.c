/* The features of one window: Hann curve, Fourier transform, magnitudes, bands, logarithms, DCT. */
#include "smidgen_audio.h"

#include "arithmetic.h"

enum { ROOM = 29, TURN_BITS = 30, SUM_BITS = 62, LOG_BITS = 15, SEGMENT_BITS = 6 };

static int32_t bits(uint64_t x) {
    const uint32_t high = (uint32_t)(x >> 32);
    uint32_t word = high ? high : (uint32_t)x;
    int32_t count = high ? 32 : 0;
    for (int32_t step = 16; step; step >>= 1)
        if (word >> step) {
            word >>= step;
            count += step;
        }
    return count + (word != 0);
}

static int32_t hann(const smg_log_mel_s8_params *p, int32_t i) { return p->hann[smg_min(i, p->window - i)]; }

/* The window under its curve, halved so often that its magnitudes add up to at most ROOM bits; gives how often. */
static int32_t weigh(const smg_log_mel_s8_params *p, const int16_t *samples, int32_t *z) {
    uint64_t total = 0;
    for (int32_t i = 0; i < p->window; i++) {
        const uint32_t size = (uint32_t)(samples[i] < 0 ? -samples[i] : samples[i]);
        total += (uint64_t)size * (uint32_t)hann(p, i);
    }
    const int32_t right = smg_max(bits(total) - ROOM, 0);
    const int64_t half = ((int64_t)1 << right) >> 1;
    for (int32_t i = 0; i < p->window; i++) z[i] = (int32_t)(((int64_t)samples[i] * hann(p, i) + half) >> right);
    for (int32_t i = p->window; i < p->size; i++) z[i] = 0;
    return right;
}

/* Complex number i of n goes where the bits of i, reversed, say. */
static void reverse_bits(int32_t *z, int32_t n) {
    for (int32_t i = 0, j = 0; i < n; i++) {
        if (i < j) {
            const int32_t re = z[2 * i], im = z[2 * i + 1];
            z[2 * i] = z[2 * j];
            z[2 * i + 1] = z[2 * j + 1];
            z[2 * j] = re;
            z[2 * j + 1] = im;
        }
        int32_t bit = n >> 1;
        for (; j & bit; bit >>= 1) j ^= bit;
        j |= bit;
    }
}

static int32_t turned(int32_t a, int32_t cosine, int32_t b, int32_t sine) {
    return (int32_t)(((int64_t)a * cosine + (int64_t)b * sine + ((int64_t)1 << (TURN_BITS - 1))) >> TURN_BITS);
}

static void butterfly(int32_t *a, int32_t *b, int32_t re, int32_t im) {
    b[0] = a[0] - re;
    b[1] = a[1] - im;
    a[0] += re;
    a[1] += im;
}

/* The Fourier transform of n complex numbers in place: pairs, then fours, then eights. */
static void transform(int32_t *z, int32_t n, const int32_t *turns) {
    reverse_bits(z, n);
    for (int32_t half = 1; half < n; half *= 2) {
        for (int32_t i = 0; i < n; i += 2 * half) {
            int32_t *b = z + 2 * (i + half);
            butterfly(z + 2 * i, b, b[0], b[1]); /* not turned at all */
        }
        for (int32_t j = 1; j < half; j++) {
            const int32_t *turn = turns + 2 * j * (n / half);
            const int32_t cosine = turn[0], sine = turn[1];
            for (int32_t i = j; i < n; i += 2 * half) {
                int32_t *b = z + 2 * (i + half);
                butterfly(z + 2 * i, b, turned(b[0], cosine, b[1], -sine), turned(b[0], sine, b[1], cosine));
            }
        }
    }
}

/* The root of the 31 or 32 upper bits of re^2 + im^2. */
static int32_t magnitude(int32_t re, int32_t im) {
    const uint64_t power = (uint64_t)((int64_t)re * re) + (uint64_t)((int64_t)im * im);
    const int32_t shift = smg_max(bits(power) - 31, 0) / 2;
    uint32_t x = (uint32_t)(power >> (2 * shift)), root = 0;
    for (uint32_t bit = (uint32_t)1 << 30; bit; bit >>= 2) {
        const uint32_t tried = root + bit;
        root >>= 1;
        if (x >= tried) {
            x -= tried;
            root += bit;
        }
    }
    return (int32_t)(root << shift);
}

/* Even and odd samples were transformed as one: told apart, twice the magnitude of bin k goes to z[2k]. */
static void split(const smg_log_mel_s8_params *p, int32_t *z) {
    const int32_t n = p->size / 2;
    for (int32_t k = 1; k <= smg_min(n / 2, p->bins - 1) || (k <= n / 2 && n - k < p->bins); k++) {
        int32_t *a = z + 2 * k, *b = z + 2 * (n - k);
        const int32_t re = a[0] + b[0], im = a[1] - b[1], d_re = a[0] - b[0], d_im = a[1] + b[1];
        const int32_t cosine = p->turns[2 * k], sine = p->turns[2 * k + 1];
        const int32_t t_re = turned(d_im, cosine, d_re, sine), t_im = turned(d_im, sine, -d_re, cosine);
        if (n - k < p->bins) b[0] = magnitude(re - t_re, im - t_im);
        if (k < p->bins) a[0] = magnitude(re + t_re, im + t_im);
    }
}

/* log2 of x > 0, linear between the table's points. */
static int32_t logarithm(const uint16_t *table, uint64_t x) {
    const int32_t top = bits(x) - 1;
    const uint32_t fraction = (uint32_t)(x << (63 - top) >> 31); /* below the first bit; that one falls off */
    const uint16_t *point = table + (fraction >> (32 - SEGMENT_BITS));
    const int32_t rest = (int32_t)(fraction << SEGMENT_BITS >> 16);
    return (top << LOG_BITS) + point[0] + (((point[1] - point[0]) * rest) >> 16);
}

/* The logarithm of band i goes to z[2i + 1], between the magnitudes. */
static void sum_bands(const smg_log_mel_s8_params *p, int32_t *z, int32_t right) {
    const uint16_t *weight = p->weights;
    for (int32_t band = 0; band < p->bands; band++) {
        uint64_t sum = (uint64_t)(p->offset >> right);
        const int32_t *bin = z + 2 * p->first[band];
        for (int32_t i = 0; i < p->count[band]; i++) sum += (uint64_t)(uint32_t)bin[2 * i] * *weight++;
        z[2 * band + 1] = logarithm(p->logs, sum) - (SUM_BITS - right) * (1 << LOG_BITS);
    }
}

static int64_t feature(const smg_log_mel_s8_params *p, const int32_t *z, int32_t i) {
    if (!p->coefficients) return z[2 * i + 1];
    const int16_t *mix = p->mix + i * p->bands;
    int64_t sum = 0;
    for (int32_t band = 0; band < p->bands; band++) sum += (int64_t)z[2 * band + 1] * mix[band];
    return sum;
}

void smg_log_mel_s8(const smg_log_mel_s8_params *p, const int16_t *samples, int8_t *y, int32_t *scratch) {
    const int32_t features = p->coefficients ? p->coefficients : p->bands;
    const int32_t right = weigh(p, samples, scratch);
    transform(scratch, p->size / 2, p->turns);
    split(p, scratch);
    sum_bands(p, scratch, right);
    for (int32_t i = 0; i < features; i++) {
        const int64_t scaled = feature(p, scratch, i) * p->multiplier + ((int64_t)1 << (p->shift - 1));
        const int64_t moved = (scaled >> p->shift) + p->zero;
        y[i] = (int8_t)(moved < -128 ? -128 : moved > 127 ? 127 : moved);
    }
}
