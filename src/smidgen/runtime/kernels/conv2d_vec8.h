/* 2-D convolution in vectors of eight: four pixels at a time against sixteen channels' weights, or eight against eight.
 *
 * Input rows under a run of output pixels are laid out in 16 bits, the zero point taken off, zeros outside the map, so
 * that every row of a window is twos that follow each other: a product of two and a sum are exact in 32 bits. Weights
 * are packed once a call, on the stack, as many as it holds. */
#ifndef SMIDGEN_CONV2D_VEC8_H
#define SMIDGEN_CONV2D_VEC8_H

#include "vec8.h"
#include "window.h"

#if defined(SMG_VEC8)
/* Vectors of packed weights, elements of rows, of a pixel's step and sets of filters that the stack holds. */
enum { SMG_VEC8_WEIGHTS = 2048, SMG_VEC8_ROWS = 8192, SMG_VEC8_STEP = 1024, SMG_VEC8_FILTERS = 64 };

/* Sets of eight channels that are computed together. */
enum { SMG_VEC8_SETS = SMG_VEC8_WIDE / 4 };

/* How windows lie: `rows` rows of `twos` twos of inputs, `apart` elements from each other, and pixels `step`. */
typedef struct {
    int32_t rows, twos, length; /* inputs of a row */
    int32_t step, apart;
    int joined; /* the map's rows are one */
} smg_vec8_shape;

/* Output channels of one or two sets, and what belongs to them. */
typedef struct {
    int32_t first, count, sets;
    smg_vec8 start[2];
    smg_vec8_scale scales[2];
    const smg_vec8 *w; /* [two][set] */
} smg_vec8_filters;

static inline smg_vec8_shape smg_vec8_shape_of(const smg_conv2d_s8_params *p, smg_map x) {
    smg_vec8_shape s = {p->k_h, (p->k_w * p->x_c + 1) / 2, p->k_w * p->x_c, p->stride_w * p->x_c, 0, 0};
    s.apart = SMG_VEC8_ROWS / s.rows;
    s.joined = p->k_h * p->k_w * p->stride_h * p->stride_w == 1 && p->x_h == p->y_h && p->x_w == p->y_w &&
               p->pad_h + p->pad_w == 0 && x.rows >= p->x_h;
    return s;
}

/* Eight rows of eight words, turned: words of all rows in the first, and so on. */
SMG_VEC8_PART void smg_vec8_turn(smg_bytes *x) {
    smg_bytes a[8], b[8];
    for (int32_t n = 0; n < 4; n++) {
        a[n] = smg_bytes_low16(x[2 * n], x[2 * n + 1]);
        a[n + 4] = smg_bytes_high16(x[2 * n], x[2 * n + 1]);
    }
    for (int32_t n = 0; n < 8; n += 2) { /* words 0-1 of rows 0-3, 2-3; of rows 4-7; and so on */
        b[n] = smg_bytes_low32(a[n], a[n + 1]);
        b[n + 1] = smg_bytes_high32(a[n], a[n + 1]);
    }
    for (int32_t n = 0; n < 8; n++) {
        const smg_bytes rows = b[n / 4 * 4 + n / 2 % 2], others = b[n / 4 * 4 + n / 2 % 2 + 2];
        x[n] = n % 2 ? smg_bytes_high64(rows, others) : smg_bytes_low64(rows, others);
    }
}

/* to[i / 2 * sets][channel][i % 2] = w[channel][i] for i < count, zeros after the last, of up to eight rows of weights
 * that are k apart. */
static inline void smg_vec8_pack(const int8_t *w, int32_t k, int32_t count, int32_t channels, smg_vec8 *to, int32_t sets) {
    for (int32_t i = 0; i < count; i += 16) {
        const int32_t some = smg_min(16, count - i);
        smg_bytes rows[8];
        for (int32_t n = 0; n < 8; n++) {
            int8_t bytes[16] = {0};
            if (n < channels && some == 16)
                rows[n] = smg_bytes_load16(w + n * k + i);
            else {
                if (n < channels)
                    for (int32_t t = 0; t < some; t++) bytes[t] = w[n * k + i + t];
                rows[n] = smg_bytes_load16(bytes);
            }
        }
        smg_vec8_turn(rows);
        for (int32_t n = 0; 2 * n < some; n++) to[(i / 2 + n) * sets] = smg_vec8_wide(rows[n]);
    }
}

