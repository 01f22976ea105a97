"""One call of a Keras layer: its inputs, its config and weights, and the nodes it emits."""

import math
from dataclasses import dataclass

import numpy as np

from smidgen.data.files import Budget
from smidgen.errors import ImportModelError, refuse
from smidgen.frontends.fields import Record
from smidgen.ir import Array, Builder, Op, Value
from smidgen.ops import Reshape
from smidgen.ops.window import Pad, same_pad

Pair = tuple[int, int]
LARGEST = 1 << 16  # number in a layer's config: windows, strides, sizes


@dataclass(frozen=True, eq=False)
class LayerCall:
    """A layer of a model, applied to values."""

    builder: Builder
    budget: Budget
    name: str
    kind: str
    config: Record
    ins: tuple[Value, ...]
    weights: tuple[Array, ...]
    version: int  # of Keras

    @property
    def x(self) -> Value:
        """Return the only input."""
        refuse(len(self.ins) != 1, f"it takes {len(self.ins)} inputs instead of one")
        return self.ins[0]

    @property
    def flat(self) -> bool:
        """Return whether the layer runs over one dimension."""
        return "1D" in self.kind

    def map(self) -> Value:
        """Return the input as a map of rows and columns; one dimension is a row."""
        shape = self.x.type.shape
        if len(shape) != (3 if self.flat else 4):
            raise ImportModelError(f"it is applied to {list(shape)}, which has another number of dimensions")
        if str(self.config.values.get("data_format", "channels_last")) != "channels_last":
            raise ImportModelError("its data_format is not channels_last; convert the model to that")
        return self.emit(Reshape((1, *shape)), self.x) if self.flat else self.x

    def back(self, y: Value) -> Value:
        """Return a map in the shape that the layer gives."""
        return self.emit(Reshape((1, *y.type.shape[2:])), y) if self.flat and len(y.type.shape) == 4 else y

    def emit(self, op: Op, *ins: Value) -> Value:
        return self.builder.emit(op, *ins, name=self.name)

    def constant(self, stem: str, data: Array) -> Value:
        return self.builder.constant(f"{self.name}.{stem}", np.ascontiguousarray(data, np.float32))

    def array(self, index: int, *shape: int) -> Array:
        """Return a weight, which must have this shape."""
        refuse(index >= len(self.weights), f"the file holds {len(self.weights)} of its weights; save the model again")
        found = self.weights[index]
        refuse(found.shape != shape, f"its weight {index} is {list(found.shape)}, expected {list(shape)}")
        return found

    def kernel(self, index: int, *channels: int) -> Array:
        """Return the weights of a window as [rows, columns, *channels]."""
        size = self.pair("kernel_size")
        return self.array(index, *size[1 if self.flat else 0 :], *channels).reshape(*size, *channels)

    def biases(self, index: int, channels: int) -> Array:
        """Return the bias, or zeros if the layer has none."""
        return self.array(index, channels) if self.flag("use_bias", True) else np.zeros(channels, np.float32)

    def bias(self, index: int, channels: int) -> Value:
        return self.constant("b", self.biases(index, channels))

    def flag(self, key: str, default: bool) -> bool:
        found = self.config.values.get(key, default)
        if not isinstance(found, bool):
            raise ImportModelError(f"its {key} is {str(found)[:40]!r} instead of true or false")
        return found

    def number(self, key: str, default: float) -> float:
        found = self.config.values.get(key, default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
            raise ImportModelError(f"its {key} is {str(found)[:40]!r} instead of a number")
        return float(found)

    def size(self, key: str, default: int) -> int:
        found = self.number(key, default)
        refuse(not 1 <= found <= LARGEST or found != int(found), f"its {key} is {found:g}; 1 to {LARGEST:,} are read")
        return int(found)

    def pair(self, key: str, default: Pair = (1, 1)) -> Pair:
        """Return rows and columns from one number or two; one dimension is columns."""
        found = self.config.values.get(key)
        if found is None:
            return default
        given = (found,) if isinstance(found, int) else tuple(self.config.integers(key))
        if len(given) == 1:
            given = (1, *given) if self.flat else given * 2
        if len(given) != 2 or not all(1 <= n <= LARGEST for n in given):
            raise ImportModelError(f"its {key} is {list(given[:4])}; two numbers from 1 to {LARGEST:,} are read")
        return given[0], given[1]

    def padding(self, x: Value, size: Pair, stride: Pair, dilation: Pair = (1, 1)) -> Pad:
        kind = self.config.values.get("padding", "valid")
        if kind == "valid":
            return (0, 0, 0, 0)
        if kind == "same":
            return same_pad(x.type.shape, size, stride, dilation)
        if kind == "causal" and self.flat:
            return (0, 0, (size[1] - 1) * dilation[1], 0)
        raise ImportModelError(f"its padding is {str(kind)[:40]!r}; valid, same and causal are read")
