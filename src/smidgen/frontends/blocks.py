"""Groups of nodes that readers of every format emit, and facts about nodes that their writers ask for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smidgen import ops
from smidgen.errors import ImportModelError, refuse
from smidgen.ir import MAX_BYTES, Array, Builder, Node, QParams, Value

Pair = tuple[int, int]
Places = Sequence[int]  # along one dimension of the input, one for each element of the output
LARGEST_STRIDE = 64  # of a transposed convolution


def where(node: Node) -> str:
    """Return a node's place for error messages."""
    return f"{type(node.op).__name__} of %{node.outs[0].name}"


def sum_scales(node: Node) -> tuple[float, ...]:
    """Return the scales of a layer's sums, and so of its bias, in float32."""
    x, w, _ = (value.type for value in node.ins)
    assert w.q is not None
    return tuple(float(s) for s in np.float32(x.scale) * np.array(w.q.scale, np.float32))


def take(g: Builder, x: Value, places: Sequence[Places], name: str | None = None) -> Value:
    """Emit the elements of x at these places: cropped where they are consecutive, picked where they are not."""
    shape = x.type.shape
    check_places(shape, places)
    whole = [_consecutive(p) and (p[0], len(p)) == (0, n) for p, n in zip(places, shape, strict=True)]
    if all(whole):
        return g.emit(ops.Reshape(shape), x, name=name)
    runs = [_consecutive(p) for p in places]
    if not all(w or not run for w, run in zip(whole, runs, strict=True)):
        spans = [(p[0], p[-1] + 1) if run else (0, n) for p, run, n in zip(places, runs, shape, strict=True)]
        x = g.emit(ops.Crop(tuple(a for a, _ in spans), tuple(b for _, b in spans)), x, name=name)
    return _pick(g, x, {i: tuple(p) for i, (p, run) in enumerate(zip(places, runs, strict=True)) if not run}, name)


def _pick(g: Builder, x: Value, places: dict[int, tuple[int, ...]], name: str | None) -> Value:
    """Emit the elements at places along some dimensions: rows and columns of a map at once, others one by one."""
    shape = x.type.shape
    if len(shape) == 4 and shape[0] == 1 and set(places) <= {1, 2} and places:
        return g.emit(ops.Pick(places.get(1, ()), places.get(2, ())), x, name=name)
    for axis, along in places.items():
        shape = x.type.shape
        outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        view = g.emit(ops.Reshape((1, outer, shape[axis], inner)), x)
        picked = g.emit(ops.Pick((), along), view, name=name)
        x = g.emit(ops.Reshape((*shape[:axis], len(along), *shape[axis + 1 :])), picked, name=name)
    return x


def _consecutive(places: Places) -> bool:
    if isinstance(places, range):
        return places.step == 1 or len(places) == 1
    return list(places) == list(range(places[0], places[0] + len(places)))


def check_places(shape: tuple[int, ...], places: Sequence[Places]) -> None:
    """Raise unless every dimension gives at least one element, and every place exists."""
    refuse(len(places) != len(shape), f"it takes parts along {len(places)} dimensions of {list(shape)}")
    for axis, (along, size) in enumerate(zip(places, shape, strict=True)):
        refuse(not along, f"it takes nothing of dimension {axis} of {list(shape)}")
        ends = (along[0], along[-1]) if isinstance(along, range) else along  # a range may be too long to walk
        if min(ends) < 0 or max(ends) >= size:
            raise ImportModelError(f"it takes places {min(ends)} to {max(ends)} of dimension {axis} of {list(shape)}")
    if 4 * math.prod(map(len, places)) > MAX_BYTES:
        raise ImportModelError(f"{[len(p) for p in places]} would take more than {MAX_BYTES:,} bytes; use less")


def sliced(size: int, start: int | None, stop: int | None, step: int) -> range:
    """Return the places that a Python slice takes of `size` elements."""
    refuse(step == 0, "it takes a slice with a step of 0")
    return range(*slice(start, stop, step).indices(size))