/* The trained channels' weights over the frozen ones, of eight output channels from `first` on. */
static inline void smg_vec8_overlay(const smg_conv2d_s8_params *p, const smg_vec8_shape *s, smg_weights w,
                                    int32_t first, int32_t count, smg_vec8 *to, int32_t sets) {
    const int32_t taps = p->k_h * p->k_w;
    for (int32_t t = 0; t < taps; t++)
        for (int32_t i = 0; i < w.count; i++) {
            const int32_t at = t / p->k_w * s->twos * 2 + t % p->k_w * p->x_c + w.channel[i];
            const int8_t *from = w.trained + (first * taps + t) * w.count + i;
            int16_t *lanes = (int16_t *)(to + at / 2 * sets) + at % 2;
            for (int32_t n = 0; n < count; n++) lanes[2 * n] = from[n * taps * w.count];
        }
}

static inline void smg_vec8_lay_filters(const smg_conv2d_s8_params *p, const smg_vec8_shape *s, smg_weights w,
                                        const int32_t *b, smg_vec8_filters *f, smg_vec8 *packed) {
    const int32_t k = s->rows * s->length;
    f->w = packed;
    for (int32_t m = 0; m < f->sets; m++) {
        const int32_t n = f->first + m * SMG_VEC8_LANES, count = smg_min(SMG_VEC8_LANES, f->first + f->count - n);
        for (int32_t i = 0; i < s->rows; i++)
            smg_vec8_pack(w.data + n * k + i * s->length, k, s->length, count, packed + i * s->twos * f->sets + m, f->sets);
        smg_vec8_overlay(p, s, w, n, count, packed + m, f->sets);
        f->start[m] = smg_vec8_some(b + n, count);
        f->scales[m] = smg_vec8_scale_of(p->multiplier + n, p->shift + n, count, p->y_zero);
    }
}

/* `count` elements in 16 bits, the zero point taken off; up to 15 more are written. */
static inline void smg_vec8_widen(const int8_t *from, int32_t count, int32_t zero, int16_t *to) {
    const smg_vec8 zeros = smg_vec8_words((int16_t)zero);
    int32_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const smg_vec8 x = smg_vec8_wide(smg_bytes_load16(from + i));
        smg_vec8_store(to + i, smg_vec8_sub_words(x, zeros));
    }
    for (; i < count; i++) to[i] = (int16_t)(from[i] - zero);
}

static inline void smg_vec8_clear(int16_t *to, int32_t count) {
    for (int32_t i = 0; i < count; i++) to[i] = 0;
}

/* `taps` columns of row iy from column ix on. */
static inline void smg_vec8_lay_row(const smg_conv2d_s8_params *p, smg_map x, int32_t iy, int32_t ix, int32_t taps,
                                    int16_t *to) {
    const int32_t c = p->x_c;
    if (iy < 0 || iy >= p->x_h) {
        smg_vec8_clear(to, taps * c);
        return;
    }
    const smg_taps inside = smg_taps_inside(ix, taps, 1, p->x_w);
    const int8_t *from = smg_row(x, iy, p->x_w * c) + ix * c;
    smg_vec8_clear(to, inside.from * c);
    smg_vec8_widen(from + inside.from * c, (inside.to - inside.from) * c, p->x_zero, to + inside.from * c);
    smg_vec8_clear(to + inside.to * c, (taps - inside.to) * c);
}

