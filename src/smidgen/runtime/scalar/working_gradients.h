/* Sizes that set how much working memory the gradients of this folder need. */
#ifndef SMIDGEN_WORKING_GRADIENTS_H
#define SMIDGEN_WORKING_GRADIENTS_H

/* The gradient of a 1x1 convolution behind a mask: outputs multiplied at once, and halfwords of gradients held at
 * once, of so many pixels at most. */
#define SMG_MASKED_STRETCH 8
#define SMG_MASKED_WIDENED 1800
#define SMG_MASKED_PIXELS 64

/* The gradient of a depthwise convolution: words of a channel's gradients at most, where they are fewer or more than
 * the elements they belong to. */
#define SMG_PLANE_APART 512

#endif
