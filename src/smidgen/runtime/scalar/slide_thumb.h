/* smg_slide in assembly: for Thumb, whose loads of many words in one instruction it is made of. */
#ifndef SMIDGEN_SLIDE_THUMB_H
#define SMIDGEN_SLIDE_THUMB_H

#include "slide.h"

/* There is at least one tap, one tile and one row; sums, x and rows are used up. */
void smg_slide_thumb(smg_sliding *of);

#endif