@dataclass(frozen=True)
class TransposedConv:
    """A transposed convolution as one convolution per phase of its output, computed at once and then interleaved.

    Element i of the output sums x[a] · w[i + cut − a · stride]. With i + cut = stride · q + r, the elements of one
    phase r are a convolution of x with every stride-th weight. Phases become channels of one convolution, and then
    rows and columns.
    """

    kernel: Pair
    stride: Pair
    cut: Pair  # rows and columns dropped before the output
    output: Pair

    def __post_init__(self) -> None:
        """Raise where the output would be empty, or read nothing of the input."""
        small = all(1 <= s <= LARGEST_STRIDE for s in self.stride) and min(*self.kernel, *self.output) >= 1
        if not small or any(not 0 <= c < k for c, k in zip(self.cut, self.kernel, strict=True)):
            raise ImportModelError(
                f"a transposed convolution of {list(self.kernel)} by strides {list(self.stride)}, cut by "
                f"{list(self.cut)} to {list(self.output)}, is not supported; use strides up to {LARGEST_STRIDE}"
            )

    def taps(self, i: int) -> int:
        """Return the rows or columns of one phase's kernel."""
        return -(-self.kernel[i] // self.stride[i])

    def pads(self, size: Pair) -> tuple[int, int, int, int]:
        """Return the padding of the convolution whose phases cover the output."""
        found: list[int] = []
        for i in (0, 1):
            first, end = self.cut[i] // self.stride[i], -(-(self.cut[i] + self.output[i]) // self.stride[i])
            found += [self.taps(i) - 1 - first, max(0, end - size[i])]
        return found[0], found[1], found[2], found[3]

    def weights(self, w: Array) -> Array:
        """[out, rows, columns, in] → [phases · out, taps, taps, in], the phases of rows slowest."""
        (kh, kw), (sh, sw), (th, tw) = self.kernel, self.stride, (self.taps(0), self.taps(1))
        whole = np.zeros((w.shape[0], th * sh, tw * sw, w.shape[3]), w.dtype)
        whole[:, :kh, :kw] = w
        split = whole.reshape(w.shape[0], th, sh, tw, sw, w.shape[3])[:, ::-1, :, ::-1]
        return split.transpose(2, 4, 0, 1, 3, 5).reshape(-1, th, tw, w.shape[3])

    @property
    def phases(self) -> int:
        return self.stride[0] * self.stride[1]

    def scales(self, q: QParams) -> QParams:
        """Return the quantization of the weights' channels, repeated for each phase."""
        return q if q.axis is None else QParams.per_channel(q.scale * self.phases, 0)

    def emit(
        self, g: Builder, activation: str, x: Value, w: Value, b: Value, q: QParams | None, name: str | None
    ) -> Value:
        """Emit the output map; w and b hold every phase."""
        op = ops.Conv2D((1, 1), self.pads((x.type.shape[1], x.type.shape[2])), (1, 1), 1, activation)
        y = g.emit(op, x, w, b, q=q, name=name)
        (sh, sw), (_, h, wide, c) = self.stride, y.type.shape
        if self.phases > 1:
            apart = g.emit(ops.Reshape((h, wide, sh, c // sh)), y, name=name)
            moved = g.emit(ops.Transpose((0, 2, 1, 3)), apart, name=name) if sh > 1 else apart
            y = g.emit(ops.Reshape((1, h * sh, wide * sw, c // self.phases)), moved, name=name)
        start = tuple(c % s for c, s in zip(self.cut, self.stride, strict=True))
        if (*start, *self.output) == (0, 0, *y.type.shape[1:3]):
            return y
        stop = (1, start[0] + self.output[0], start[1] + self.output[1], y.type.shape[3])
        return g.emit(ops.Crop((0, *start, 0), stop), y, name=name)
