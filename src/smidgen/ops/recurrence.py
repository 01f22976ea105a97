"""The common part of recurrent layers over a sequence of fixed length, forward and backward.

In int8, activations and what recurs are int8, gates and the state are int16: the LSTM as TFLite's kernel computes it,
the GRU, which TFLite has no int8 kernel of, in the same arithmetic. Every run begins with a state of zero. Slopes, kept
by the forward pass, are what gradients are multiplied by on their way back to the gates and to the state before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Op, Params, QParams, Type, Value
from smidgen.numerics import INT8_MAX, INT8_MIN, int16
from smidgen.ops.checks import check_dtypes, check_rank
from smidgen.ops.gradient import GradOp

MOST_SUMMED = 1 << 15  # products of one gate from one side: their sum stays in int32
BIASES = 4  # rows of a bias: those of a GRU are r, z and n from x, and n from h
SQUARED = 2.0**-30  # a step of the product of two numbers in Q0.15
STORED = QParams.per_tensor(1 / 128)  # what a step nominally is; each kind has another point
FINE, COARSE, SHARE = 9, 7, 8  # bits behind the point of slopes up to 1/4, up to 1, and of the share of c that is kept
SHARE_ZERO = -128  # which goes from 0 to 1
FRACTION = 12  # bits behind the point of gradients under way
MOST = 1 << 23  # their largest magnitude
MANTISSA, FARTHEST = 15, 48  # bits of a scale, and the largest exponent below its point
ONE = 1 << int16.FRACTION


@dataclass(frozen=True, eq=False)
class RecurrentStep:
    """One step of a layer, cell by cell."""

    gates: tuple[Array, ...]  # in the order of the weights; of a GRU also what the state gives to n
    before: Array  # the state before the step
    state: Array
    h: Array


@dataclass(frozen=True)
class Recurrent(Op, ABC):
    """Hidden states h of x [1, steps, inputs]: all of them as [1, steps, cells], or the last one as [1, cells].

    Weights are [gates, cells, inputs] for x and [gates, cells, cells] for h; the bias is [4, cells].
    """

    gates: ClassVar[int]
    state_step: ClassVar[float]  # of what is rounded to a hidden state in int8

    whole: bool = True

    requantizes = True
    working_memory = True

    def infer(self, x: Type, w: Type, u: Type, b: Type) -> Type:
        what = type(self).__name__
        check_rank(what, 3, x, w, u)
        check_dtypes(what, ("int8", "float32"), x)
        check_dtypes(what, (x.dtype,), w, u)
        cells, inputs = w.shape[1], x.shape[2]
        shapes = (self.gates, cells, inputs), (self.gates, cells, cells), (BIASES, cells)
        if x.shape[0] != 1 or (w.shape, u.shape, b.shape) != shapes:
            raise GraphError(
                f"{what} takes [1, steps, {inputs}] with weights and a bias of "
                f"{', '.join(str(list(s)) for s in shapes)}, not {list(x.shape)} with "
                f"{list(w.shape)}, {list(u.shape)}, {list(b.shape)}"
            )
        check_dtypes(what, ("int32" if x.dtype == "int8" else "float32",), b)
        if max(cells, inputs) > MOST_SUMMED:
            raise GraphError(f"{what} sums {max(cells, inputs):,} products for a gate; up to {MOST_SUMMED:,} fit int32")
        if x.dtype == "int8":
            _check_scales(what, self.gates, x, w, u)
        return Type((1, x.shape[1], cells) if self.whole else (1, cells), x.dtype)

    def ref(self, node: Node, x: Array, w: Array, u: Array, b: Array) -> Array:
        hidden = np.stack([step.h for step in self.steps(node, node.out.type, x[0], w, u, b)])
        return hidden[None] if self.whole else hidden[-1:]

    def steps(self, node: Node, y: Type, x: Array, w: Array, u: Array, b: Array) -> Iterator[RecurrentStep]:
        """Yield every step of x [steps, inputs], with hidden states of the type given."""
        return self.real_steps(x, w, u, b) if x.dtype == np.float32 else self.int8_steps(node, y, x, w, u, b)

    @abstractmethod
    def real_steps(self, x: Array, w: Array, u: Array, b: Array) -> Iterator[RecurrentStep]:
        """Yield every step in float32."""

    @abstractmethod
    def int8_steps(self, node: Node, y: Type, x: Array, w: Array, u: Array, b: Array) -> Iterator[RecurrentStep]:
        """Yield every step in integers."""

    @abstractmethod
    def backward(self, factors: tuple[float, ...], scale: float, zero: int) -> tuple[RecurrentSlopes, RecurrentGrad]:
        """Return the ops that keep the slopes of a layer with such an output, and that compute the gradient."""

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        """Emit the gradient of x alone: the weights stay as they are."""
        (x, w, u, b), y = node.ins, node.out.type
        slopes, gradient = self.backward((), 1.0, 0)
        if y.q is not None:
            slopes, gradient = self.backward((x.type.scale / y.scale * 2.0**-FRACTION,), y.scale, y.zero)
        return g.emit(gradient, dy, g.emit(slopes, x, w, u, b), w, u), None, None, None

    def params(self, node: Node) -> Params:
        (x, w, u, _), y = (v.type for v in node.ins), node.out.type
        (x_multiplier, x_shift), (h_multiplier, h_shift) = gate_multipliers(x, w), gate_multipliers(y, u)
        y_multiplier, y_shift = numerics.quantize_single(self.state_step, over=y.scale)
        return {
            "steps": x.shape[1], "inputs": x.shape[2], "cells": y.shape[-1], "whole": int(self.whole),
            "x_zero": x.zero, "y_zero": y.zero, "y_multiplier": y_multiplier, "y_shift": y_shift,
            "x_multiplier": x_multiplier, "h_multiplier": h_multiplier, "x_shift": x_shift, "h_shift": h_shift,
        }  # fmt: skip

    def macs(self, node: Node) -> int:
        x, w, u, _ = (v.type for v in node.ins)
        return x.shape[1] * (w.size + u.size)


def _check_scales(what: str, gates: int, x: Type, w: Type, u: Type) -> None:
    if x.q is None or x.q.axis is not None:
        raise GraphError(f"{what} takes an int8 input with one scale")
    for weights in (w, u):
        q = weights.q
        if q is None or q.zero != 0 or (len(q.scale) > 1 and q.axis != 0):
            raise GraphError(f"{what} takes int8 weights with one scale per gate, {gates} along axis 0, from zero")


def gate_scales(weights: Type) -> tuple[float, ...]:
    """Return the scale of each gate's weights."""
    assert weights.q is not None
    scales = weights.q.scale
    return scales * weights.shape[0] if len(scales) == 1 else scales


