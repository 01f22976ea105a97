/* Sizes that set how much working memory the kernels of this folder need. */
#ifndef SMIDGEN_WORKING_PACKED_H
#define SMIDGEN_WORKING_PACKED_H

/* Convolution: bytes for windows and filters, so many and so many more for each element of a window up to a depth;
 * fewer where a single row of windows no deeper than that is computed. */
#define SMG_ROOM 3072
#define SMG_ROOM_DEEPER 32
#define SMG_ROW_ROOM 2560
#define SMG_ROW_ROOM_DEEPER 48
#define SMG_ROOM_DEPTH 64

/* More bytes for windows that are not taken in pieces, of several rows or deeper than that; no more than a map has. */
#define SMG_ROOM_MORE 3072

/* Windows are taken in pieces where that holds fewer than so many; then sums of pixels and channels are kept, and pieces
 * and sums have so many bytes: where layers are deep, little else is left. */
#define SMG_FEW_WINDOWS 8
#define SMG_PIECE_ROOM 4640
#define SMG_PIECE_PIXELS 16
#define SMG_PIECE_CHANNELS 32

/* Depthwise convolution: channels at once. Strips get the bytes that a tile of so many columns would take, of which
 * there are fewer where a single row is computed, for so many channels; rows of strips that take more are not kept. */
#define SMG_SLIDE_BLOCK 4
#define SMG_SLIDE_LANES 16
#define SMG_SLIDE_TILE 8
#define SMG_SLIDE_ROW_TILE 4
#define SMG_SLIDE_KEPT 4096

/* The same by filters of 3x3 over a single row: bytes of strips, at most, where a tile has more than four columns. */
#define SMG_THREES_STRIPS 1600

/* Gradients: channels whose sums become gradients at once. */
#define SMG_COLUMNS 8

/* The gradient of a 1x1 convolution behind a mask: channels packed at once, outputs multiplied at once, elements held
 * at once, how many widened gradients they have at most, and the elements of the largest map it is done for. */
#define SMG_MASKED_LANES 4
#define SMG_MASKED_STRETCH 8
#define SMG_MASKED_PIXELS 32
#define SMG_MASKED_WIDENED 1800
#define SMG_MASKED_LARGEST 1024

/* The same without a mask, as a convolution: the most outputs it is done for, halfwords of gradients widened at once,
 * and from which percentage on of gradients that are not zero. */
#define SMG_GRAD_DEEPEST 192
#define SMG_GRAD_WIDENED 1792
#define SMG_GRAD_DENSE 30

/* The gradient of a depthwise convolution in int16: elements of the largest map, where the gradient it comes from is as
 * large and where not, and the widest window. */
#define SMG_SPREAD_LARGEST 1024
#define SMG_SPREAD_LARGEST_APART 144
#define SMG_SPREAD_WIDEST 8

/* The same by filters that slide: elements of the smallest map and of the largest. */
#define SMG_GRAD_LEAST 24
#define SMG_GRAD_ELEMENTS 64

#endif
