"""Inputs of training cases, drawn as gradients, carries or rates are, and windows over maps."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from smidgen.ir import Array, Builder, Graph, Node, Op, QParams, Type, Value
from smidgen.numerics import stochastic
from smidgen.ops.gradient import GradOp, mask_bytes
from smidgen.ops.window import Pad, Window, same_pad
from tests.support.case_parts import Case, Rng

RUNS = 6
Draw = Callable[[Rng], Array]
Build = Callable[[Builder, Rng, tuple[Value, ...]], tuple[Value, ...]]


@dataclass(frozen=True)
class Feed:
    """An input of a case, and how it is drawn."""

    type: Type
    draw: Draw


@dataclass(frozen=True)
class TrainingCase(Case):
    """A case whose inputs are drawn as its op expects them."""

    feeds: tuple[Feed, ...]

    def inputs(self, run: int) -> tuple[Array, ...]:
        rng = np.random.default_rng((run, zlib.crc32(self.name.encode())))
        return tuple(feed.draw(rng) for feed in self.feeds)


def case(name: str, op: type[Op], feeds: tuple[Feed, ...], build: Build) -> TrainingCase:
    def whole(rng: Rng) -> Graph:
        g = Builder("case")
        return g.graph(*build(g, rng, tuple(g.input(f"x{i}", feed.type) for i, feed in enumerate(feeds))))

    return TrainingCase(name, op, whole, feeds)


def gradient(*shape: int) -> Feed:
    """A gradient tensor: anything but −128; small ones, large ones and the ends."""

    def draw(rng: Rng) -> Array:
        most = int(rng.choice([1, 12, 127]))
        ends = rng.choice(np.array([-127, 127], np.int8), shape)
        spread = rng.integers(-most, most + 1, shape).astype(np.int8)
        return ends if rng.random() < 0.2 else spread

    return Feed(Type(shape, "int8"), draw)


def activation(*shape: int, zero: int = -3) -> Feed:
    """An int8 tensor: anything at all."""

    def draw(rng: Rng) -> Array:
        ends = rng.choice(np.array([-128, 127], np.int8), shape)
        return ends if rng.random() < 0.3 else rng.integers(-128, 128, shape).astype(np.int8)

    return Feed(Type(shape, "int8", QParams.per_tensor(0.05, zero)), draw)


def mask(size: int) -> Feed:
    return Feed(Type((mask_bytes(size),), "uint8"), lambda rng: rng.integers(0, 256, mask_bytes(size)).astype(np.uint8))


def step_state(*exponents: int) -> Feed:
    """A step_state at any step, even before its wrap, whose gradients have these exponents."""

    def draw(rng: Rng) -> Array:
        step = rng.choice(np.array([0, 1, 2, 3, 1000, 2**31 - 1, -2, -1]))
        levels = [((e + 7) << stochastic.LEVEL_BITS) - int(rng.integers(0, 256)) for e in exponents]
        return np.array([step, rng.integers(0, 2**31), *levels], np.int64).astype(np.int32)

    return Feed(Type((stochastic.FIRST_LEVEL + len(exponents),), "int32"), draw)


def reals(*shape: int, spread: float = 1.0, edges: tuple[float, ...] = ()) -> Feed:
    """float32 numbers; in some runs, some of them are `edges`."""

    def draw(rng: Rng) -> Array:
        x = rng.normal(0, spread, shape).astype(np.float32)
        if edges and rng.random() < 0.5:
            x = np.where(rng.random(shape) < 0.3, rng.choice(np.array(edges, np.float32), shape), x)
        return x

    return Feed(Type(shape, "float32"), draw)


def integers(*shape: int, most: int) -> Feed:
    def draw(rng: Rng) -> Array:
        limit = int(rng.choice([1, most // 1000 + 1, most]))
        return rng.integers(-limit, limit + 1, shape).astype(np.int32)

    return Feed(Type(shape, "int32"), draw)


def wholes(*shape: int) -> Feed:
    """int16, small or of all sizes."""

    def draw(rng: Rng) -> Array:
        limit = int(rng.choice([1, 100, 32767]))
        return rng.integers(-limit, limit + 1, shape).astype(np.int16)

    return Feed(Type(shape, "int16"), draw)


def label(classes: int) -> Feed:
    """A class, or a number that is none."""
    return Feed(Type((1,), "int32"), lambda rng: rng.integers(-1, classes + 1, 1).astype(np.int32))


def cells(h: int, w: int, classes: int) -> Feed:
    """A map of classes, of numbers that are none, or of both."""

    def draw(rng: Rng) -> Array:
        drawn = rng.integers(0, min(classes + 1, 256), (1, h, w)).astype(np.uint8)
        return np.full_like(drawn, 255) if rng.random() < 0.2 else drawn

    return Feed(Type((1, h, w), "uint8"), draw)


def rate(power: int) -> Feed:
    """A rate that brings steps near 2^power of their unit, or far from it, or none."""

    def draw(rng: Rng) -> Array:
        if rng.random() < 0.1:
            return np.zeros(2, np.int32)
        far = int(rng.choice([0, 0, 0, 3, -12, 12, -40, 40, 75]))
        return np.array([rng.integers(2**30, 2**31), power + far], np.int64).astype(np.int32)

    return Feed(Type((2,), "int32"), draw)


@dataclass(frozen=True)
class Shape:
    """A layer over a window: its input, its outputs, and how the window moves."""

    size: tuple[int, int, int]
    out: int
    k: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    same: bool = True
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    @property
    def pad(self) -> Pad:
        return same_pad((1, *self.size), self.k, self.stride, self.dilation) if self.same else (0, 0, 0, 0)

    @property
    def dy(self) -> Feed:
        rows, columns = Window(self.k, self.stride, self.pad, self.dilation).output(Type((1, *self.size)), "case")
        return gradient(1, rows, columns, self.out)

    @property
    def positions(self) -> int:
        return self.dy.type.shape[1] * self.dy.type.shape[2]


CONVS = {
    **{f"1x1-{c}": Shape((3, 5, c), n) for c, n in ((1, 1), (3, 17), (8, 4), (16, 6), (40, 33), (130, 7), (260, 3))},
    "one-pixel": Shape((1, 1, 20), 13),
    "1x1-stride": Shape((7, 7, 12), 10, stride=(2, 2)),
    "3x3": Shape((6, 5, 9), 7, k=(3, 3)),
    "stem": Shape((9, 9, 3), 16, k=(3, 3), stride=(2, 2)),
    "uneven": Shape((9, 8, 4), 6, k=(5, 2), stride=(2, 3)),
    "valid": Shape((6, 7, 4), 5, k=(3, 3), same=False),
    "left-over": Shape((8, 8, 4), 5, k=(3, 3), stride=(3, 3), same=False),
    "dilation": Shape((9, 11, 4), 6, k=(3, 3), dilation=(2, 3)),
    "dilation-beyond-the-map": Shape((3, 3, 4), 6, k=(3, 3), dilation=(4, 4)),
    "dilated-strided": Shape((9, 9, 5), 6, k=(3, 3), stride=(2, 2), dilation=(3, 3)),
    "groups": Shape((5, 5, 12), 8, k=(3, 3), groups=4),
    "groups-of-one": Shape((5, 5, 6), 6, k=(3, 3), groups=6),
    "groups-1x1": Shape((5, 5, 10), 15, groups=5),
    "long": Shape((2, 2, 300), 5, k=(3, 3)),
}  # fmt: skip
DEPTHWISES = {
    **{f"3x3-{c}": Shape((6, 5, c), c, k=(3, 3)) for c in (1, 3, 8, 16, 17, 40, 130, 256)},
    "1x1": Shape((4, 4, 12), 12),
    "5x5": Shape((9, 11, 18), 18, k=(5, 5)),
    "7x7-stride": Shape((9, 11, 24), 24, k=(7, 7), stride=(2, 2)),
    "uneven": Shape((9, 8, 12), 12, k=(2, 4), stride=(3, 2)),
    "valid": Shape((6, 7, 12), 12, k=(3, 3), same=False),
    "window-larger-than-the-map": Shape((3, 2, 20), 20, k=(7, 7)),
    "dilation": Shape((9, 11, 20), 20, k=(3, 3), dilation=(2, 3)),
    "dilated-strided": Shape((9, 9, 20), 20, k=(3, 3), stride=(2, 2), dilation=(3, 3)),
    "times-2": Shape((5, 6, 7), 14, k=(3, 3)),
    "times-of-one-channel": Shape((6, 6, 1), 24, k=(3, 3), stride=(2, 2)),
}  # fmt: skip


FACTORS = (0.37, 1.9, 0.0011, 3.1e-7, 12.0)
SHIFTS = (-12, -3, 0, 7, 15, 22, 24, 40, 70)  # by which sums are divided: raised, whole, rounded, deep, vanished


def channel_factors(c: int) -> tuple[float, ...]:
    return tuple(FACTORS[i % len(FACTORS)] * (1 + i / 7) for i in range(c))


def gradients(name: str, op: GradOp, *operands: Feed, shift: int = 17) -> TrainingCase:
    """A lowered gradient whose sums are divided by 2^shift."""
    out = op.shape(*(feed.type for feed in operands))
    op = replace(op, slots=tuple(range(op.gradients + 1)), stream=2 * len(name))
    feeds = (*operands, *([mask(int(np.prod(out)))] if op.masked else []))
    node = Node(op, tuple(Value(f"x{i}", feed.type) for i, feed in enumerate(feeds)), (Value("dx", Type(out)),))
    exponents = (3, -6)[: op.gradients]
    unit = op.reference(step_state(*exponents, 0).draw(np.random.default_rng(0)))
    here = shift + unit + op.multipliers()[1] - op.lift(node)
    return case(name, type(op), (*feeds, step_state(*exponents, here)), lambda g, _, x: g.emit_all(op, *x))


def plain(name: str, op: Op, *feeds: Feed) -> TrainingCase:
    """An op that needs nothing special."""
    return case(name, type(op), feeds, lambda g, _, x: g.emit_all(op, *x))


def every_way(name: str, op: GradOp, *operands: Feed) -> Iterator[TrainingCase]:
    """With and without a mask, with one factor and one a channel."""
    c = op.shape(*(feed.type for feed in operands))[-1]
    for masked in (False, True):
        for how, factors in (("", ()), ("-factor", (0.0123,)), ("-factors", channel_factors(c))):
            changed = replace(op, masked=masked, factors=factors)
            yield gradients(f"{name}{how}{'-masked' if masked else ''}", changed, *operands)


def mixed(cases: Sequence[TrainingCase], most: int = 250) -> Iterator[Sequence[TrainingCase]]:
    """Cases for one program after the other, some that learn in each: planning takes longer than in proportion."""
    count = -(-len(cases) // most)
    return (cases[i::count] for i in range(count))