def gate_multipliers(x: Type, weights: Type) -> tuple[Array, Array]:
    """Return the multipliers and shifts that bring each gate's sums to Q3.12, as int32 and int8."""
    unit = 2.0 ** (int16.GATE_BITS - int16.FRACTION)
    pairs = [numerics.quantize_single(scale, x.scale, over=unit) for scale in gate_scales(weights)]
    return np.array([m for m, _ in pairs], np.int32), np.array([s for _, s in pairs], np.int8)


def gate_sums(rows: Array, zero: int, weights: Array, bias: Array | int, scaling: tuple[Array, Array]) -> Array:
    """Return what rows of int8 numbers add to each gate, [rows, gates, cells], in Q3.12, not yet limited to int16."""
    centred = rows.astype(np.float64) - zero
    acc = np.einsum("ri,gci->rgc", centred, weights.astype(np.float64)).astype(np.int64) + bias
    multiplier, shift = (part[:, None] for part in scaling)
    return numerics.multiply(acc.astype(np.int32), multiplier, shift)


def sigmoid(x: Array) -> Array:
    return np.asarray(0.5 + 0.5 * np.tanh(x / 2))


class RecurrentSlopes(Op, ABC):
    """The slopes of every step of a recurrent layer, [1, steps, kinds · cells] with the kinds of a cell together.

    They are computed from what the layer reads. In int8 its hidden states are in steps of `y_scale` from `y_zero`.
    """

    kinds: ClassVar[int]
    y_scale: float
    y_zero: int

    saved = True
    working_memory = True

    @property
    @abstractmethod
    def layer(self) -> Recurrent:
        """Return the layer that these are the slopes of."""

    def infer(self, x: Type, w: Type, u: Type, b: Type) -> Type:
        y = self.layer.infer(x, w, u, b)
        assert isinstance(y, Type)
        return Type((1, y.shape[1], self.kinds * y.shape[2]), x.dtype, STORED if x.dtype == "int8" else None)

    @abstractmethod
    def real(self, step: RecurrentStep) -> tuple[Array, ...]:
        """Return the slopes of a step in float32, each kind for all cells."""

    @abstractmethod
    def integers(self, step: RecurrentStep) -> tuple[Array, ...]:
        """Return the same of gates in Q0.15, rounded."""

    def ref(self, node: Node, x: Array, w: Array, u: Array, b: Array) -> Array:
        steps, exact = self.layer.steps(node, self.hidden(node), x[0], w, u, b), x.dtype == np.float32
        found = np.stack([np.stack(self.real(s) if exact else self.integers(s), axis=-1) for s in steps])
        limited = found if exact else np.clip(found, INT8_MIN, INT8_MAX)
        return limited.reshape(1, len(x[0]), -1).astype(x.dtype)

    def hidden(self, node: Node) -> Type:
        """Return the type of the layer's hidden states."""
        (_, steps, _), cells = node.ins[0].type.shape, node.ins[1].type.shape[1]
        q = QParams.per_tensor(self.y_scale, self.y_zero) if node.ins[0].type.dtype == "int8" else None
        return Type((1, steps, cells), node.ins[0].type.dtype, q)

    def params(self, node: Node) -> Params:
        return {**self.layer.params(Node(self.layer, node.ins, (Value("y", self.hidden(node)),))), "whole": 0}


