"""Tiny models, as files give them, before and after passes."""

from __future__ import annotations

from smidgen.frontends.tflite.read import assign_early
from smidgen.frontends.tidy import (
    cancel_transposes,
    crop_parts,
    flatten_means,
    fold_biases,
    fold_normalizations,
    recognize,
    sink_functions,
)
from smidgen.ops.fusion import fuse_activations, keep_last_states, merge_pads
from tests.support.graph_texts import Case

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
        crop_parts,
        "what is cut out of one part of a concatenation",
        """
        input %a: float32[1,4]
        input %b: float32[3,4]
        %c: float32[4,4] = Concat(%a, %b) axis=0
        %y: float32[2,3] = Crop(%c) start=(2, 1) stop=(4, 4)
        output %y
        """,
        """
        input %a: float32[1,4]
        input %b: float32[3,4]
        %y: float32[2,3] = Crop(%b) start=(1, 1) stop=(3, 4)
        output %y
        """,
    ),
    Case(
        crop_parts,
        "all of one part is that part; what lies in two is left",
        """
        input %a: float32[1,4]
        input %b: float32[3,4]
        %c: float32[4,4] = Concat(%a, %b) axis=0
        %part: float32[3,4] = Crop(%c) start=(1, 0) stop=(4, 4)
        %y: float32[3,4] = Activate(%part) activation='relu'
        %z: float32[2,4] = Crop(%c) start=(0, 0) stop=(2, 4)
        output %y, %z
        """,
        """
        input %a: float32[1,4]
        input %b: float32[3,4]
        %c: float32[4,4] = Concat(%a, %b) axis=0
        %y: float32[3,4] = Activate(%b) activation='relu'
        %z: float32[2,4] = Crop(%c) start=(0, 0) stop=(2, 4)
        output %y, %z
        """,
    ),
    Case(
        keep_last_states,
        "of a recurrent layer whose last state alone is read, that state is kept",
        """
        input %x: float32[1,3,2]
        const %w: float32[4,5,2]
        const %u: float32[4,5,5]
        const %b: float32[4,5]
        %states: float32[1,3,5] = Lstm(%x, %w, %u, %b)
        %rows: float32[3,5] = Reshape(%states) shape=(3, 5)
        %y: float32[1,5] = Crop(%rows) start=(2, 0) stop=(3, 5)
        output %y
        """,
        """
        input %x: float32[1,3,2]
        const %w: float32[4,5,2]
        const %u: float32[4,5,5]
        const %b: float32[4,5]
        %y.state: float32[1,5] = Lstm(%x, %w, %u, %b) whole=False
        %y: float32[1,5] = Reshape(%y.state) shape=(1, 5)
        output %y
        """,
    ),
    Case(
        keep_last_states,
        "but not where another is read as well",
        """
        input %x: float32[1,3,2]
        const %w: float32[4,5,2]
        const %u: float32[4,5,5]
        const %b: float32[4,5]
        %states: float32[1,3,5] = Lstm(%x, %w, %u, %b)
        %y: float32[1,2,5] = Crop(%states) start=(0, 1, 0) stop=(1, 3, 5)
        output %y
        """,
        """
        input %x: float32[1,3,2]
        const %w: float32[4,5,2]
        const %u: float32[4,5,5]
        const %b: float32[4,5]
        %states: float32[1,3,5] = Lstm(%x, %w, %u, %b)
        %y: float32[1,2,5] = Crop(%states) start=(0, 1, 0) stop=(1, 3, 5)
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
        assign_early,
        "a variable is replaced as soon as its last value is read",
        """
        input %x: int8[2] q
        const %c: int8[2] q
        state %s: int8[2] q
        %a: int8[2] q = Add(%x, %s)
        %b: int8[2] q = Add(%a, %s)
        %y: int8[2] q = Add(%b, %c)
        %next: int8[2] q = Assign(%s, %a)
        update %s: %next
        output %y
        """,
        """
        input %x: int8[2] q
        const %c: int8[2] q
        state %s: int8[2] q
        %a: int8[2] q = Add(%x, %s)
        %b: int8[2] q = Add(%a, %s)
        %next: int8[2] q = Assign(%s, %a)
        %y: int8[2] q = Add(%b, %c)
        update %s: %next
        output %y
        """,
    ),
)
