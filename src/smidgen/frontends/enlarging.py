"""Transposed convolutions as what they are: a convolution for each phase of the output, all at once, then interleaved.

Element i of the output sums x[a] · w[i + pad − a · stride]. With i + pad = stride · q + r, those of one phase r are a
convolution of x with every stride-th weight. Phases become channels of one convolution, and then rows and columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smidgen import ops
from smidgen.errors import ImportModelError
from smidgen.ir import Array, Builder, QParams, Value

Pair = tuple[int, int]
LARGEST_STRIDE = 64


@dataclass(frozen=True)
class Enlarging:
    """A transposed convolution: rows and columns of its kernel, its stride, what is cut off before, and its output."""

    kernel: Pair
    stride: Pair
    cut: Pair
    output: Pair

    def check(self) -> None:
        """Raise where no output would be computed, or none of the input read."""
        small = all(1 <= s <= LARGEST_STRIDE for s in self.stride) and min(*self.kernel, *self.output) >= 1
        if not small or any(not 0 <= c < k for c, k in zip(self.cut, self.kernel, strict=True)):
            raise ImportModelError(
                f"a transposed convolution of {list(self.kernel)} by strides {list(self.stride)}, cut by "
                f"{list(self.cut)} to {list(self.output)}, is not supported; use strides up to {LARGEST_STRIDE}"
            )

    def taps(self, i: int) -> int:
        """Rows or columns of the kernel of one phase."""
        return -(-self.kernel[i] // self.stride[i])

    def pads(self, size: Pair) -> tuple[int, int, int, int]:
        """The padding of the convolution whose phases cover the output."""
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
        """The quantization of the weights' channels, for each phase."""
        return q if q.axis is None else QParams.per_channel(q.scale * self.phases, 0)


def enlarge(
    g: Builder, how: Enlarging, activation: str, x: Value, w: Value, b: Value, q: QParams | None, name: str | None
) -> Value:
    """The map that a transposed convolution gives; w and b are those of the phases."""
    op = ops.Conv2D((1, 1), how.pads((x.type.shape[1], x.type.shape[2])), (1, 1), 1, activation)
    y = g.emit(op, x, w, b, q=q, name=name)
    (sh, sw), (_, h, wide, c) = how.stride, y.type.shape
    if how.phases > 1:
        apart = g.emit(ops.Reshape((h, wide, sh, c // sh)), y, name=name)
        moved = g.emit(ops.Transpose((0, 2, 1, 3)), apart, name=name) if sh > 1 else apart
        y = g.emit(ops.Reshape((1, h * sh, wide * sw, c // how.phases)), moved, name=name)
    start = tuple(c % s for c, s in zip(how.cut, how.stride, strict=True))
    if (*start, *how.output) == (0, 0, *y.type.shape[1:3]):
        return y
    stop = (1, start[0] + how.output[0], start[1] + how.output[1], y.type.shape[3])
    return g.emit(ops.Crop((0, *start, 0), stop), y, name=name)
