"""What passes over models, as files give them and as quantization folds them, leave of tiny ones."""

from __future__ import annotations

from smidgen.frontends.tidy import flatten_means, fold_biases, fold_normalizations, recognize, sink_functions
from smidgen.frontends.transposes import cancel_transposes
from smidgen.ops.fusing import fuse_activations, merge_pads
from smidgen.quantization.folding import crop_kernels, drop_idle, fold_back, fold_forward, settle_affine
from texts import Case

MODEL_CASES = (
    Case(
        recognize,
        "x · relu6(x + 3) / 6 is hard swish",
        """
        input %x: float32[1,4]
        const %three: float32[1] = 3
        const %sixth: float32[1] = 0.16666667
        %a: float32[1,4] = Add(%x, %three)
        %b: float32[1,4] = Activate(%a) activation='relu6'
        %c: float32[1,4] = Mul(%x, %b)
        %y: float32[1,4] = Mul(%c, %sixth)
        output %y
        """,
        """
        input %x: float32[1,4]
        %y: float32[1,4] = Lookup(%x) function='hard_swish'
        output %y
        """,
    ),
    Case(
        sink_functions,
        "a float function between int8 numbers is a table",
        """
        input %x: int8[1,4] q
        %real: float32[1,4] = Dequantize(%x)
        %f: float32[1,4] = Lookup(%real) function='tanh'
        %y: int8[1,4] q = Quantize(%f)
        output %y
        """,
        """
        input %x: int8[1,4] q
        %y: int8[1,4] q = Lookup(%x) function='tanh'
        output %y
        """,
    ),
    Case(
        fold_biases,
        "constants added to a layer one after another join its bias",
        """
        input %x: float32[1,2]
        const %w: float32[3,2]
        const %b: float32[3]
        const %c: float32[3]
        const %d: float32[1]
        %y: float32[1,3] = Dense(%x, %w, %b)
        %z: float32[1,3] = Add(%y, %c)
        %out: float32[1,3] = Add(%z, %d)
        output %out
        """,
        """
        input %x: float32[1,2]
        const %w: float32[3,2]
        const %b.z.out: float32[3]
        %out: float32[1,3] = Dense(%x, %w, %b.z.out)
        output %out
        """,
    ),
    Case(
        fold_normalizations,
        "scales and shifts behind a normalization become its own",
        """
        input %x: float32[3,2]
        const %s: float32[2] = 1
        const %t: float32[2]
        const %c: float32[2] = 2
        const %d: float32[2] = 3
        %n: float32[3,2] = Normalize(%x, %s, %t)
        %m: float32[3,2] = Mul(%n, %c)
        %y: float32[3,2] = Add(%m, %d)
        output %y
        """,
        """
        input %x: float32[3,2]
        const %s.m.y: float32[2]
        const %t.m.y: float32[2]
        %y: float32[3,2] = Normalize(%x, %s.m.y, %t.m.y)
        output %y
        """,
    ),
    Case(
        fold_biases,
        "a layer that something else reads keeps its bias",
        """
        input %x: float32[1,2]
        const %w: float32[3,2]
        const %b: float32[3]
        const %c: float32[3]
        %y: float32[1,3] = Dense(%x, %w, %b)
        %z: float32[1,3] = Add(%y, %c)
        output %y, %z
        """,
    ),
    Case(
        merge_pads,
        "zeros around a map become a convolution's padding; another reader keeps them",
        """
        input %x: int8[1,2,2,2] q
        const %w: int8[3,3,3,2] q
        const %b: int32[3]
        %padded: int8[1,5,4,2] q = Pad(%x) before=(0, 1, 1, 0) after=(0, 2, 1, 0)
        %y: int8[1,3,2,3] q = Conv2D(%padded, %w, %b)
        %m: int8[1,2] q = Mean(%padded)
        output %y, %m
        """,
        """
        input %x: int8[1,2,2,2] q
        const %w: int8[3,3,3,2] q
        const %b: int32[3]
        %padded: int8[1,5,4,2] q = Pad(%x) before=(0, 1, 1, 0) after=(0, 2, 1, 0)
        %y: int8[1,3,2,3] q = Conv2D(%x, %w, %b) pad=(1, 2, 1, 1)
        %m: int8[1,2] q = Mean(%padded)
        output %y, %m
        """,
    ),
    Case(
        cancel_transposes,
        "a transpose passes what works in any order, up to the one that undoes it",
        """
        input %x: int8[1,2,3,4] q
        const %c: int8[1] q
        %a: int8[1,4,2,3] q = Transpose(%x) perm=(0, 3, 1, 2)
        %b: int8[1,4,2,3] q = Activate(%a)
        %d: int8[1,4,2,3] q = Add(%b, %c)
        %p: int8[1,5,2,5] q = Pad(%d) before=(0, 1, 0, 2) after=(0, 0, 0, 0)
        %y: int8[1,2,5,5] q = Transpose(%p) perm=(0, 2, 3, 1)
        output %y
        """,
        """
        input %x: int8[1,2,3,4] q
        const %c: int8[1] q
        %b.first: int8[1,2,3,4] q = Activate(%x)
        %d.first: int8[1,2,3,4] q = Add(%b.first, %c)
        %p.first: int8[1,2,5,5] q = Pad(%d.first) before=(0, 0, 2, 1) after=(0, 0, 0, 0)
        output %p.first
        """,
    ),
    Case(
        cancel_transposes,
        "a transpose that nothing undoes stays where it is",
        """
        input %x: int8[1,2,3,4] q
        %a: int8[1,4,2,3] q = Transpose(%x) perm=(0, 3, 1, 2)
        %b: int8[1,4,2,3] q = Activate(%a)
        output %b
        """,
    ),
    Case(
        flatten_means,
        "a mean that is flattened alone gives it flat",
        """
        input %x: int8[1,2,2,3] q
        %m: int8[1,1,1,3] q = Mean(%x) keep_dims=True
        %y: int8[1,3] q = Reshape(%m) shape=(1, 3)
        output %y
        """,
        """
        input %x: int8[1,2,2,3] q
        %y: int8[1,3] q = Mean(%x)
        output %y
        """,
    ),
    Case(
        fuse_activations,
        "a float layer takes its activation and keeps its name",
        """
        input %x: float32[1,2]
        const %w: float32[3,2]
        const %b: float32[3]
        %y: float32[1,3] = Dense(%x, %w, %b)
        %r: float32[1,3] = Activate(%y)
        %z: float32[1,3] = Add(%r, %r)
        output %z
        """,
        """
        input %x: float32[1,2]
        const %w: float32[3,2]
        const %b: float32[3]
        %y: float32[1,3] = Dense(%x, %w, %b) activation='relu'
        %z: float32[1,3] = Add(%y, %y)
        output %z
        """,
    ),
    Case(
        fuse_activations,
        "an int8 activation in another scale stays, one in the same is joined and gives its name",
        """
        input %x: int8[1,2] q
        const %c: int8[2] q
        %a: int8[1,2] q = Add(%x, %c)
        %r: int8[1,2] q = Activate(%a)
        %s: int8[1,2] q = Add(%r, %c)
        %t: int8[1,2] q(0.25; 0) = Activate(%s)
        output %t
        """,
        """
        input %x: int8[1,2] q
        const %c: int8[2] q
        %r: int8[1,2] q = Add(%x, %c) activation='relu'
        %s: int8[1,2] q = Add(%r, %c)
        %t: int8[1,2] q(0.25; 0) = Activate(%s)
        output %t
        """,
    ),
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
