/* Sizes that set how much working memory the kernels of this folder need. */
#ifndef SMIDGEN_WORKING_HELIUM_H
#define SMIDGEN_WORKING_HELIUM_H

/* Convolution: bytes of windows that are copied at once, unless one alone takes more. */
#define SMG_WINDOW_ROOM 2048

/* Elements of the longest window whose filters stay in registers: two vectors (see pixels.S). Others are packed. */
#define SMG_UNPACKED 32

/* Depthwise convolution: bytes of rows that are laid out at once, unless a single pixel's take more. */
#define SMG_FIELD 4096

/* Gradients: elements of a 1x1 convolution, and of a depthwise one's row, whose sums are held at once. */
#define SMG_DOT_PIXELS 32
#define SMG_GRAD_TILE 16

/* Rows of a matrix whose columns are laid out lie no further apart, for eight of them to be reached by 16 bits. */
#define SMG_WIDEST 8191

/* Weights of a 1x1 convolution: bytes of columns that are laid out at once, unless four alone take more. */
#define SMG_WEIGHT_ROOM 2048

#endif
