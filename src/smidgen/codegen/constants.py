"""Constants that need no copy in flash: factors of steps shared with their layers, and how state begins.

QAS's factor of a channel is a number that its tensor shares, over the square of the layer's own factor s_x·s_w / s_y.
`smg_factor_of` (step.h) computes that from the layer's multiplier, within eight units of the last of 31 bits; what is
missing is listed, two to a byte. The factor is the same to the last bit, or it is listed as before.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from smidgen.ir import Array, Graph, Node, Value
from smidgen.memory import state_offsets
from smidgen.ops.state import LearnedBias, Overlay
from smidgen.ops.update import Step, WeightStep, pack
from smidgen.ops.weighted import Weighted

LARGEST = 60  # log2 of the largest factor that there is


@dataclass(frozen=True)
class Shared:
    """A step's factors by its layer: scale · 2^(exponent − 31) over the square of the layer's, and corrections."""

    layer: Node
    scale: int
    exponent: int
    correction: Array  # −8 to 7 each

    @property
    def packed(self) -> Array:
        """Corrections as C reads them: eight more, two to a byte, the first in its lower half."""
        return pack((self.correction + 8).astype(np.uint8), 4)


def shared_factors(graph: Graph) -> dict[Value, Shared]:
    """Return how steps' factors follow from their layers', where they do, by the first output of each step."""
    layers = _layers(graph)
    pairs = ((node, layers.get(node.ins[0])) for node in graph.nodes if isinstance(node.op, Step))
    found = ((node.outs[0], _shared(node, layer)) for node, layer in pairs if layer is not None)
    return {value: shared for value, shared in found if shared is not None}


def _layers(graph: Graph) -> dict[Value, Node]:
    """Return the layer that reads each weight or bias, as a whole or laid over another."""
    layers = {v: node for node in graph.nodes if isinstance(node.op, Weighted) for v in node.ins[1:]}
    laid = ((node.ins[1], layers.get(node.out)) for node in graph.nodes if isinstance(node.op, Overlay | LearnedBias))
    return layers | {trained: layer for trained, layer in laid if layer is not None}


def _shared(node: Node, layer: Node) -> Shared | None:
    """None where channels do not lie along the layer's outputs, or a factor does not follow exactly."""
    wanted, own = (_arrays(one.op.params(one)) for one in (node, layer))
    if wanted is None or own is None or len(wanted[0]) != len(own[0]) or not (own[0] >= 1 << 30).all():
        return None
    if isinstance(node.op, WeightStep) and node.op.axis != 0:
        return None
    for scale, exponent in _scales(wanted, own):
        mantissa, shift = derive(*own, scale, exponent)
        correction = np.where(shift > LARGEST, 0, wanted[0].astype(np.int64) - mantissa)
        if np.array_equal(shift, wanted[1]) and (correction >= -8).all() and (correction <= 7).all():
            return Shared(layer, scale, exponent, correction.astype(np.int8))
    return None


def _arrays(params: Mapping[str, int | float | Array]) -> tuple[Array, Array] | None:
    """Multipliers and shifts, where there is one of each per channel."""
    multiplier, shift = params.get("multiplier"), params.get("shift")
    if not isinstance(multiplier, np.ndarray) or not isinstance(shift, np.ndarray) or multiplier.dtype != np.int32:
        return None
    return multiplier, shift


