/* Sizes that set how much working memory the kernels of this folder need. */
#ifndef SMIDGEN_WORKING_H
#define SMIDGEN_WORKING_H

/* Channels that a convolution computes at once, and pixels that it multiplies at once. */
#define SMG_LANES 16
#define SMG_PIXELS 4

/* A convolution's windows are taken in pieces of at most so many elements. Weights longer than a piece are laid out
 * again for each tile of pixels; where they are shorter and a single row is computed, a small tile saves memory. */
#define SMG_CONV_DEPTH 64
#define SMG_CONV_TILE 32
#define SMG_CONV_ROW_TILE 8

/* Output pixels of a depthwise tile, fewer where a single row is computed, and bytes of strips worth keeping. */
#define SMG_DEPTHWISE_TILE 8
#define SMG_DEPTHWISE_ROW_TILE 4
#define SMG_DEPTHWISE_KEPT 4096

/* Channels of a depthwise gradient copied at a time, where its input's gradient takes its place. */
#define SMG_COPIED 16

#endif
