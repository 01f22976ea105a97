"""State beside the network: trained channels laid over frozen ones, differences to biases, and variables of streams.

A variable is state that a streaming network carries from one run to the next. A run reads it like any value, and an
`Assign` names what replaces it once nobody reads the old value any more.
"""

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Op, Params, QParams, Type, Value, op
from smidgen.ops.checks import check_channels, check_dtypes, shown


@op
class Gather(Op):
    """Some channels of a tensor: what a partly trained layer keeps of its input."""

    channels: tuple[int, ...]

    kernel = "smg_gather_s8"
    saved = True

    def infer(self, x: Type) -> Type:
        check_channels("Gather", x)
        if not self.channels or not all(0 <= c < x.shape[-1] for c in self.channels):
            raise GraphError(f"Gather of channels {self.channels[:4]}… does not fit {list(x.shape)}")
        return Type((*x.shape[:-1], len(self.channels)), x.dtype, x.q)

    def ref(self, node: Node, x: Array) -> Array:
        return np.ascontiguousarray(x[..., list(self.channels)])

    def params(self, node: Node) -> Params:
        x = node.ins[0].type
        return {
            "n": x.size // x.shape[-1], "x_c": x.shape[-1], "y_c": len(self.channels),
            "channel": np.array(self.channels, np.int32),
        }  # fmt: skip


MOST_CHANNELS = 2**15 - 1  # their numbers are int16 in C


@op
class Overlay(Op):
    """`frozen` with its last axis replaced at `channels` by `trained`; the gradient asks for those channels alone."""

    channels: tuple[int, ...]

    virtual = True

    def infer(self, frozen: Type, trained: Type) -> Type:
        check_channels("Overlay", frozen)
        check_dtypes("Overlay", ("int8", "float32"), frozen)
        ascending = all(a < b for a, b in zip(self.channels, self.channels[1:], strict=False))
        if not (self.channels and ascending and self.channels[0] >= 0 and self.channels[-1] < frozen.shape[-1]):
            raise GraphError(f"Overlay's channels {self.channels[:4]}… must ascend within {list(frozen.shape)}")
        if frozen.shape[-1] > MOST_CHANNELS:
            raise GraphError(f"Overlay of {frozen.shape[-1]:,} channels; the most is {MOST_CHANNELS:,}")
        if trained.q != self.kept(frozen):
            raise GraphError(f"Overlay's {len(self.channels)} channels have other scales than those they replace")
        if trained.shape != (*frozen.shape[:-1], len(self.channels)) or trained.dtype != frozen.dtype:
            raise GraphError(
                f"Overlay of {list(trained.shape)} does not fit {len(self.channels)} of {list(frozen.shape)}"
            )
        Gather(self.channels).infer(frozen)  # raises where a channel is not there
        return frozen

    def kept(self, frozen: Type) -> QParams | None:
        """Return the quantization of the channels that learn."""
        q = frozen.q
        if q is None or q.axis != len(frozen.shape) - 1:
            return q
        return QParams(tuple(q.scale[c] for c in self.channels), q.zero, q.axis)

    def ref(self, node: Node, frozen: Array, trained: Array) -> Array:
        whole = frozen.copy()
        whole[..., list(self.channels)] = trained
        return whole

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        return None, g.emit(Gather(self.channels), dy)

    def params(self, node: Node) -> Params:
        return {"channel": np.array(self.channels, np.int16)}


REACH = -7  # a layer's factor below 2^REACH needs a larger unit than 1
MOST_UNIT = 15  # log2
MOST_DIFFERENCE = 2**15 - 1


def units(shifts: tuple[int, ...]) -> Array:
    """Return log2 of each channel's unit, by the shift of its layer's multiplier, from 2^(shift − 1) to 2^shift."""
    return np.clip(REACH - np.array(shifts, np.int64), 0, MOST_UNIT)


@op
class LearnedBias(Op):
    """b = base + difference · 2^unit, saturated at 32 bits. Inputs: base, difference."""

    shifts: tuple[int, ...]  # of the layer's multipliers

    kernel = "smg_learned_bias"
    takes = "int32"

    def infer(self, base: Type, difference: Type) -> Type:
        fits = base == Type((len(self.shifts),), "int32") and difference == Type(base.shape, "int16")
        if not fits or any(not -128 <= shift <= 127 for shift in self.shifts):
            raise GraphError(f"LearnedBias of {len(self.shifts)} shifts takes {shown(base)} and {shown(difference)}")
        return base

    def ref(self, node: Node, base: Array, difference: Array) -> Array:
        moved = base.astype(np.int64) + (difference.astype(np.int64) << units(self.shifts))
        return np.clip(moved, -(2**31), 2**31 - 1).astype(np.int32)

    def params(self, node: Node) -> Params:
        return {"c": node.out.type.size, "shift": np.array(self.shifts, np.int8)}


@op
class Assign(Op):
    """y = x, in the memory of a variable and in its place from the next run on."""

    kernel = "smg_assign_s8"
    inplace = 0
    carries = True

    def infer(self, variable: Type, x: Type) -> Type:
        check_dtypes("Assign", ("int8", "float32"), variable, x)
        if variable != x:
            raise GraphError(f"Assign gives {x} to a variable of {variable}; both must be of one type and quantization")
        return variable

    def ref(self, node: Node, variable: Array, x: Array) -> Array:
        return x.copy()

    def arguments(self, node: Node) -> tuple[Value | None, ...]:
        return node.ins[1], node.out

    def params(self, node: Node) -> Params:
        return {"n": node.out.type.size}
