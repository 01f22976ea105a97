/* Working memory of the kernels in packed arithmetic, as each lays it out. */
#include "smidgen_working.h"
#include "working.h"
#include "working_packed.h"

/* Channels at once, and the side of square maps that have their own kernel. */
enum { BLOCK = SMG_SLIDE_BLOCK, SIDE = 4 };

/* Bytes between and behind the weights of a pair of filters. */
static int64_t stream(int64_t length) { return 4 * (9 + length / 32); }

/* Windows in halfwords, a pair of filters likewise, and four windows in bytes; sums, where windows go in pieces. */
SMG_WORKING(smg_conv2d_s8) {
    const int64_t k = (int64_t)p->k_h * p->k_w * (p->x_c / p->groups), rows = call->by_row ? 1 : p->y_h;
    const int64_t little = rows == 1 && k <= SMG_ROOM_DEPTH, whole = smg_up(k, 4);
    const int64_t room = little ? SMG_ROW_ROOM + SMG_ROW_ROOM_DEEPER * k
                                : SMG_ROOM + SMG_ROOM_DEEPER * smg_least(k, SMG_ROOM_DEPTH);
    if (((room / whole - 8) / 2 & ~3) >= SMG_FEW_WINDOWS) {
        const int64_t most = ((room + (little ? 0 : SMG_ROOM_MORE)) / whole - 8) / 2;
        const int64_t pixels = smg_least(most, rows * p->y_w + 3) & ~3;
        return whole * (2 * pixels + 8) + stream(whole);
    }
    const int64_t sums = 4 * SMG_PIECE_PIXELS * SMG_PIECE_CHANNELS, element = 2 * SMG_PIECE_PIXELS + 8;
    const int64_t longest = (SMG_PIECE_ROOM - sums) / element & ~3, pieces = (k + longest - 1) / longest;
    const int64_t piece = smg_up((k + pieces - 1) / pieces, 4);
    const int64_t alone = p->y_w < 4 ? whole : 0; /* a pixel's window, put together as a whole */
    return smg_most(sums + piece * element + stream(piece), alone);
}

/* A depthwise convolution whose filters slide over strips, `rows` output rows per call. */
typedef struct {
    int64_t k, stride_h, stride_w, rows, width;
    int64_t gathers; /* channels of a block may lie apart */
} slides;

/* Words of the filters. */
static int64_t filters(const slides *of) {
    const int64_t phases = of->rows == 1 || of->stride_h % 2 == 0 ? 1 : 2;
    return BLOCK * phases * ((of->k + 1) / 2) * of->k;
}

/* Words of a strip, for every other column where windows step over one. */
static int64_t half(const slides *of, int64_t width) { return width + (of->k - 1) / of->stride_w; }

/* Output rows whose strips are held; none where there is no room for one. */
static int64_t band(const slides *of, int64_t width, int64_t room) {
    const int64_t columns = (width - 1) * of->stride_w + of->k;
    const int64_t left = room / 4 - filters(of) - of->k * of->k - (of->gathers ? 2 * columns : 0);
    const int64_t strips = left / (half(of, width) * of->stride_w), held = 2 * (strips / BLOCK);
    if (of->rows == 1) return strips >= 2 * of->k;
    return held < of->k + 1 ? 0 : smg_least(of->rows, (held - of->k) / of->stride_h + 1);
}

/* Bytes that strips may fill. */
static int64_t slide_room(const slides *of, int64_t copied) {
    const int64_t single = of->rows == 1, tile = single ? SMG_SLIDE_ROW_TILE : SMG_SLIDE_TILE;
    const int64_t columns = (tile - 1) * of->stride_w + of->k;
    const int64_t kept = !single && columns <= SMG_SLIDE_KEPT / (4 * SMG_SLIDE_LANES) / of->k ? of->k : 1;
    return SMG_SLIDE_LANES * (4 * (of->k * of->k + kept * columns + tile) + copied);
}

/* Bytes used of the room: tiles narrow until enough rows are held; 0 where that never happens. */
static int64_t slide_bytes(const slides *of, int64_t room, int in_place) {
    int64_t width = of->width, tiles = 1, held;
    for (; !(held = band(of, width, room)); width = (of->width / ++tiles + 3) & ~3)
        if (width <= 4) return 0;
    if (in_place && (held != of->rows || width != of->width)) return 0;
    const int64_t strips = of->rows == 1 ? 2 * of->k : BLOCK * (((held - 1) * of->stride_h + of->k + 1) / 2);
    const int64_t words = half(of, width);
    return 4 * (filters(of) + strips * words * of->stride_w + of->k * of->k + (of->gathers ? 2 * words : 0));
}

/* Of maps of four by four: four channels and their filters, and taps put together. */
static int64_t square(int64_t k) { return 4 * BLOCK * (8 + 6 * k) + BLOCK * k * k; }