def _scales(wanted: tuple[Array, Array], own: tuple[Array, Array]) -> Iterator[tuple[int, int]]:
    """Yield what the tensor may share, as mantissa and exponent: what the channel in the middle has of it."""
    factor, ratio = (np.ldexp(m.astype(np.float64), s.astype(np.int64) - 31) for m, s in (wanted, own))
    shared = np.sort((factor * ratio * ratio)[wanted[1] <= LARGEST])
    if shared.size and shared[0] > 0:
        fraction, exponent = np.frexp(shared[shared.size // 2])
        yield min(int(fraction * 2**31 + 0.5), 2**31 - 1), int(exponent)


def derive(multiplier: Array, shift: Array, scale: int, exponent: int) -> tuple[Array, Array]:
    """Return what `smg_factor_of` computes from a layer's multipliers and shifts, before correction."""
    m = multiplier.astype(np.uint64)
    first = (np.uint64(0xFFFFFFFF) // (m >> np.uint64(15))) << np.uint64(14)  # 2^61 / m, to 15 bits
    left = np.uint64(1 << 31) - (m * first >> np.uint64(31))
    inverse = first * left >> np.uint64(30)  # after a step of Newton's
    product = (inverse * inverse >> np.uint64(30)) * np.uint64(scale) >> np.uint64(31)
    up = (product < 1 << 31).astype(np.int64) + (product < 1 << 30)
    mantissa = (product << up.astype(np.uint64) >> np.uint64(1)).astype(np.int64)
    power = exponent + 2 - up - 2 * shift.astype(np.int64)
    largest = power > LARGEST
    return np.where(largest, 1 << 30, mantissa), np.where(largest, LARGEST + 1, power)


@dataclass(frozen=True)
class Copied:
    """State that is copied from flash."""

    value: Value
    offset: int  # in the block of state


@dataclass(frozen=True)
class Widened:
    """State of 32 bits of which most numbers are copied from 16, and the others are listed."""

    value: Value
    offset: int
    narrow: Array  # 0 for those that are listed
    listed: tuple[tuple[int, int], ...]  # where in the block of state, and what


@dataclass(frozen=True)
class Filled:
    """State whose bytes are all alike."""

    value: Value
    offset: int
    byte: int


@dataclass(frozen=True)
class Gathered:
    """Trained channels, which begin as those of the frozen weights that an Overlay lays them over."""

    value: Value
    offset: int
    overlay: Node

    @property
    def frozen(self) -> Value:
        return self.overlay.ins[0]


Initial = Copied | Widened | Filled | Gathered
LISTED = 8  # bytes of flash for a number that is listed


def initial(graph: Graph, frozen: Collection[Value] = ()) -> Iterator[Initial]:
    """Yield how each state value begins, in the order of the block; those that are `frozen`, as a constant there is."""
    overlays = {node.ins[1]: node for node in graph.nodes if isinstance(node.op, Overlay)}
    offsets = state_offsets(graph)
    for value, data in graph.state.items():
        octets = np.frombuffer(data.tobytes(), np.uint8)
        overlay = overlays.get(value)
        if octets.size and (octets == octets[0]).all():
            yield Filled(value, offsets[value], int(octets[0]))
        elif overlay is not None and _gathers(graph, overlay):
            yield Gathered(value, offsets[value], overlay)
        else:
            narrow = None if value in frozen else _widened(value, data, offsets[value])
            yield narrow or Copied(value, offsets[value])


def _widened(value: Value, data: Array, offset: int) -> Widened | None:
    """None where the numbers have no 32 bits, or too many of them need all."""
    if value.type.dtype != "int32":
        return None
    numbers = data.ravel()
    fits = numbers == numbers.astype(np.int16)
    listed = tuple((offset + 4 * int(i), int(numbers[i])) for i in np.flatnonzero(~fits))
    if LISTED * len(listed) >= 2 * numbers.size:
        return None
    return Widened(value, offset, np.where(fits, numbers, 0).astype(np.int16), listed)


def _gathers(graph: Graph, overlay: Node) -> bool:
    """Return whether trained channels begin as the frozen ones they are laid over."""
    frozen, trained = overlay.ins
    assert isinstance(overlay.op, Overlay)
    kept = graph.constants.get(frozen)
    return kept is not None and np.array_equal(kept[..., list(overlay.op.channels)], graph.state[trained])


def roots(graph: Graph) -> dict[Value, Value]:
    """Return the value whose memory a view of a constant or of state is, and what replaces state."""
    roots: dict[Value, Value] = {new: old for old, new in graph.updates.items()}
    for node in graph.nodes:
        if node.op.view:
            source = roots.get(node.ins[0], node.ins[0])
            if source in graph.constants or source in graph.state:
                roots[node.out] = source
    return roots