/* All that so many pixels from (oy, ox) on look at. */
static inline void smg_vec8_lay_run(const smg_conv2d_s8_params *p, const smg_vec8_shape *s, smg_map x, int32_t oy,
                                    int32_t ox, int32_t pixels, int16_t *to) {
    if (s->joined) {
        smg_vec8_widen(x.data + (oy * p->x_w + ox) * p->x_c, pixels * p->x_c, p->x_zero, to);
        return;
    }
    for (int32_t i = 0; i < p->k_h; i++)
        smg_vec8_lay_row(p, x, oy * p->stride_h - p->pad_h + i * p->dilation_h, ox * p->stride_w - p->pad_w,
                         (pixels - 1) * p->stride_w + p->k_w, to + i * s->apart);
}

/* sums[pixel][set] of all vectors; the compiler knows how many sets. */
SMG_VEC8_PART void smg_vec8_sums(const smg_vec8_filters *f, const smg_vec8_shape *s, int32_t sets, const int16_t *x,
                                 smg_vec8 *acc) {
    const int32_t all = SMG_VEC8_WIDE / sets;
    const smg_vec8 *w = f->w;
    smg_vec8 sums[SMG_VEC8_WIDE];
    for (int32_t n = 0; n < SMG_VEC8_WIDE; n++) sums[n] = f->start[n % sets];
    for (int32_t r = 0; r < s->rows; r++, x += s->apart) {
        const int16_t *near = x, *far = x + 4 * s->step;
        for (int32_t i = 0; i < s->twos; i++, w += sets, near += 2, far += 2) {
            const smg_vec8 some = smg_vec8_held(w[0]), others = sets == 2 ? smg_vec8_held(w[1]) : some;
            for (int32_t n = 0; n < all; n++) {
                const smg_vec8 v = smg_vec8_pairs(n < 4 ? near + n * s->step : far + (n - 4) * s->step);
                for (int32_t m = 0; m < sets; m++)
                    sums[n * sets + m] = smg_vec8_multiply(sums[n * sets + m], v, m ? others : some);
            }
        }
    }
    for (int32_t n = 0; n < SMG_VEC8_WIDE; n++) acc[n] = sums[n];
}

/* Two pixels of up to sixteen channels that are stored. */
SMG_VEC8_PART void smg_vec8_store_two(int8_t *y, smg_vec8 x, int32_t count, int32_t pixels, int32_t y_c) {
    for (int32_t n = 0; n < 2 && n < pixels; n++, y += y_c) {
        const smg_bytes one = n ? smg_vec8_upper(x) : smg_vec8_lower(x);
        if (count == 2 * SMG_VEC8_LANES) {
            smg_bytes_store16(y, one);
        } else {
            smg_vec8_store8(y, one, SMG_VEC8_LANES);
            smg_vec8_store8(y + SMG_VEC8_LANES, smg_bytes_high64(one, one), count - SMG_VEC8_LANES);
        }
    }
}

/* All pixels of a run for one set of filters. */
SMG_VEC8_PART void smg_vec8_blocks(const smg_vec8_filters *f, const smg_vec8_shape *s, const smg_vec8_limits *limits,
                                   int32_t sets, int positive, const int16_t *x, int32_t pixels, int8_t *y, int32_t y_c) {
    const int32_t all = SMG_VEC8_WIDE / sets, some = 4 / sets; /* pixels */
    for (int32_t n = 0; n < pixels; n += all, x += all * s->step, y += all * y_c) {
        smg_vec8 acc[SMG_VEC8_WIDE];
        smg_vec8_sums(f, s, sets, x, acc);
        for (int32_t k = 0; k < SMG_VEC8_WIDE; k++) acc[k] = smg_vec8_scaled(f->scales + k % sets, acc[k], positive);
        for (int32_t k = 0; k < SMG_VEC8_SETS && n + k * some < pixels; k++) {
            const smg_vec8 out = smg_vec8_bytes(limits, acc[4 * k], acc[4 * k + 1], acc[4 * k + 2], acc[4 * k + 3]);
            if (sets == 1)
                smg_vec8_store_four(y + k * some * y_c, out, f->count, pixels - n - k * some, y_c);
            else
                smg_vec8_store_two(y + k * some * y_c, out, f->count, pixels - n - k * some, y_c);
        }
    }
}

