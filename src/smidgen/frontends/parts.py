"""Parts of tensors by places along each dimension: slices, splits, repeats and gathers of any file, in as few nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from smidgen import ops
from smidgen.errors import ImportModelError
from smidgen.ir import MAX_BYTES, Builder, Value

Places = Sequence[int]  # along one dimension of the input, one for each of the output


def take(g: Builder, x: Value, places: Sequence[Places], name: str | None = None) -> Value:
    """The elements of x at these places: cropped where they follow one another, picked where they do not."""
    shape = x.type.shape
    check_places(shape, places)
    whole = [_follow(p) and (p[0], len(p)) == (0, n) for p, n in zip(places, shape, strict=True)]
    if all(whole):
        return g.emit(ops.Reshape(shape), x, name=name)
    runs = [_follow(p) for p in places]
    if not all(w or not run for w, run in zip(whole, runs, strict=True)):
        spans = [(p[0], p[-1] + 1) if run else (0, n) for p, run, n in zip(places, runs, shape, strict=True)]
        x = g.emit(ops.Crop(tuple(a for a, _ in spans), tuple(b for _, b in spans)), x, name=name)
    return pick(g, x, {i: tuple(p) for i, (p, run) in enumerate(zip(places, runs, strict=True)) if not run}, name)


def pick(g: Builder, x: Value, places: dict[int, tuple[int, ...]], name: str | None = None) -> Value:
    """The elements at places along some dimensions: rows and columns of a map at once, others one after another."""
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


def _follow(places: Places) -> bool:
    """Whether each place is the one behind the last."""
    if isinstance(places, range):
        return places.step == 1 or len(places) == 1
    return list(places) == list(range(places[0], places[0] + len(places)))


def check_places(shape: tuple[int, ...], places: Sequence[Places]) -> None:
    """Raise unless something is taken along every dimension, and all of it is there."""
    if len(places) != len(shape):
        raise ImportModelError(f"it takes parts along {len(places)} dimensions of {list(shape)}")
    for axis, (along, size) in enumerate(zip(places, shape, strict=True)):
        if not along:
            raise ImportModelError(f"it takes nothing of dimension {axis} of {list(shape)}; export the model again")
        ends = (along[0], along[-1]) if isinstance(along, range) else along  # a range of any length is looked at once
        if min(ends) < 0 or max(ends) >= size:
            raise ImportModelError(f"it takes places {min(ends)} to {max(ends)} of dimension {axis} of {list(shape)}")
    if 4 * math.prod(map(len, places)) > MAX_BYTES:
        raise ImportModelError(f"{[len(p) for p in places]} would take more than {MAX_BYTES:,} bytes; use less")


def sliced(size: int, start: int | None, stop: int | None, step: int) -> range:
    """What Python's slices take of so many: negative numbers count from the end, and all are limited."""
    if step == 0:
        raise ImportModelError("it takes a slice with a step of 0; export the model again")
    return range(*slice(start, stop, step).indices(size))
