"""The geometry that convolutions and pools share: kernel, stride, padding and dilation over NHWC maps."""

from dataclasses import dataclass

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Array, Params, RowWindow, Type

Pad = tuple[int, int, int, int]  # top, bottom, left, right
MOST_TAPS = 2**22  # of a pool's window


@dataclass(frozen=True)
class Window:
    """A kernel of `size` sliding over a map, (rows, columns) everywhere."""

    size: tuple[int, int]
    stride: tuple[int, int]
    pad: Pad
    dilation: tuple[int, int] = (1, 1)

    def output(self, x: Type, what: str) -> tuple[int, int]:
        """Return the rows and columns of the output; GraphError where the window does not fit."""
        if len(x.shape) != 4 or x.shape[0] != 1 or min(x.shape) < 1:
            raise GraphError(f"{what} needs a [1, height, width, channels] map, its input is {list(x.shape)}")
        numbers = (*self.size, *self.stride, *self.dilation)
        if min(numbers) < 1 or max(numbers) > 4096 or min(self.pad) < 0 or max(self.pad) > 4096:
            raise GraphError(f"{what} has an impossible window: {self}")
        rows, columns = (
            (x.shape[1 + i] + self.pad[2 * i] + self.pad[2 * i + 1] - self.reach[i]) // self.stride[i] + 1
            for i in (0, 1)
        )
        if rows < 1 or columns < 1:
            raise GraphError(f"{what}'s window {self} is larger than its padded input {list(x.shape)}")
        return rows, columns

    @property
    def reach(self) -> tuple[int, int]:
        """Return the rows and columns from the first tap to the last, both counted."""
        return (self.size[0] - 1) * self.dilation[0] + 1, (self.size[1] - 1) * self.dilation[1] + 1

    @property
    def rows(self) -> RowWindow:
        """Return the rows of the map that each output row is computed from."""
        return RowWindow(self.stride[0], self.pad[0], self.reach[0])

    def patches(self, x: Array, fill: float) -> Array:
        """Return a [rows, columns, kernel rows, kernel columns, channels] view of one padded image."""
        top, bottom, left, right = self.pad
        padded = np.pad(x[0], ((top, bottom), (left, right), (0, 0)), constant_values=fill)
        views = np.lib.stride_tricks.sliding_window_view(padded, self.reach, axis=(0, 1))
        strided = views[:: self.stride[0], :: self.stride[1], :, :: self.dilation[0], :: self.dilation[1]]
        return np.asarray(strided.transpose(0, 1, 3, 4, 2))

    def params(self, x: Type, y: Type) -> Params:
        """Return the geometry fields every spatial kernel's parameter struct begins with."""
        return {
            "x_h": x.shape[1], "x_w": x.shape[2], "x_c": x.shape[3],
            "y_h": y.shape[1], "y_w": y.shape[2], "y_c": y.shape[3],
            "k_h": self.size[0], "k_w": self.size[1],
            "stride_h": self.stride[0], "stride_w": self.stride[1],
            "pad_h": self.pad[0], "pad_w": self.pad[2],
            "dilation_h": self.dilation[0], "dilation_w": self.dilation[1],
        }  # fmt: skip


@dataclass(frozen=True)
class Sliding:
    """The geometry of an op whose window slides over a map, apart from the window's size."""

    stride: tuple[int, int] = (1, 1)
    pad: Pad = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)

    def over(self, size: tuple[int, ...]) -> Window:
        """Return the window of these rows and columns."""
        return Window((size[0], size[1]), self.stride, self.pad, self.dilation)


def same_pad(
    shape: tuple[int, ...], size: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int] = (1, 1)
) -> Pad:
    """Return the padding of TFLite's SAME: output = ceil(input / stride), the odd pixel of padding comes after."""
    pads: list[int] = []
    for i in (0, 1):
        reach = (size[i] - 1) * dilation[i] + 1
        total = max((-(-shape[1 + i] // stride[i]) - 1) * stride[i] + reach - shape[1 + i], 0)
        pads += [total // 2, total - total // 2]
    return pads[0], pads[1], pads[2], pads[3]


def check_pads(what: str, size: tuple[int, int], pad: Pad) -> None:
    """Raise where a pool has windows outside the map, or windows whose sums leave 32 bits."""
    if max(pad[:2]) >= size[0] or max(pad[2:]) >= size[1]:
        raise GraphError(f"{what} of {size} with padding {pad} has windows outside the map")
    if size[0] * size[1] > MOST_TAPS:
        raise GraphError(f"{what} of {size} sums {size[0] * size[1]:,} elements, the most is {MOST_TAPS:,}")


def scatter(columns: Array, window: Window, shape: tuple[int, ...]) -> Array:
    """Add [rows, columns, kernel rows, kernel columns, channels] back to the map its patches came from."""
    (top, bottom, left, right), (_, h, w, c) = window.pad, shape
    rows, cols, kh, kw, _ = columns.shape
    (sh, sw), (dh, dw) = window.stride, window.dilation
    full = np.zeros((h + top + bottom, w + left + right, c), columns.dtype)
    for i in range(kh):
        for j in range(kw):
            full[i * dh : i * dh + rows * sh : sh, j * dw : j * dw + cols * sw : sw] += columns[:, :, i, j]
    return full[None, top : top + h, left : left + w]