/* Of 3x3 windows over a single row: filters, strips for the widest tile that fits, and taps put together. */
static int64_t threes(int64_t stride, int64_t whole) {
    int64_t width = whole, tiles = 1, strips;
    for (;; width = (whole / ++tiles + 3) & ~3) {
        strips = 4 * BLOCK * ((width - 1) * stride + 3 + width * stride / 2 + 2);
        if (strips <= SMG_THREES_STRIPS || width <= 4) return strips + 4 * (7 * BLOCK + 9);
    }
}

static int is_side(int32_t h, int32_t w) { return h == SIDE && w == SIDE; }

/* Filters, strips, taps and columns put together; a copy of four channels where sliding cannot be in place. */
SMG_WORKING(smg_depthwise_s8) {
    const int64_t copied = smg_copy_bytes(p->x_h, p->x_w, 1, call), k = p->k_h;
    if (p->k_h != p->k_w || (k != 3 && k != 5 && k != 7) || p->stride_w > 2 || p->y_w < 4 || p->dilation_h != 1 ||
        p->dilation_w != 1)
        return BLOCK * copied;
    const slides of = {k, p->stride_h, p->stride_w, call->by_row ? 1 : p->y_h, p->y_w,
                       p->y_c != p->x_c || p->y_c % BLOCK};
    int64_t apart = slide_bytes(&of, slide_room(&of, 0), 0);
    if (of.rows == 1 && k == 3 && p->y_w % 4 == 0 && !of.gathers) apart = smg_most(apart, threes(p->stride_w, p->y_w));
    if (is_side(p->x_h, p->x_w) && is_side(p->y_h, p->y_w) && k < 7 && !of.gathers) apart = smg_most(apart, square(k));
    const int64_t in_place = copied ? slide_bytes(&of, slide_room(&of, copied), 1) : 0;
    return smg_most(smg_most(apart, in_place), BLOCK * copied);
}

/* Computed as a convolution: sums, weights of two columns, gradients in halfwords, and columns in bytes. */
static int64_t grad_tiles(int64_t depth, int64_t pixels) {
    if (pixels % 4 || depth % 4 || depth > SMG_GRAD_DEEPEST) return 0;
    const int64_t part = smg_least(pixels, SMG_GRAD_WIDENED / depth & ~3);
    return 4 * SMG_COLUMNS * part + 4 * depth + stream(depth) + 2 * part * depth + SMG_COLUMNS * depth;
}

/* Where most outputs are masked, dot products: sums, columns of weights, and gradients in halfwords. */
SMG_WORKING(smg_conv2d_grad_g8) {
    const int64_t length = smg_up(p->y_c, SMG_MASKED_STRETCH), pixels = (int64_t)p->y_h * p->y_w;
    if (!smg_is_pixelwise(p) || p->x_c % SMG_COLUMNS || pixels > SMG_MASKED_LARGEST) return 0;
    if (!call->masked) return grad_tiles(p->y_c, pixels);
    const int64_t most = smg_most(1, smg_least(SMG_MASKED_PIXELS, SMG_MASKED_WIDENED / length));
    const int64_t parts = (pixels + most - 1) / most, part = (pixels + parts - 1) / parts;
    return part * (4 * SMG_COLUMNS + 2 * length) + 2 * SMG_MASKED_LANES * length;
}

/* Sums, filters and strips where filters slide; of eight channels weights and gradients in halfwords, spread and bordered
 * with zeros; or as in portable C. */
SMG_WORKING(smg_depthwise_grad_g8) {
    const int64_t same = p->x_h == p->y_h && p->x_w == p->y_w, elements = (int64_t)p->x_h * p->x_w, k = p->k_w;
    if (p->x_c != p->y_c || p->x_c % SMG_COLUMNS || p->dilation_h != 1 || p->dilation_w != 1 || k > SMG_SPREAD_WIDEST ||
        elements > (same ? SMG_SPREAD_LARGEST : SMG_SPREAD_LARGEST_APART))
        return smg_copy_bytes(p->y_h, p->y_w, SMG_COPIED, call);
    if (same && is_side(p->x_h, p->x_w) && p->k_h == k && (k == 3 || k == 5))
        return 4 * SIDE * SIDE * SMG_COLUMNS + square(k);
    const int slide = p->k_h == k && (k == 3 || k == 5 || k == 7) && p->stride_h == 1 && p->stride_w == 1;
    if (slide && p->x_w >= 4 && elements >= SMG_GRAD_LEAST && elements <= SMG_GRAD_ELEMENTS) {
        const int64_t weights = 2 * SMG_COLUMNS * ((k + 1) / 2) * k;
        const int64_t strips = (p->x_h + k) / 2 * BLOCK * (p->x_w + k - 1);
        return 4 * (elements * SMG_COLUMNS + weights + strips + k * k);
    }
    return 2 * SMG_COLUMNS * (p->k_h * smg_up(k, 2) + p->y_h * (p->x_w + k));
}