def mantissas(weights: Type) -> tuple[Array, int]:
    """Return the scales of gates as whole numbers below 2^15 over one power of two, and its exponent."""
    scales = gate_scales(weights)
    places = min(max(MANTISSA - int(np.frexp(max(scales))[1]), 1), FARTHEST)
    numbers = np.floor(np.ldexp(np.array(scales), places) + 0.5)
    return np.minimum(numbers, (1 << MANTISSA) - 1).astype(np.int32), places


def limited(x: Array) -> Array:
    return np.asarray(np.clip(x, -MOST, MOST))


def shifted(x: Array, bits: int) -> Array:
    """Return x / 2^bits, halves up."""
    return (x + ((1 << bits) >> 1)) >> bits


def _along(weights: Type) -> Array:
    """Return the scale of each gate, to be multiplied with its weights."""
    assert weights.q is not None
    return np.array(weights.q.scale, np.float32).reshape(-1, 1, 1)


def through(weights: Array, scale: Array, places: int, dz: Array) -> Array:
    """Pass gates' gradients [gates, cells] back through their weights."""
    sums = np.einsum("gc,gci->gi", dz, weights)
    return limited(shifted((sums * scale[:, None].astype(np.int64)).sum(axis=0), places))


def _through_reals(weights: Array, dz: Array) -> Array:
    """Pass gates' gradients [gates, cells] back through weights of real numbers."""
    return np.asarray(np.einsum("gc,gci->i", dz, weights))


@dataclass(frozen=True, eq=False)
class Arithmetic:
    """The arithmetic of gradients on their way back: real numbers, or integers of 2^−12 steps of dy."""

    times: Callable[[Array, Array, int], Array]  # a gradient and a slope, which has so many bits behind the point
    limit: Callable[[Array], Array]
    to_x: Callable[[Array], Array]  # gates' gradients, back through the weights of x
    to_h: Callable[[Array], Array]


def _in_reals(w: Array, u: Array) -> Arithmetic:
    return Arithmetic(lambda d, s, _: d * s, lambda d: d, partial(_through_reals, w), partial(_through_reals, u))


def _in_integers(w: Array, w_type: Type, u: Array, u_type: Type) -> Arithmetic:
    to_x, to_h = (partial(through, data.astype(np.int64), *mantissas(t)) for data, t in ((w, w_type), (u, u_type)))
    return Arithmetic(lambda d, s, bits: shifted(d * s, bits), limited, to_x, to_h)


