"""Tiny training graphs before and after passes."""

from __future__ import annotations

from smidgen.ir.rewriting import prune
from smidgen.training.lowering import fuse_requantize_grads
from smidgen.training.passes import fuse_updates, save_early, share, slice_channels, update_early
from tests.support.graph_texts import Case

TRAINING_CASES = (
    Case(
        prune,
        "what no output and no update depends on goes, with the constants it read",
        """
        input %x: int8[2] q
        const %c: int8[2] q
        const %d: int8[2] q
        state %s: int8[2] q
        %a: int8[2] q = Add(%x, %c)
        %dead: int8[2] q = Add(%a, %d)
        %after: int8[2] q = Add(%s, %x)
        update %s: %after
        output %a
        """,
        """
        input %x: int8[2] q
        const %c: int8[2] q
        state %s: int8[2] q
        %a: int8[2] q = Add(%x, %c)
        %after: int8[2] q = Add(%s, %x)
        update %s: %after
        output %a
        """,
    ),
    Case(
        share,
        "two equal masks become one",
        """
        input %x: int8[8] q
        input %dy: float32[8]
        %m: uint8[1] = Mask(%x) activation='relu'
        %a: float32[8] = RequantizeGrad(%dy, %m) masked=True
        %n: uint8[1] = Mask(%x) activation='relu'
        %b: float32[8] = RequantizeGrad(%a, %n) masked=True
        output %b
        """,
        """
        input %x: int8[8] q
        input %dy: float32[8]
        %m: uint8[1] = Mask(%x) activation='relu'
        %a: float32[8] = RequantizeGrad(%dy, %m) masked=True
        %b: float32[8] = RequantizeGrad(%a, %m) masked=True
        output %b
        """,
    ),
    Case(
        share,
        "an output is computed even where another node computes the same",
        """
        input %x: int8[8] q
        %m: uint8[1] = Mask(%x) activation='relu'
        %n: uint8[1] = Mask(%x) activation='relu'
        output %m, %n
        """,
    ),
    Case(
        slice_channels,
        "of a convolution's input only the channels whose weights learn are kept",
        """
        input %x: int8[1,2,2,4] q
        input %dy: int8[1,2,2,3]
        %all: int32[3,1,1,4] = ConvGradWeight(%x, %dy)
        %some: int32[3,1,1,2] = Gather(%all) channels=(1, 3)
        output %some
        """,
        """
        input %x: int8[1,2,2,4] q
        input %dy: int8[1,2,2,3]
        %x.saved: int8[1,2,2,2] q = Gather(%x) channels=(1, 3)
        %some: int32[3,1,1,2] = ConvGradWeight(%x.saved, %dy)
        output %some
        """,
    ),
    Case(
        slice_channels,
        "a depthwise convolution's gradient is gathered too",
        """
        input %x: int8[1,2,2,4] q
        input %dy: int8[1,2,2,4]
        %all: int32[1,1,1,4] = DepthwiseGradWeight(%x, %dy)
        %some: int32[1,1,1,2] = Gather(%all) channels=(1, 3)
        output %some
        """,
        """
        input %x: int8[1,2,2,4] q
        input %dy: int8[1,2,2,4]
        %dy.part: int8[1,2,2,2] = Gather(%dy) channels=(1, 3)
        %x.saved: int8[1,2,2,2] q = Gather(%x) channels=(1, 3)
        %some: int32[1,1,1,2] = DepthwiseGradWeight(%x.saved, %dy.part)
        output %some
        """,
    ),
    Case(
        fuse_updates,
        "steps compute the sums that they alone read",
        """
        input %x: int8[1,2,2,2] q
        input %dy: int8[1,2,2,1]
        input %r: int32[2]
        state %w: int8[1,1,1,2] q
        state %b: int32[1]
        state %s: int32[3]
        %sums: int32[1,1,1,2] = ConvGradWeight(%x, %dy)
        %total: int32[1] = ChannelSum(%dy)
        %w1: int8[1,1,1,2] q = WeightStep(%w, %sums, %r, %s) factors=(4.0,) slot=0 stream=2 bound=200000
        %b1: int32[1] = BiasStep(%b, %total, %r, %s) factors=(9.0,) slot=0 stream=4 bound=200000
        update %w: %w1
        update %b: %b1
        output %dy
        """,
        """
        input %x: int8[1,2,2,2] q
        input %dy: int8[1,2,2,1]
        input %r: int32[2]
        state %w: int8[1,1,1,2] q
        state %b: int32[1]
        state %s: int32[3]
        %w1: int8[1,1,1,2] q = FusedWeightStep(%w, %x, %dy, %r, %s) factors=(4.0,) slot=0 stream=2 bound=200000 gradient=ConvGradWeight()
        %b1: int32[1] = FusedBiasStep(%b, %dy, %r, %s) factors=(9.0,) slot=0 stream=4 bound=200000 gradient=ChannelSum()
        update %w: %w1
        update %b: %b1
        output %dy
        """,  # noqa: E501
    ),
    Case(
        fuse_updates,
        "sums that are an output stay",
        """
        input %x: int8[1,2,2,2] q
        input %dy: int8[1,2,2,1]
        input %r: int32[2]
        state %w: int8[1,1,1,2] q
        state %b: int32[1]
        state %s: int32[3]
        %sums: int32[1,1,1,2] = ConvGradWeight(%x, %dy)
        %total: int32[1] = ChannelSum(%dy)
        %w1: int8[1,1,1,2] q = WeightStep(%w, %sums, %r, %s) factors=(4.0,) slot=0 stream=2 bound=200000
        %b1: int32[1] = BiasStep(%b, %total, %r, %s) factors=(9.0,) slot=0 stream=4 bound=200000
        update %w: %w1
        update %b: %b1
        output %sums, %total
        """,
    ),
    Case(
        save_early,
        "a mask is taken right behind what it is of",
        """
        input %x: int8[8] q
        input %dy: float32[8]
        const %c: int8[8] q
        %y: int8[8] q = Add(%x, %c)
        %z: int8[8] q = Add(%y, %y)
        %m: uint8[1] = Mask(%y) activation='relu'
        %dx: float32[8] = RequantizeGrad(%dy, %m) masked=True
        output %z, %dx
        """,
        """
        input %x: int8[8] q
        input %dy: float32[8]
        const %c: int8[8] q
        %y: int8[8] q = Add(%x, %c)
        %m: uint8[1] = Mask(%y) activation='relu'
        %z: int8[8] q = Add(%y, %y)
        %dx: float32[8] = RequantizeGrad(%dy, %m) masked=True
        output %z, %dx
        """,
    ),
    Case(
        update_early,
        "a step runs as soon as its gradient exists and the last reader of the old value is done",
        """
        input %x: int8[1,2] q
        input %dy: int8[1,2]
        input %r: int32[2]
        state %b: int32[2]
        state %s: int32[3]
        const %w: int8[2,2] q
        %total: int32[2] = ChannelSum(%dy)
        %y: int8[1,2] q = Dense(%x, %w, %b)
        %z: int8[1,2] q = Add(%y, %y)
        %b1: int32[2] = BiasStep(%b, %total, %r, %s) factors=(4.0, 4.0) slot=0 stream=2 bound=200000
        update %b: %b1
        output %z
        """,
        """
        input %x: int8[1,2] q
        input %dy: int8[1,2]
        input %r: int32[2]
        const %w: int8[2,2] q
        state %b: int32[2]
        state %s: int32[3]
        %total: int32[2] = ChannelSum(%dy)
        %y: int8[1,2] q = Dense(%x, %w, %b)
        %b1: int32[2] = BiasStep(%b, %total, %r, %s) factors=(4.0, 4.0) slot=0 stream=2 bound=200000
        %z: int8[1,2] q = Add(%y, %y)
        update %b: %b1
        output %z
        """,
    ),
    Case(
        fuse_requantize_grads,
        "a gradient is scaled and masked where it is summed",
        """
        input %dy: float32[1,3]
        input %mask: uint8[2]
        %spread: float32[1,2,2,3] = MeanGrad(%dy) factors=(0.25,) size=(2, 2)
        %dx: float32[1,2,2,3] = RequantizeGrad(%spread, %mask) factors=(2.0,) masked=True
        output %dx
        """,
        """
        input %dy: float32[1,3]
        input %mask: uint8[2]
        %dx: float32[1,2,2,3] = MeanGrad(%dy, %mask) factors=(0.5,) masked=True size=(2, 2)
        output %dx
        """,
    ),
    Case(
        fuse_requantize_grads,
        "a gradient that something else reads stays",
        """
        input %dy: float32[1,3]
        %spread: float32[1,2,2,3] = MeanGrad(%dy) factors=(0.25,) size=(2, 2)
        %dx: float32[1,2,2,3] = RequantizeGrad(%spread) factors=(2.0,)
        output %spread, %dx
        """,
    ),
)
