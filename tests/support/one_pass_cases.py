"""Cases of the ops that learn in one pass: sums that samples gave, sums that are damaged, and the heads of both."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

import numpy as np

from smidgen import ops
from smidgen.ir import Array, Builder, Op, Type, Value
from smidgen.numerics.one_pass import MOST_SAMPLES, Sums, products
from tests.support.case_parts import Rng
from tests.support.training_inputs import Feed, TrainingCase, activation, case, label

SIZES = ((2, 8), (3, 1), (5, 37), (10, 33))  # classes, features


def drawn_sums(rng: Rng, classes: int, d: int, kind: int | None = None) -> Sums:
    """Sums of samples: ordinary ones, one a class, all alike, as many as there may be, none, or damaged ones."""
    kind = int(rng.integers(0, 7)) if kind is None else kind
    if kind == 5:
        return Sums.empty(classes, d)
    count = classes if kind == 1 else int(rng.integers(classes, 40 * classes))
    labels = np.arange(count) % classes if kind == 1 else rng.integers(0, max(1, classes - 1), count)
    centres = rng.integers(-60, 61, (classes, d))
    x = np.clip(centres[labels] + rng.normal(0, 12, (count, d)).astype(np.int64), -128, 127)
    x = np.tile(x[:1], (count, 1)) if kind == 2 else x
    weight = MOST_SAMPLES // count if kind == 3 else 1
    n, m = np.zeros(classes + 1, np.int64), np.zeros((classes, d), np.int64)
    np.add.at(n, labels, weight)
    np.add.at(m, labels, weight * x)
    g = weight * products(x)
    if kind == 6:
        g[rng.integers(0, g.size)] = int(rng.integers(-(2**31), 2**31))
        n[rng.integers(0, n.size)] += int(rng.integers(-3, 4))
    return Sums(n.astype(np.int32), m.astype(np.int32), g.astype(np.int32))


def sums_feeds(classes: int, d: int) -> tuple[Feed, ...]:
    """The three parts of sums, drawn as one."""

    @cache
    def both(seed: int) -> Sums:
        return drawn_sums(np.random.default_rng(seed), classes, d)

    last: list[int] = []

    def part(name: str, rng: Rng) -> Array:
        if name == "n":
            last[:] = [int(rng.integers(0, 2**31))]
        found: Array = getattr(both(last[0]), name)
        return found

    empty = Sums.empty(classes, d)
    types = {name: Type(getattr(empty, name).shape, "int32") for name in "nmg"}
    return tuple(Feed(type_, partial(part, name)) for name, type_ in types.items())


def _state(g: Builder, rng: Rng, classes: int, d: int) -> tuple[Value, ...]:
    sums = drawn_sums(rng, classes, d, 0)
    return tuple(g.persistent(name, getattr(sums, name)) for name in "nmg")


def _moving(name: str, op: Op, classes: int, d: int, *feeds: Feed) -> TrainingCase:
    """A case in which an op changes sums that go on from run to run."""

    def build(g: Builder, rng: Rng, x: tuple[Value, ...]) -> tuple[Value, ...]:
        states = _state(g, rng, classes, d)
        after = g.emit_all(op, *states, *x)
        g.update(states, after[:3])
        return after

    return case(name, type(op), feeds, build)


def _solving(classes: int, d: int) -> TrainingCase:
    def build(g: Builder, rng: Rng, x: tuple[Value, ...]) -> tuple[Value, ...]:
        head = (rng.normal(0, 1, (classes, d)).astype(np.float32), rng.normal(0, 1, classes).astype(np.float32))
        first = (*head, np.zeros(1, np.float32))
        states = tuple(g.persistent(name, data) for name, data in zip(("w", "b", "limit"), first, strict=True))
        after = g.emit_all(ops.Solve(0.05), *states, *x)
        g.update(states, after[:3])
        return after

    return case(f"solve-{classes}-{d}", ops.Solve, sums_feeds(classes, d), build)


def _far(classes: int, d: int) -> TrainingCase:
    """How far features lie from classes: of sums that are damaged, too, and of limits that are no numbers."""

    def build(g: Builder, rng: Rng, x: tuple[Value, ...]) -> tuple[Value, ...]:
        return (g.emit(ops.Distance(), *x),)

    limits = np.array([0, -1, 1e-30, 0.5, 900, 40_000, np.inf, np.nan], np.float32)
    n, m, _ = sums_feeds(classes, d)
    feeds = (n, m, activation(1, d), Feed(Type((1,), "float32"), lambda rng: rng.choice(limits, 1)))
    return case(f"distance-{classes}-{d}", ops.Distance, feeds, build)


def _sample(classes: int, rng: Rng) -> Array:
    return np.array([rng.integers(-1, classes + 1), rng.choice([1, 1, -1])], np.int32)


def one_pass_cases(sizes: tuple[tuple[int, int], ...] = SIZES) -> Iterator[TrainingCase]:
    """Every op of one pass at every size."""
    way = Feed(Type((1,), "int32"), lambda rng: rng.choice(np.array([1, 1, -1], np.int32), 1))
    for classes, d in sizes:
        sample = Feed(Type((2,), "int32"), partial(_sample, classes))
        yield _moving(f"observe-{classes}-{d}", ops.Observe(), classes, d, activation(1, d), sample)
        yield _moving(f"merge-{classes}-{d}", ops.MergeSums(), classes, d, *sums_feeds(classes, d), way)
        yield _moving(f"forget-class-{classes}-{d}", ops.ForgetClass(), classes, d, label(classes))
        yield _solving(classes, d)
        yield _far(classes, d)
