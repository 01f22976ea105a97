/* Sizes that set how much working memory the kernels of this folder need. */
#ifndef SMIDGEN_WORKING_SCALAR_H
#define SMIDGEN_WORKING_SCALAR_H

/* Pixels of a tile, and channels whose sums are kept at once; more while windows are taken in pieces. */
#define SMG_TILE 4
#define SMG_CHANNELS 4
#define SMG_KEPT_CHANNELS 16

/* Bytes that a convolution's windows may fill, and where a single row is computed: so many, and more for each element
 * of a window. Windows of which not even two tiles fit are taken in pieces, up to so many tiles at a time. */
#define SMG_PIECE_TILES 4
#define SMG_PIECE_ROOM 2816
#define SMG_WINDOW_ROOM 4096
#define SMG_WINDOW_ROW_ROOM 2048
#define SMG_WINDOW_ROW_DEEPER 16

/* Words that a depthwise channel's strips may fill. */
#define SMG_STRIP_WORDS 512

#endif
