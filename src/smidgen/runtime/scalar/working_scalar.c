/* Working memory of the kernels for cores without packed arithmetic, as each lays it out. */
#include "smidgen_working.h"
#include "working.h"
#include "working_gradients.h"
#include "working_scalar.h"

/* Windows as words, a filter as words or four as bytes, and sums: of more channels where windows go in pieces. */
SMG_WORKING(smg_conv2d_s8) {
    const int64_t k = (int64_t)p->k_h * p->k_w * (p->x_c / p->groups), rows = call->by_row ? 1 : p->y_h;
    const int64_t row_room = smg_least(SMG_WINDOW_ROOM, SMG_WINDOW_ROW_ROOM + SMG_WINDOW_ROW_DEEPER * k);
    int64_t length = smg_up(k, 4), tiles = smg_up(rows * p->y_w, SMG_TILE) / SMG_TILE, kept = SMG_CHANNELS;
    const int64_t fit = (rows == 1 ? row_room : SMG_WINDOW_ROOM) / (4 * SMG_TILE * length);
    if (fit >= smg_least(2, tiles)) {
        tiles = smg_least(fit, tiles);
    } else {
        tiles = smg_least(SMG_PIECE_TILES, tiles);
        const int64_t most = SMG_PIECE_ROOM / (4 * SMG_TILE) / tiles, pieces = (k + most - 1) / most;
        length = smg_up((k + pieces - 1) / pieces, 4);
        kept = SMG_KEPT_CHANNELS;
    }
    return 4 * (tiles * SMG_TILE * (length + kept) + length);
}

/* Strips of a depthwise channel: columns under a window, phases of columns, and input rows under one output row. */
typedef struct {
    int64_t across, phases, window, stride_h, stride_w;
} strips;

/* Input rows under `band` rows of outputs. */
static int64_t high(const strips *of, int64_t band) { return (band - 1) * of->stride_h + of->window; }

/* Words of the strips for some columns and rows of outputs. */
static int64_t words(const strips *of, int64_t columns, int64_t band) {
    return (columns + of->across / of->stride_w) * of->phases * high(of, band);
}

/* Words of sums, of strips, and of three that say where each strip comes from. */
static int64_t need(const strips *of, int64_t columns, int64_t band) {
    return columns * band + words(of, columns, band) + 3 * of->phases * high(of, band);
}

/* Taps with their distances, sums and strips: of the whole channel where the output may take its place. */
SMG_WORKING(smg_depthwise_s8) {
    const int64_t across = (int64_t)(p->k_w - 1) * p->dilation_w, rows = call->by_row ? 1 : p->y_h;
    const int64_t window = (int64_t)(p->k_h - 1) * p->dilation_h + 1, whole = smg_up(p->y_w, SMG_TILE);
    const strips of = {across, smg_least(p->stride_w, across + 1), window, p->stride_h, p->stride_w};
    int64_t columns = whole, band = rows;
    while (columns > SMG_TILE && words(&of, columns, 1) > SMG_STRIP_WORDS) columns = smg_up(columns / 2, SMG_TILE);
    while (band > 1 && words(&of, columns, band) > SMG_STRIP_WORDS) band--;
    const int64_t apart = need(&of, columns, band);
    return 4 * (2 * p->k_h * p->k_w + (call->in_place ? smg_most(apart, need(&of, whole, rows)) : apart));
}

/* Behind a mask, dot products: a column of weights, and pixels' gradients, in halfwords. */
SMG_WORKING(smg_conv2d_grad_g8) {
    if (!smg_is_pixelwise(p) || !call->masked) return 0;
    const int64_t length = smg_up(p->y_c, SMG_MASKED_STRETCH), pixels = (int64_t)p->y_h * p->y_w;
    const int64_t most = smg_most(1, smg_least(SMG_MASKED_WIDENED / length, SMG_MASKED_PIXELS));
    const int64_t parts = (pixels + most - 1) / most;
    return 2 * length * (1 + (pixels + parts - 1) / parts);
}

/* Where rows lie; a channel's weights and gradients, a word for each of a row's; or as in portable C. */
SMG_WORKING(smg_depthwise_grad_g8) {
    const int64_t words = (int64_t)p->y_h * (p->x_w + p->k_w), same = p->y_h == p->x_h && p->y_w == p->x_w;
    if (p->x_c != p->y_c || p->dilation_h != 1 || p->dilation_w != 1 || !(same || words <= SMG_PLANE_APART))
        return smg_copy_bytes(p->y_h, p->y_w, SMG_COPIED, call);
    return 4 * (3 * p->x_h + p->k_h * ((p->k_w + 1) / 2) + words);
}