#define SMG_VEC8_BLOCKS(name, sets, positive)                                                                           \
    SMG_VEC8_LOOP smg_vec8_blocks_##name(const smg_vec8_filters *f, const smg_vec8_shape *s,                            \
                                         const smg_vec8_limits *limits, const int16_t *x, int32_t pixels, int8_t *y,    \
                                         int32_t y_c) {                                                                 \
        smg_vec8_blocks(f, s, limits, sets, positive, x, pixels, y, y_c);                                               \
    }
SMG_VEC8_BLOCKS(one, 1, 1)
SMG_VEC8_BLOCKS(two, 2, 1)
SMG_VEC8_BLOCKS(one_usual, 1, 0)
SMG_VEC8_BLOCKS(two_usual, 2, 0)

/* Rows [y0, y1) of the filters given. */
static inline void smg_vec8_convolve(const smg_conv2d_s8_params *p, const smg_vec8_shape *s, smg_map x,
                                     const smg_vec8_filters *f, int32_t count, smg_map y, int32_t y0, int32_t y1,
                                     int16_t *rows) {
    const smg_vec8_limits limits = smg_vec8_limit(p->y_zero, p->lo, p->hi);
    const int32_t most = 1 + (s->apart - 2 * s->twos) / s->step;
    for (int32_t oy = y0, ox = 0, pixels; oy < y1; oy += (ox + pixels) / p->y_w, ox = (ox + pixels) % p->y_w) {
        int8_t *to = smg_row(y, oy, p->y_w * p->y_c) + ox * p->y_c;
        pixels = smg_min(most, s->joined ? (y1 - oy) * p->y_w - ox : p->y_w - ox);
        smg_vec8_lay_run(p, s, x, oy, ox, pixels, rows);
        for (int32_t i = 0; i < count; i++)
            if (SMG_VEC8_SETS == 1 || f[i].sets == 1)
                (limits.positive ? smg_vec8_blocks_one : smg_vec8_blocks_one_usual)(f + i, s, &limits, rows, pixels,
                                                                                    to + f[i].first, p->y_c);
            else
                (limits.positive ? smg_vec8_blocks_two : smg_vec8_blocks_two_usual)(f + i, s, &limits, rows, pixels,
                                                                                    to + f[i].first, p->y_c);
    }
}

/* The whole kernel; 0 where windows are no rows, shifts unusual, or weights more than the stack holds. */
static inline int smg_conv2d_vec8(const smg_conv2d_s8_params *p, smg_map x, smg_weights w, const int32_t *b, smg_map y,
                                  int32_t y0, int32_t y1) {
    const smg_vec8_shape s = smg_vec8_shape_of(p, x);
    const int32_t each = s.rows * s.twos;
    smg_vec8 packed[SMG_VEC8_WEIGHTS];
    int16_t rows[SMG_VEC8_ROWS + SMG_VEC8_WIDE * SMG_VEC8_STEP + 16]; /* pixels past a run are computed, too */
    smg_vec8_filters f[SMG_VEC8_FILTERS];
    if (p->groups != 1 || p->dilation_w != 1 || s.step > SMG_VEC8_STEP || 2 * s.twos > s.apart ||
        SMG_VEC8_SETS * each > SMG_VEC8_WEIGHTS || !smg_vec8_simple(p->shift, p->y_c))
        return 0;
    for (int32_t n = 0; n < p->y_c;) {
        int32_t count = 0, used = 0;
        for (; n < p->y_c && count < SMG_VEC8_FILTERS && used + SMG_VEC8_SETS * each <= SMG_VEC8_WEIGHTS; count++) {
            f[count].first = n;
            f[count].count = smg_min(SMG_VEC8_SETS * SMG_VEC8_LANES, p->y_c - n);
            f[count].sets = f[count].count > SMG_VEC8_LANES ? 2 : 1;
            smg_vec8_lay_filters(p, &s, w, b, f + count, packed + used);
            n += f[count].count;
            used += f[count].sets * each;
        }
        smg_vec8_convolve(p, &s, x, f, count, y, y0, y1, rows);
    }
    return 1;
}
#endif

#endif
