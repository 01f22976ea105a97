/* Sizes that set how much working memory the kernels of this folder need; working.py reads them here. */
#ifndef SMIDGEN_WORKING_HELIUM_H
#define SMIDGEN_WORKING_HELIUM_H

/* Convolution: bytes of windows that are copied at once, unless one alone takes more. */
#define SMG_WINDOW_ROOM 2048

/* Depthwise convolution: channels that are laid out at once, and about how many bytes of each. */
#define SMG_CHANNELS 8
#define SMG_STRIP 240

#endif
