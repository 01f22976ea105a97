"""Biases of which 16 bits learn: what the model came with, in flash, and the difference to it.

A difference counts in units of 2^unit accumulator steps. A channel's unit is the least, up to 2^15, in which 16 bits
reach over half the range of the layer's int8 output, so that they resolve 1/128 of an output's step or less.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Array, Node, Op, Params, Type, op
from smidgen.ops.checking import shown

REACH = -7  # a layer's factor below 2^REACH needs a larger unit than 1
MOST_UNIT = 15  # log2
MOST_DIFFERENCE = 2**15 - 1


def units(shifts: tuple[int, ...]) -> Array:
    """log2 of each channel's unit, by the shift of its layer's multiplier, which is 2^(shift − 1) to 2^shift."""
    return np.clip(REACH - np.array(shifts, np.int64), 0, MOST_UNIT)


@op
@dataclass(frozen=True)
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
