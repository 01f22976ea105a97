"""Tiny models before and after the passes by which quantization folds them."""

from __future__ import annotations

from smidgen.quantization.folding import crop_kernels, drop_idle, fold_back, fold_forward, settle_affine
from tests.support.graph_texts import Case

FOLDING_CASES = (
    Case(
        drop_idle,
        "what changes nothing goes",
        """
        input %x: float32[1,2,3,1]
        %a: float32[1,2,3,1] = Activate(%x) activation='none'
        %b: float32[1,2,3,1] = Pad(%a) before=(0, 0, 0, 0) after=(0, 0, 0, 0)
        %c: float32[1,2,3,1] = Transpose(%b) perm=(0, 1, 2, 3)
        %d: float32[1,2,3,1] = Concat(%c) axis=1
        %e: float32[1,2,3,1] = Reshape(%d) shape=(1, 2, 3, 1)
        %y: float32[1,6] = Reshape(%e) shape=(1, 6)
        output %y
        """,
        """
        input %x: float32[1,2,3,1]
        %y: float32[1,6] = Reshape(%x) shape=(1, 6)
        output %y
        """,
    ),
    Case(
        crop_kernels,
        "rows of a kernel that meet padding alone are cut off",
        """
        input %x: float32[1,1,2,1]
        const %w: float32[1,3,3,1]
        const %b: float32[1]
        %y: float32[1,1,2,1] = Conv2D(%x, %w, %b) pad=(1, 1, 1, 1)
        output %y
        """,
        """
        input %x: float32[1,1,2,1]
        const %y.w: float32[1,1,3,1]
        const %y.b: float32[1]
        %y: float32[1,1,2,1] = Conv2D(%x, %y.w, %y.b) pad=(0, 0, 1, 1)
        output %y
        """,
    ),
    Case(
        fold_back,
        "a batch norm joins the convolution before it",
        """
        input %x: float32[1,2,2,2]
        const %w: float32[3,1,1,2]
        const %b: float32[3]
        const %scale: float32[3] = 2
        const %shift: float32[3]
        %y: float32[1,2,2,3] = Conv2D(%x, %w, %b)
        %n: float32[1,2,2,3] = BatchNorm(%y, %scale, %shift)
        %r: float32[1,2,2,3] = Activate(%n)
        output %r
        """,
        """
        input %x: float32[1,2,2,2]
        const %y.w: float32[3,1,1,2]
        const %y.b: float32[3]
        %y: float32[1,2,2,3] = Conv2D(%x, %y.w, %y.b)
        %r: float32[1,2,2,3] = Activate(%y)
        output %r
        """,
    ),
    Case(
        fold_forward,
        "a product joins the layer behind it",
        """
        input %x: float32[1,2,2,2]
        const %c: float32[2] = 2
        const %w: float32[3,1,1,2]
        const %b: float32[3]
        %scaled: float32[1,2,2,2] = Mul(%x, %c)
        %y: float32[1,3,3,3] = Conv2D(%scaled, %w, %b) pad=(1, 0, 1, 0)
        output %y
        """,
        """
        input %x: float32[1,2,2,2]
        const %y.w: float32[3,1,1,2]
        const %y.b: float32[3]
        %y: float32[1,3,3,3] = Conv2D(%x, %y.w, %y.b) pad=(1, 0, 1, 0)
        output %y
        """,
    ),
    Case(
        fold_forward,
        "a sum stays in front of padding, which is zero without it",
        """
        input %x: float32[1,2,2,2]
        const %c: float32[2] = 2
        const %w: float32[3,1,1,2]
        const %b: float32[3]
        %moved: float32[1,2,2,2] = Add(%x, %c)
        %y: float32[1,4,4,3] = Conv2D(%moved, %w, %b) pad=(1, 1, 1, 1)
        output %y
        """,
    ),
    Case(
        settle_affine,
        "a batch norm on a map becomes a depthwise layer, elsewhere a product and a sum",
        """
        input %x: float32[1,2,2,2]
        input %f: float32[1,2]
        const %scale: float32[2] = 2
        const %shift: float32[2]
        %y: float32[1,2,2,2] = BatchNorm(%x, %scale, %shift)
        %z: float32[1,2] = BatchNorm(%f, %scale, %shift)
        output %y, %z
        """,
        """
        input %x: float32[1,2,2,2]
        input %f: float32[1,2]
        const %y.w: float32[1,1,1,2]
        const %y.b: float32[2]
        const %z.scale: float32[2]
        const %z.shift: float32[2]
        %y: float32[1,2,2,2] = Depthwise(%x, %y.w, %y.b)
        %z.scaled: float32[1,2] = Mul(%f, %z.scale)
        %z: float32[1,2] = Add(%z.scaled, %z.shift)
        output %y, %z
        """,
    ),
)
