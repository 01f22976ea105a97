"""What ONNX's operators that take parts of tensors mean: resizes, slices, splits, repeats, gathers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from smidgen.errors import ImportModelError
from smidgen.frontends.blocks import sliced
from smidgen.frontends.channels import FileTensor
from smidgen.frontends.onnx.context import OnnxCall
from smidgen.ir import Array

LARGEST_SIDE = 1 << 14  # of what is resized or repeated
# Whether corners or centres lie on each other.
BILINEAR: Mapping[str, tuple[bool, bool]] = {
    "align_corners": (True, False), "asymmetric": (False, False), "half_pixel": (False, True),
    "pytorch_half_pixel": (False, True),
}  # fmt: skip
ROUNDINGS: Mapping[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda at: np.ceil(at - np.float32(0.5)),
    "round_prefer_ceil": lambda at: np.floor(at + np.float32(0.5)), "floor": np.floor, "ceil": np.ceil,
}  # fmt: skip


def axis_of(axis: int, rank: int) -> int:
    """An axis, those below 0 counted from the end."""
    if not -rank <= axis < rank:
        raise ImportModelError(f"axis {axis} does not fit {rank} dimensions")
    return axis % rank


def resized(call: OnnxCall, x: FileTensor) -> dict[int, tuple[int, float]]:
    """What a Resize asks of each dimension that it changes: its size afterwards, and by how much it grows."""
    rank = len(x.shape)
    axes = tuple(axis_of(a, rank) for a in call.integers("axes", tuple(range(rank))))
    call.forbid("keep_aspect_ratio_policy", "stretch")
    if call.has_input(3):
        sizes = call.numbers(3)
        scales = [n / x.shape[a] for n, a in zip(sizes, axes, strict=False)]
    else:
        scales = [float(f) for f in call.constant(2).data.astype(np.float32).reshape(-1)]
        sizes = tuple(int(np.floor(x.shape[a] * f)) for f, a in zip(scales, axes, strict=False))
    if not len(sizes) == len(scales) == len(axes) or not all(0 < n <= LARGEST_SIDE for n in sizes):
        raise ImportModelError(f"it resizes {list(x.shape)} to {list(sizes)[:8]}; give positive sizes")
    changes = zip(axes, sizes, scales, strict=True)
    return {axis: (n, scale) for axis, n, scale in changes if n != x.shape[axis] or scale != 1}


def positions(call: OnnxCall, size: int, count: int, scale: float) -> Array:
    """Where the points of a resized dimension lie in the original one, in float32."""
    kind, points = call.text("coordinate_transformation_mode", "half_pixel"), np.arange(count).astype(np.float32)
    single, half = np.float32(scale), np.float32(0.5)
    if kind == "asymmetric":
        return np.asarray(points / single)
    if kind == "align_corners":
        return np.asarray(points * np.float32(size - 1) / np.float32(max(count - 1, 1)))
    if kind == "pytorch_half_pixel" and count == 1:
        return np.zeros_like(points)
    if kind in ("half_pixel", "pytorch_half_pixel"):
        return np.asarray((points + half) / single - half)
    if kind == "half_pixel_symmetric":
        offset = np.float32(size / 2 * (1 - count / (scale * size)))
        return np.asarray(offset + (points + half) / single - half)
    raise ImportModelError(f"coordinate_transformation_mode '{kind[:40]}' is not supported; use half_pixel")


def _resize(call: OnnxCall) -> FileTensor:
    x, mode = call.tensor(0), call.text("mode", "nearest")
    if mode == "linear":
        return _bilinear(call, x)
    rounding = ROUNDINGS.get(call.text("nearest_mode", "round_prefer_floor"))
    if mode != "nearest" or rounding is None:
        raise ImportModelError(f"resizing by {mode[:20]} is not supported; resize to the nearest, or linearly")
    places = {
        axis: np.clip(rounding(positions(call, x.shape[axis], n, scale)), 0, x.shape[axis] - 1).astype(int).tolist()
        for axis, (n, scale) in resized(call, x).items()
    }
    return call.c.take(x, places)


def _bilinear(call: OnnxCall, x: FileTensor) -> FileTensor:
    kind = call.text("coordinate_transformation_mode", "half_pixel")
    if kind not in BILINEAR:
        raise ImportModelError(f"coordinate_transformation_mode '{kind[:40]}' is not supported; use half_pixel")
    for name in ("antialias", "exclude_outside"):
        call.forbid(name, 0)
    changed, rank = resized(call, x), len(x.shape)
    sizes = tuple(changed.get(i, (n, 1.0))[0] for i, n in enumerate(x.shape))
    if rank not in (3, 4) or {0, 1} & set(changed):
        raise ImportModelError(f"it resizes {list(x.shape)} to {list(sizes)}; only rows and columns are resized")
    if not call.has_input(3) and any(n != x.shape[i] * f for i, (n, f) in changed.items()):
        raise ImportModelError(f"it resizes {list(x.shape)} by factors that give no whole sizes; give sizes")
    if kind == "pytorch_half_pixel" and any(n == 1 for n, _ in changed.values()):
        raise ImportModelError("it resizes to one row or column by pytorch_half_pixel; use half_pixel")
    return call.c.bilinear(x, sizes[2:], *BILINEAR[kind])


def _slice(call: OnnxCall) -> FileTensor:
    x, starts, ends = call.tensor(0), call.numbers(1), call.numbers(2)
    rank = len(x.shape)
    axes = call.numbers(3) if call.has_input(3) else tuple(range(len(starts)))
    steps = call.numbers(4) if call.has_input(4) else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ImportModelError(f"it has {len(starts)} starts and {len(ends)} ends for {len(axes)} axes")
    places = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = x.shape[axis_of(axis, rank)]
        stop = None if step < 0 and end < -size else end  # below the first element: Python spells it None
        places[axis_of(axis, rank)] = sliced(size, start, stop, step)
    return call.c.take(x, places)


def _split(call: OnnxCall) -> tuple[FileTensor, ...]:
    x, count = call.tensor(0), len(call.operator.outputs)
    axis = axis_of(call.integer("axis", 0), len(x.shape))
    if call.has_input(1):
        return call.c.split(x, axis, call.numbers(1))
    each = -(-x.shape[axis] // count)
    return call.c.split(x, axis, (*(each,) * (count - 1), x.shape[axis] - each * (count - 1)))


def _tile(call: OnnxCall) -> FileTensor:
    x, times = call.tensor(0), call.numbers(1)
    if len(times) != len(x.shape) or not all(0 < n <= LARGEST_SIDE for n in times):
        raise ImportModelError(f"it repeats {list(x.shape)} {list(times)[:8]} times; export the model again")
    return call.c.take(x, {i: list(range(x.shape[i])) * n for i, n in enumerate(times) if n > 1})


def _gather(call: OnnxCall) -> FileTensor:
    """Elements at constant places along one dimension; a single place that is no list makes it go."""
    x, found = call.tensor(0), call.constant(1).data
    axis = axis_of(call.integer("axis", 0), len(x.shape))
    if found.ndim > 1 or found.dtype.kind != "i" or found.size > LARGEST_SIDE:
        raise ImportModelError(f"it gathers by {found.dtype}{list(found.shape)}; gather by a list of places")
    size = x.shape[axis]
    y = call.c.take(x, {axis: [int(n) + size if n < 0 else int(n) for n in found.ravel()]})
    return y if found.ndim else call.c.reshape(y, (*x.shape[:axis], *x.shape[axis + 1 :]))


MOVING_RULES: Mapping[str, Callable[[OnnxCall], FileTensor | tuple[FileTensor, ...]]] = {
    "Gather": _gather,
    "Resize": _resize,
    "Slice": _slice,
    "Split": _split,
    "Tile": _tile,
}
