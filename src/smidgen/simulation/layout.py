"""Layout of a graph's tensors in a fleet: channels before images and positions, a lane for each device in front."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from smidgen import numerics
from smidgen.errors import InputError
from smidgen.ir import Array, Type
from smidgen.simulation import integers


@dataclass(frozen=True)
class Setting:
    """The place a fleet runs, its number of devices, and the integer arithmetic, compiled on a GPU."""

    device: torch.device
    devices: int
    run: SimpleNamespace
    by_reference: list[str] = field(default_factory=list)  # ops that numpy computes: no CUDA graph holds them

    def whole(self, numbers: object) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(numbers, np.int64)).to(self.device)

    def real(self, numbers: object) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(numbers, np.float32)).to(self.device)

    def limits(self, y: Type, activation: str = "none") -> Tensor:
        """Return the limits of an output whose zero point is taken off."""
        return self.whole([limit - y.zero for limit in numerics.activation_range(activation, y)])


def setting(device: str | torch.device, devices: int) -> Setting:
    """Return a setting; on a GPU the arithmetic is compiled, each function once for all shapes."""
    where = torch.device(device)
    compiled: Callable[..., object] = (lambda function: function) if where.type == "cpu" else _compiled
    return Setting(where, devices, SimpleNamespace(**{f.__name__: compiled(f) for f in integers.COMPILED}))


def _compiled(function: Callable[..., object]) -> object:
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 128)  # shapes of 1 are their own
    return torch.compile(function, dynamic=True, fullgraph=True)


def zero_of(type: Type) -> int:
    return type.q.zero if type.dtype == "int8" and type.q is not None else 0


def to_lanes(array: Array, type: Type) -> Tensor:
    """Convert [images, …, channels] of a type → [1, channels, images, …], zero point taken off; int8 in float32."""
    if type.dtype == "int8":
        array = array.astype(np.float32) - zero_of(type)
    array = array[None] if array.ndim == 1 else array
    order = (array.ndim - 1, 0, *range(1, array.ndim - 1))
    return torch.from_numpy(np.ascontiguousarray(array.transpose(order)))[None]


def from_lanes(tensor: Tensor, type: Type) -> Array:
    """Convert [devices, channels, images, …] → [devices, images, …, channels] of the type."""
    order = (0, *range(2, tensor.dim()), 1)
    array: Array = tensor.permute(order).cpu().numpy()
    return (np.rint(array) + zero_of(type)).astype(np.int8) if type.dtype == "int8" else array.astype(type.dtype)


def check_single(type: Type, what: str) -> None:
    """Raise InputError unless a tensor is of one image."""
    if len(type.shape) > 1 and type.shape[0] != 1:
        raise InputError(f"%{what} has {type.shape[0]} rows; a fleet can run networks of one row per image only")


def as_weights(array: Array, type: Type) -> Tensor:
    """Convert [outputs, …, channels] → [1, outputs, taps, channels]; a bias stays [1, outputs]."""
    if array.ndim == 1:
        return torch.from_numpy(array.copy())[None]
    kept = array.astype(np.float32) if type.dtype == "int8" else array
    taps = math.prod(array.shape[1:-1])
    return torch.from_numpy(np.ascontiguousarray(kept).reshape(1, array.shape[0], taps, array.shape[-1]).copy())


def unflatten(x: Tensor, dimension: int, sizes: Sequence[int]) -> Tensor:
    """Split one dimension into several; one of the sizes may be −1."""
    return x.reshape(*x.shape[:dimension], *sizes, *x.shape[dimension + 1 :])


def in_parts(x: Tensor, size: int) -> list[Tensor]:
    """Split along the first dimension into parts of `size`; the last may be shorter."""
    return [x[at : at + size] for at in range(0, len(x), size)]
