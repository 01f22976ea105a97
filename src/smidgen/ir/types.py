"""The type of a tensor: shape, dtype, and what its integers mean."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smidgen.errors import GraphError

Array = NDArray[Any]
Params = Mapping[str, "int | float | Array"]

DTYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(name) for name in ("int8", "uint8", "int16", "int32", "uint32", "float32")
}
MAX_RANK = 4
MAX_BYTES = 2**28  # of one tensor: far above any microcontroller, far below what would exhaust a laptop
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
MAX_NAME = 64  # characters of a value's name that comes from a file


def identifier(text: str) -> str:
    """Return the text as a value's name, with '_' for characters that a name may not hold."""
    name = re.sub(r"[^A-Za-z0-9_.]+", "_", text)[:MAX_NAME].strip("_.")
    return f"_{name}" if name[:1].isdigit() else name


@dataclass(frozen=True)
class QParams:
    """real = scale · (q − zero); several scales run along `axis`, then `zero` is 0."""

    scale: tuple[float, ...]
    zero: int = 0
    axis: int | None = None

    @staticmethod
    def per_tensor(scale: float, zero: int = 0) -> QParams:
        return QParams((float(np.float32(scale)),), int(zero))

    @staticmethod
    def per_channel(scales: Iterable[float], axis: int) -> QParams:
        return QParams(tuple(float(np.float32(s)) for s in scales), 0, axis)

    @property
    def one(self) -> float:
        """Return the scale of a tensor quantized as a whole."""
        if len(self.scale) != 1:
            raise GraphError(f"one scale was expected, the tensor has {len(self.scale)} along axis {self.axis}")
        return self.scale[0]


@dataclass(frozen=True)
class Type:
    """Shape, dtype and, for quantized tensors, what the integers mean."""

    shape: tuple[int, ...]
    dtype: str = "int8"
    q: QParams | None = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * DTYPES[self.dtype].itemsize

    @property
    def zero(self) -> int:
        """Return the integer that stands for 0.0; 0 where the tensor is not quantized."""
        return self.q.zero if self.q else 0

    @property
    def scale(self) -> float:
        """Return the one scale of a quantized tensor."""
        if self.q is None:
            raise GraphError(f"a quantized tensor was expected, {self.dtype}{list(self.shape)} carries no scale")
        return self.q.one
