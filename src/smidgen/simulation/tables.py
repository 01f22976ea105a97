"""Tables that a step of a fleet looks up: exponents, random streams and offsets of all gradients, in one table each."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from smidgen import numerics
from smidgen.ir import roles_of
from smidgen.numerics import stochastic
from smidgen.ops.elementwise import Compare
from smidgen.ops.gradient import FromFloat, GradOp, Mask, SumGrads
from smidgen.simulation import integers
from smidgen.simulation.fleet import Fleet, FleetNode, FleetValue, Slotted
from smidgen.simulation.layout import Setting, zero_of

DIFFERENCES = {False: (-0.5, np.inf), True: (-np.inf, -0.5)}  # of whole numbers: not below 0, and below


@dataclass(frozen=True, eq=False)
class Rounding:
    """The rounding of a gradient node's sums."""

    multiplier: Tensor
    mask: FleetValue | None  # gradients pass where it lies within the limits
    limits: Tensor


def rounding(node: FleetNode, merged: Fleet, s: Setting) -> Rounding:
    """Return the factors, raised by the lift, and the mask of a gradient node."""
    op, unlimited = node.node.op, s.real((-np.inf, np.inf))
    if isinstance(op, FromFloat):
        return Rounding(s.whole([1 << 31]), None, unlimited)
    assert isinstance(op, GradOp)
    multiplier, _ = op.multipliers()
    lifted = s.whole(multiplier.astype(np.int64) << op.lift(node.node))
    value = op.parts(node.ins).mask
    if value is None:
        return Rounding(lifted, None, unlimited)
    of, mask = merged.masked[value]
    if isinstance(mask.op, Compare):
        return Rounding(lifted, of, s.real(DIFFERENCES[mask.op.less]))
    assert isinstance(mask.op, Mask)
    low, high = numerics.activation_range(mask.op.activation, of.type)
    return Rounding(lifted, of, s.real((low - zero_of(of.type), high - zero_of(of.type))))


@dataclass(frozen=True, eq=False)
class Looked:
    """The numbers of one step: [devices, gradients] each, and [devices, all places] for the exponents."""

    exponents: Tensor
    own: Tensor  # exponents of the gradients
    above: tuple[Tensor, Tensor]  # by how much the operands' exponents stand above the sums'
    t: Tensor  # bits that are rounded off
    keys: Tensor  # of the random bits of gradients, then two of each step


class Tables:
    """Levels, step and seed of every device, and the indices by which gradients and steps read them."""

    def __init__(
        self, gradients: Sequence[FleetNode], steps: Sequence[list[tuple[int, int]]], merged: Fleet, s: Setting
    ) -> None:
        first, second, out, offset = [], [], [], []
        streams = np.zeros((s.devices, len(gradients) + 2 * len(steps)), np.int64)
        for i, node in enumerate(gradients):
            member, op = next(iter(node.ops.items()))
            assert isinstance(op, Slotted)
            *sources, own = (merged.slots[member][slot] for slot in op.slots)
            out.append(own)
            first.append(sources[0] if sources else own)
            second.append(sources[-1] if sources else own)
            offset.append(op.lift(node.node) - op.multipliers()[1] if isinstance(op, GradOp) else op.BITS)
            for device, known in node.ops.items():
                assert isinstance(known, Slotted)
                streams[device, i] = known.stream
        for i, pairs in enumerate(steps):
            streams[:, len(gradients) + 2 * i : len(gradients) + 2 * i + 2] = pairs
        self._first, self._second, self._out = s.whole(first), s.whole(second), s.whole(out)
        self._offset, self._streams = s.whole(offset), s.whole(streams).to(torch.int32)
        widths = [node.outs[0].type.shape[-1] for node in gradients]
        self._columns = s.whole(np.repeat(np.array(out, np.int64), widths)).expand(s.devices, -1)
        self._slots, self._graphs = merged.slots, merged.graphs
        places = 1 + max((place for slots in merged.slots for place in slots.values()), default=0)
        self.levels, self.step, self.seed = (s.whole(np.zeros((s.devices, n))) for n in (places, 1, 1))
        for device, graph in enumerate(merged.graphs):
            self.restore(device, graph.state[roles_of(graph).step_state])

    def look_up(self) -> Looked:
        exponents = integers.exponents(self.levels)
        first, second, own = (exponents[:, places] for places in (self._first, self._second, self._out))
        floor = torch.maximum(first, second) - SumGrads.REACH
        reference = torch.maximum(torch.minimum(first, second), floor)
        keys = integers.keys(self.step.to(torch.int32), self.seed.to(torch.int32), self._streams)
        above = (first - reference, second - reference)
        return Looked(exponents, own, above, own - reference + self._offset, keys)

    def advance(self, peaks: Sequence[Tensor]) -> None:
        """Set the levels by the peaks of their tensors, and go one step on."""
        if peaks:
            seen = torch.cat(list(peaks), dim=1)
            largest = torch.zeros_like(self.levels).scatter_reduce_(1, self._columns, seen, "amax")
            self.levels.copy_(integers.next_levels(self.levels, largest))
        self.step.add_(1)

    def state(self, device: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
        """Return the step state as the device's program has it."""
        graph = self._graphs[device]
        state = graph.state[roles_of(graph).step_state].astype(np.int64)
        state[stochastic.STEP] = int(self.step[device, 0])
        state[stochastic.SEED] = int(self.seed[device, 0])
        levels = self.levels[device].cpu().numpy()
        for slot, place in self._slots[device].items():
            state[stochastic.FIRST_LEVEL + slot] = levels[place]
        return state.astype(np.int32)

    def restore(self, device: int, state: np.ndarray[tuple[int, ...], np.dtype[np.int32]]) -> None:
        """Put a device's step state back."""
        self.step[device], self.seed[device] = int(state[stochastic.STEP]), int(state[stochastic.SEED])
        levels = self.levels[device].cpu()
        for slot, place in self._slots[device].items():
            levels[place] = int(state[stochastic.FIRST_LEVEL + slot])
        self.levels[device] = levels.to(self.levels.device)
