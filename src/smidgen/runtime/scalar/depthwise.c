/* Depthwise convolution: one channel at a time, its input laid out as strips of words under which its filter slides.
 *
 * A strip is a row of the input with what lies outside the map on either side. Where windows step over columns, it is
 * of columns as far apart, so that neighbouring outputs always find neighbouring words. Nothing of the channel is read
 * again once its strips are laid out: the output may take its place. */
#include "smidgen.h"

#include "arithmetic.h"
#include "scaling.h"
#include "slide.h"
#include "strips.h"
#include "window.h"
#include "working_scalar.h"

/* Rows and columns of outputs whose strips are held at once, and the strips. */
typedef struct {
    int32_t band, wide;         /* outputs */
    int32_t high, words, down;  /* input rows, words of a strip, and of all strips of a row */
    smg_tap *taps;              /* [tap] */
    uint32_t *sums;             /* [row][column] */
    int32_t *held;              /* [row][column modulo stride][word] */
    smg_strip *strips;          /* those of them that are inside the map */
} layout;

static inline int32_t up(int32_t x) { return (x + SMG_TILE - 1) & -SMG_TILE; }

/* Of `wide` columns of outputs. */
static inline void measure(const smg_depthwise_s8_params *p, int32_t wide, layout *of) {
    const int32_t across = (p->k_w - 1) * p->dilation_w;
    of->wide = wide;
    of->words = wide + (p->stride_w == 1 ? across : across / p->stride_w);
    of->down = of->words * smg_min(p->stride_w, across + 1);
}

/* As many rows as there is room for; columns are halved where there is room for none. */
static inline layout lay_out(const smg_depthwise_s8_params *p, int32_t rows, int32_t in_place, void *scratch) {
    const int32_t window = (p->k_h - 1) * p->dilation_h + 1;
    layout of;
    measure(p, up(p->y_w), &of);
    while (!in_place && of.wide > SMG_TILE && of.down * window > SMG_STRIP_WORDS) measure(p, up(of.wide / 2), &of);
    of.band = rows;
    while (!in_place && of.band > 1 && of.down * ((of.band - 1) * p->stride_h + window) > SMG_STRIP_WORDS) of.band--;
    of.high = (of.band - 1) * p->stride_h + window;
    of.taps = scratch;
    of.sums = (uint32_t *)(of.taps + p->k_h * p->k_w);
    of.held = (int32_t *)(of.sums + of.band * of.wide);
    of.strips = (smg_strip *)(of.held + of.high * of.down);
    return of;
}

/* Where taps lie in the strips, the same for every channel. */
static void place_taps(const smg_depthwise_s8_params *p, const layout *of) {
    smg_tap *tap = of->taps;
    for (int32_t i = 0, at = 0; i < p->k_h; i++) {
        for (int32_t j = 0, phase = 0, word = 0; j < p->k_w; j++, tap++) {
            const int32_t here = 4 * (i * p->dilation_h * of->down + phase * of->words + word);
            if (tap > of->taps) tap[-1].onward = here - at - 4 * SMG_TILE;
            at = here;
            for (phase += p->dilation_w; phase >= p->stride_w; phase -= p->stride_w) word++;
        }
    }
    tap[-1].onward = 0;
}

/* The weights of output channel n, of `apart` channels; gives their sum. */
static int32_t lay_weights(const int8_t *w, int32_t apart, smg_tap *tap, const smg_tap *end) {
    int32_t total = 0;
    for (; tap < end; tap++, w += apart) {
        tap->w = *w;
        total += *w;
    }
    return total;
}

/* Clear the strips of `high` input rows from `top` and of columns from `left` on, and list what of them is inside the
 * map; gives the end of the list. */
static smg_strip *list_strips(const smg_depthwise_s8_params *p, const layout *of, smg_map x, int32_t top, int32_t left,
                              int32_t high) {
    const int32_t apart = p->stride_w, row_bytes = p->x_w * p->x_c;
    smg_strip *strip = of->strips;
    for (int32_t i = 0; i < high * of->down; i++) of->held[i] = p->x_zero;
    for (int32_t f = 0; f * of->words < of->down; f++) {
        const smg_taps inside = smg_taps_inside(left + f, of->words, apart, p->x_w);
        if (inside.from >= inside.to) continue;
        for (int32_t r = smg_max(-top, 0); r < smg_min(high, p->x_h - top); r++, strip++) {
            strip->from = smg_row(x, top + r, row_bytes) + (left + f + inside.from * apart) * p->x_c;
            strip->to = of->held + r * of->down + f * of->words + inside.from;
            strip->count = inside.to - inside.from;
        }
    }
    return strip;
}

/* A band of outputs: `rows` rows from oy and columns from ox on, every channel. */
static void slide(const smg_depthwise_s8_params *p, const layout *of, smg_map x, smg_weights w, const int32_t *b,
                  smg_map y, int32_t oy, int32_t ox, int32_t rows) {
    const smg_tap *end = of->taps + p->k_h * p->k_w;
    const int32_t high = of->high - (of->band - rows) * p->stride_h, columns = smg_min(of->wide, p->y_w - ox);
    const int32_t together = rows == 1 || (columns == p->y_w && columns == of->wide && oy + rows <= y.rows) ? rows : 1;
    const int32_t times = p->y_c == p->x_c ? 1 : p->y_c / p->x_c;
    const int32_t run = p->stride_w == 1 && p->dilation_w == 1 ? p->k_w : 1;
    const smg_strip *last = list_strips(p, of, x, oy * p->stride_h - p->pad_h, ox * p->stride_w - p->pad_w, high);
    int8_t *to = smg_row(y, oy, p->y_w * p->y_c) + ox * p->y_c;
    for (int32_t n = 0, c = 0, time = 0, t = 0; n < p->y_c; n++) {
        const int32_t trained = t < w.count && w.channel[t] == n;
        const int32_t total = trained ? lay_weights(w.trained + t, w.count, of->taps, end)
                                      : lay_weights(w.data + n, p->y_c, of->taps, end);
        const smg_scaling scaling =
            smg_scaling_of(p->multiplier[n], p->shift[n], b[n], p->k_h * p->k_w, p->y_zero, p->lo, p->hi);
        smg_sliding job = {of->sums, of->held, of->taps, end, of->wide / SMG_TILE, rows, 4 * p->stride_h * of->down,
                           (uint32_t)b[n] - (uint32_t)(p->x_zero * total), run};
        if (time == 0) smg_pick(of->strips, last, c, p->stride_w * p->x_c);
        smg_slide(&job);
        for (int32_t r = 0; r < rows; r += together)
            smg_scale_sums((r ? smg_row(y, oy + r, p->y_w * p->y_c) + ox * p->y_c : to) + n, p->y_c,
                           of->sums + r * of->wide, together * columns, &scaling);
        t += trained;
        if (++time == times) {
            time = 0;
            c++;
        }
    }
}

void smg_depthwise_s8(const smg_depthwise_s8_params *p, const smg_map *x, const smg_weights *w, const int32_t *b,
                      const smg_map *y, int32_t y0, int32_t y1, void *scratch) {
    const layout of = lay_out(p, y1 - y0, x->data == y->data, scratch);
    place_taps(p, &of);
    for (int32_t oy = y0; oy < y1; oy += of.band)
        for (int32_t ox = 0; ox < p->y_w; ox += of.wide)
            slide(p, &of, *x, *w, b, *y, oy, ox, smg_min(of.band, y1 - oy));
}