@dataclass(frozen=True, eq=False)
class PassedBack:
    """The gradients of one step: of the gates as x and as h see them, and what reaches the states before directly."""

    by_x: Array
    by_h: Array
    dh: Array | int
    dc: Array | int


@dataclass(frozen=True)
class RecurrentGrad(GradOp, ABC):
    """dx of a recurrent layer from dy, its slopes, and its weights of x and of h."""

    gates: ClassVar[int]
    slopes: ClassVar[int]  # kinds of them
    shares: ClassVar[int]  # kinds, the last ones, that are shares
    operands = 4
    working_memory = True

    @abstractmethod
    def points(self) -> tuple[int, ...]:
        """Return the bits behind the point of each kind of slope that is not a share."""

    @abstractmethod
    def passed_back(self, a: Arithmetic, dh: Array, dc: Array, slopes: Array) -> PassedBack:
        """Return what the gradients of a step's hidden state and cell state become; slopes are [kinds, cells]."""

    def shape(self, *operands: Type) -> tuple[int, ...]:
        dy, slopes, w, u = operands
        what = type(self).__name__
        check_rank(what, 3, slopes, w, u)
        (gates, cells, inputs), steps = w.shape, slopes.shape[1]
        fits = dy.shape in ((1, steps, cells), (1, cells)) and slopes.shape == (1, steps, self.slopes * cells)
        if not fits or gates != self.gates or u.shape != (gates, cells, cells):
            shapes = ", ".join(str(list(t.shape)) for t in operands)
            raise GraphError(f"{what} of {shapes}: gradient, slopes and weights are not those of one layer")
        if slopes.dtype == "int8" and (w.q is None or u.q is None):
            raise GraphError(f"{what} takes int8 weights with scales")
        return (1, steps, inputs)

    def sums(self, node: Node, *operands: Array) -> Array:
        dy, slopes, w, u = operands
        steps, cells = slopes.shape[1], w.shape[1]
        every = np.zeros((steps, cells), dy.dtype)
        every[steps - dy.size // cells :] = dy.reshape(-1, cells)
        kinds = slopes.reshape(steps, cells, self.slopes)
        if slopes.dtype == np.float32:
            return self._walk(_in_reals(w, u), every, kinds)
        w_type, u_type = node.ins[2].type, node.ins[3].type
        kinds = kinds.astype(np.int64) - np.repeat((0, SHARE_ZERO), (self.slopes - self.shares, self.shares))
        if self.lowered:
            return self._walk(_in_integers(w, w_type, u, u_type), every.astype(np.int64) << FRACTION, kinds)
        real = (kinds * 2.0 ** -np.array((*self.points(), *[SHARE] * self.shares))).astype(np.float32)
        exact = _in_reals(w * _along(w_type), u * _along(u_type))
        return self._walk(exact, every, real) * np.float32(1 << FRACTION)

    def _walk(self, a: Arithmetic, dy: Array, slopes: Array) -> Array:
        """Return dx from dy [steps, cells] and slopes [steps, cells, kinds], the last step first."""
        dh = dc = np.zeros_like(dy[0])
        found = []
        for now, kinds in zip(dy[::-1], slopes[::-1], strict=True):
            back = self.passed_back(a, a.limit(now + dh), dc, kinds.T)
            found.append(a.to_x(back.by_x))
            dh, dc = a.limit(back.dh + a.to_h(back.by_h)), back.dc
        return np.stack(found[::-1])[None]

    def bound(self, node: Node) -> int:
        return MOST

    def params(self, node: Node) -> Params:
        dy, slopes, w, u = (v.type for v in node.ins[:4])
        (x_scale, x_places), (h_scale, h_places) = mantissas(w), mantissas(u)
        return {
            "steps": slopes.shape[1], "inputs": w.shape[2], "cells": w.shape[1], "whole": int(len(dy.shape) == 3),
            "bits": self.cell_bits, "x_places": x_places, "h_places": h_places, "x_scale": x_scale, "h_scale": h_scale,
            **self.rounding(node),
        }  # fmt: skip

    @property
    def cell_bits(self) -> int:
        """Return the bits before the point of a cell state, where there is one."""
        return 0

    def macs(self, node: Node) -> int:
        _, slopes, w, u = (v.type for v in node.ins[:4])
        return slopes.shape[1] * (w.size + u.size)
