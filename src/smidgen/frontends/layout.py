"""Layouts of tensors: dimensions in a file's order, elements in the order of memory.

Files use [batch, channels, rows, columns], kernels read [rows, columns, channels]. A layout is the first view over
memory of the second, so that transposing, flattening and reshaping cost nothing until a kernel needs an order that
memory does not have.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from smidgen.errors import ImportModelError, refuse

Shape = tuple[int, ...]


def axis_of(axis: int, shape: Shape) -> int:
    """Return an axis of a shape, negative ones counted from the end."""
    refuse(not -len(shape) <= axis < len(shape), f"axis {axis} does not fit {list(shape)}")
    return axis % len(shape)


def resolved(asked: Shape, size: int) -> Shape:
    """Return the shape that `size` elements are given; one dimension may be −1, which takes what is left."""
    known = math.prod(n for n in asked if n != -1)
    if any(n < -1 for n in asked) or asked.count(-1) > 1 or (-1 in asked and (known < 1 or size % known)):
        raise ImportModelError(f"it reshapes {size:,} elements to {list(asked)}, which is not a shape")
    return tuple(size // known if n == -1 else n for n in asked)


@dataclass(frozen=True)
class TensorLayout:
    """Each dimension as a product of factors above 1, and the order of these factors in memory."""

    dims: tuple[Shape, ...]
    memory: tuple[int, ...]  # places in `factors`, the slowest first

    @staticmethod
    def of(shape: Shape, order: Shape | None = None) -> TensorLayout:
        """Return the layout of a tensor whose dimensions run in memory in the order given, or in their own."""
        dims = tuple((d,) if d > 1 else () for d in shape)
        place = {i: sum(map(len, dims[:i])) for i, dim in enumerate(dims) if dim}
        return TensorLayout(dims, tuple(place[i] for i in order or range(len(shape)) if i in place))

    @staticmethod
    def channels_last(shape: Shape) -> TensorLayout:
        """Return the layout of [batch, channels, …] with the channels running fastest."""
        return TensorLayout.of(shape, channels_last(len(shape)))

    @property
    def shape(self) -> Shape:
        return tuple(math.prod(dim) for dim in self.dims)

    @property
    def factors(self) -> Shape:
        return tuple(f for dim in self.dims for f in dim)

    @property
    def sizes(self) -> Shape:
        """Return the factors in the order of memory."""
        return tuple(self.factors[i] for i in self.memory)

    def places(self, dim: int) -> Shape:
        """Return the places of one dimension's factors."""
        start = sum(map(len, self.dims[:dim]))
        return tuple(range(start, start + len(self.dims[dim])))

    def order(self, dims: Shape) -> Shape:
        """Return the memory in which these dimensions run one after another."""
        return tuple(place for dim in dims for place in self.places(dim))

    def with_last(self, places: Collection[int]) -> Shape:
        """Return the memory with the factors at these places moved to its end, otherwise in the same order."""
        return tuple(sorted(self.memory, key=lambda i: i in places))

    def permuted(self, perm: Shape) -> TensorLayout:
        """Return the same memory under dimensions in another order."""
        moved = {old: new for new, old in enumerate(self.order(perm))}
        return TensorLayout(tuple(self.dims[p] for p in perm), tuple(moved[i] for i in self.memory))

    def reshaped(self, shape: Shape) -> TensorLayout | None:
        """Return the same memory under other dimensions; None where their elements would not follow one another."""
        if self.memory == tuple(range(len(self.memory))):  # that of the dimensions
            return TensorLayout.of(shape)
        left = list(enumerate(self.factors))  # unused factors, each with its mark in memory
        memory: list[tuple[int, ...]] = [(i,) for i in self.memory]
        used: list[int] = []
        dims: list[Shape] = []
        for size in shape:
            dim: list[int] = []
            while math.prod(dim) < size:
                missing = size // math.prod(dim)
                mark, factor = left.pop(0)
                if missing % factor and factor % missing:
                    return None
                if factor > missing:  # split: the slower part is ours
                    new = len(self.factors) + len(used)
                    left.insert(0, (new, factor // missing))
                    memory = [part for one in memory for part in ([one, (new,)] if one == (mark,) else [one])]
                    factor = missing
                used.append(mark)
                dim.append(factor)
            dims.append(tuple(dim))
        place = {mark: i for i, mark in enumerate(used)}
        return TensorLayout(tuple(dims), tuple(place[mark] for (mark,) in memory))

    def refined(self, dims: tuple[Shape, ...]) -> TensorLayout | None:
        """Return the same layout with these factors; None where they cut its present ones."""
        finer = self.reshaped(tuple(f for dim in dims for f in dim))
        return None if finer is None or self.shape != tuple(map(math.prod, dims)) else TensorLayout(dims, finer.memory)


def channels_last(rank: int) -> Shape:
    """Return the order of dimensions with the batch first and the channels last."""
    return (0, *range(2, rank), 1) if rank > 1 else tuple(range(rank))


def common_factors(a: Shape, b: Shape) -> Shape | None:
    """Return the coarsest factors that both products can be cut into; None where there are none."""
    left, right, found = list(a), list(b), []
    while left and right:
        small = min(left[0], right[0])
        for side in (left, right):
            if side[0] % small:
                return None
            side[0] //= small
            if side[0] == 1:
                side.pop(0)
        found.append(small)
    return tuple(found)


def moves(now: Shape, then: Shape) -> tuple[list[Shape], Shape]:
    """Return the runs of factors that stay together between two orders of memory, and the permutation of the runs."""
    runs: list[list[int]] = []
    for place in then:
        at = now.index(place)
        if runs and at == now.index(runs[-1][-1]) + 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    before = sorted(runs, key=lambda run: now.index(run[0]))
    return [tuple(run) for run in before], tuple(before.index(run) for run in runs)


def one_step(now: Shape, then: Shape) -> Shape:
    """Return the memory after moving only the first misplaced run to its place.

    That is a transpose of at most four dimensions: the runs in place already, the run, those it passes, and the rest.
    """
    runs, _ = moves(now, then)
    at = next(i for i, place in enumerate(then) if now[i] != place)
    run = next(run for run in runs if run[0] == then[at])
    rest = tuple(place for place in now[at:] if place not in run)
    return (*now[:at], *run, *rest)
