/* Depthwise filters over maps of four by four: see squares.h. */
#include "squares.h"

#include "noinline.h"
#include "packed.h"
#include "working_packed.h"

enum { BLOCK = SMG_SLIDE_BLOCK, MAP = 8 };

static int32_t words_of(int32_t k) { return MAP + SMG_SQUARE_ROWS * k; }

/* The lists of filters whose taps are `step` bytes apart from w on. */
static SMG_SHORT void list_filters(smg_square *s, const int8_t *w, int32_t step) {
    static const int8_t none[BLOCK];
    const int32_t k = s->k, on = s->turned ? -step : step, row = k * on, apart = 4 * words_of(k);
    const int8_t *at = s->turned ? w + (k * k - 1) * step : w;
    uint32_t *to = s->words + MAP + (SMG_SQUARE_ROWS - k - 1) / 2 * k;
    for (int32_t i = -1; i < k; i++, to += k) {
        const int32_t a = i >= 0, b = i + 1 < k;
        const smg_columns list = {a ? at + i * row : none, b ? at + (i + 1) * row : none, a ? on : 0, b ? on : 0,
                                  0, to, apart, k, SMG_PAIR};
        s->list[3 + i] = list;
    }
}

void smg_begin_square(smg_square *s, const int8_t *x, int32_t zero) {
    const int32_t apart = 4 * words_of(s->k), step = s->channels, row = SMG_SQUARE_SIDE * step;
    for (int32_t i = 0; i < 2; i++, x += 2 * row) {
        const smg_columns list = {x, x + row, step, step, smg_both(-zero), s->words + i * SMG_SQUARE_SIDE, apart,
                                  SMG_SQUARE_SIDE, SMG_PAIR};
        s->list[i] = list;
    }
    for (int32_t i = 0; i < BLOCK * words_of(s->k); i++) s->words[i] = 0;
    list_filters(s, s->w.data, s->channels);
}

/* Put four channels' taps together where some are trained; 0 where none are. */
static SMG_SHORT int32_t gather_taps(const smg_square *s, int32_t c) {
    int32_t any = 0;
    for (int32_t i = 0; i < s->w.count; i++) {
        const int32_t lane = s->w.channel[i] - c;
        if (lane < 0 || lane >= BLOCK) continue;
        for (int32_t t = 0; t < s->k * s->k; t++) {
            if (!any) __builtin_memcpy(s->taps + t * BLOCK, s->w.data + t * s->channels + c, BLOCK);
            s->taps[t * BLOCK + lane] = s->w.trained[t * s->w.count + i];
        }
        any = 1;
    }
    return any;
}

void smg_pack_square(smg_square *s, int32_t c) {
    const int32_t taps = gather_taps(s, c), filters = s->k + 1;
    smg_pack_columns(s->list, taps ? 2 : 2 + filters, c);
    if (!taps) return;
    list_filters(s, s->taps, BLOCK);
    smg_pack_columns(s->list + 2, filters, 0);
    list_filters(s, s->w.data, s->channels);
}

void smg_depthwise_squares(const smg_depthwise_s8_params *p, const int8_t *x, smg_weights w, const int32_t *b,
                           int8_t *y, void *scratch) {
    smg_square square = {p->k_w, 0, p->y_c, w, scratch, (int8_t *)scratch + 4 * BLOCK * words_of(p->k_w), {{0}}};
    smg_begin_square(&square, x, p->x_zero);
    for (int32_t c = 0; c < p->y_c; c += BLOCK) {
        smg_squares job = {square.words, 4 * words_of(p->k_w), b + c, p->multiplier + c, p->shift + c, y + c,
                           BLOCK, p->y_c, 2 * p->y_zero + 1, p->k_w == 5, 1};
        smg_pack_square(&square, c);
        smg_run_squares(&job);
    }
}
