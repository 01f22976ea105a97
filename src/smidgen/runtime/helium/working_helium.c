/* Working memory of the kernels in vectors, as each lays it out. */
#include "smidgen_working.h"
#include "working.h"
#include "working_helium.h"

/* Channels of a vector, columns multiplied at once, and bytes of an int32 and of an address on the board. */
enum { CHANNELS = 16, COLUMNS = 4, WORD = 4, POINTER = 4 };

/* Whether every window is a pixel of the map. */
static int are_pixels(const smg_conv2d_s8_params *p) {
    return p->k_h == 1 && p->k_w == 1 && p->pad_h == 0 && p->pad_w == 0 && (p->y_h - 1) * p->stride_h < p->x_h &&
           (p->y_w - 1) * p->stride_w < p->x_w;
}

/* Four filters, packed and with what is trained of their channels, and windows, unless each is a pixel. */
SMG_WORKING(smg_conv2d_s8) {
    const int64_t k = (int64_t)p->k_h * p->k_w * (p->x_c / p->groups);
    const int64_t windows = are_pixels(p) ? 0 : smg_most(smg_least(SMG_WINDOW_ROOM / k, p->y_w), 1);
    return (k > SMG_UNPACKED ? COLUMNS * smg_up(k, CHANNELS) : 0) + (COLUMNS + windows) * k;
}

/* Rows' addresses, filters and rows of a block of channels: all of a row where the output may take its place. */
SMG_WORKING(smg_depthwise_s8) {
    const int64_t overlap = p->dilation_w == 1 && p->stride_w <= p->k_w, kept = (p->k_h - 1) * p->dilation_h + 1;
    const int64_t apart = overlap ? p->stride_w : p->k_w, more = p->k_w - apart; /* columns of a tile: apart * n + more */
    int64_t tile = p->y_w;
    while (!call->in_place && tile > 1 && kept * CHANNELS * (apart * tile + more) > SMG_FIELD) tile = (tile + 1) / 2;
    return p->k_h * POINTER + CHANNELS * (p->k_h * p->k_w + kept * (apart * tile + more));
}

/* Sums of sixteen channels and four columns of weights, for 1x1 convolutions. */
SMG_WORKING(smg_conv2d_grad_g8) {
    if (!smg_is_pixelwise(p) || p->x_c % 8 || p->x_c > SMG_WIDEST) return 0;
    const int64_t pixels = (int64_t)p->x_h * p->x_w, parts = (pixels + SMG_DOT_PIXELS - 1) / SMG_DOT_PIXELS;
    return (pixels + parts - 1) / parts * CHANNELS * WORD + COLUMNS * smg_up(p->y_c, CHANNELS);
}

/* Sums, rows' addresses, filters and rows of a block of channels; or as in portable C. */
SMG_WORKING(smg_depthwise_grad_g8) {
    if (p->x_c != p->y_c || p->x_c % 8 || p->dilation_h != 1 || p->dilation_w != 1 || p->pad_h < 0 || p->pad_w < 0)
        return smg_copy_bytes(p->y_h, p->y_w, SMG_COPIED, call);
    const int64_t kept = (p->k_h + p->stride_h - 1) / p->stride_h;
    const int64_t sums = smg_least(p->x_w, SMG_GRAD_TILE) * CHANNELS * WORD;
    const int64_t columns = (p->x_w - 1 + p->pad_w) / p->stride_w - p->pad_w / p->stride_w +
                            (p->k_w + p->stride_w - 1) / p->stride_w;
    return sums + kept * POINTER + CHANNELS * (p->k_h * p->k_w + kept * columns);
}

/* Of a 1x1 convolution sums of four outputs, and columns of both maps; else as in portable C. */
SMG_WORKING(smg_conv2d_weight_step) {
    const int plain = p->k_h * p->k_w * p->stride_h * p->stride_w * p->groups == 1 && p->pad_h == 0 && p->pad_w == 0;
    if (!plain || p->x_h != p->y_h || p->x_w != p->y_w || p->x_c > SMG_WIDEST || p->y_c > SMG_WIDEST)
        return 4 * (int64_t)p->inner;
    const int64_t positions = (int64_t)p->x_h * p->x_w, most = smg_most(SMG_WEIGHT_ROOM / positions & ~3, COLUMNS);
    const int64_t room = smg_least(most, smg_up(p->x_c, COLUMNS));
    return COLUMNS * (room * WORD + smg_up(positions, CHANNELS)) + room * positions;
}
