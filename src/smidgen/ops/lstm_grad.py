"""The gradient of an LSTM's input, back through time, from slopes that the forward pass keeps.

At every step, with h ← o·tanh(c) and c ← f·c + i·g, the slopes are what dh and dc are multiplied by on their way to the
gates, to c, and to the c before. In int8 they are six bytes of each cell and step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Array, Node, Params, QParams, Type, op
from smidgen.numerics import INT8_MAX, INT8_MIN, int16
from smidgen.ops.checking import check_rank
from smidgen.ops.gradient import GradOp

SLOPES = 6  # from dh to o and to c; from dc to i, f and g, and to the c before
STORED = QParams.per_tensor(1 / 128)  # what a step nominally is; each kind has a point of its own
FINE, COARSE, SHARE = 9, 7, 8  # bits behind the point of slopes up to 1/4, up to 1, and of the share of c that is kept
SHARE_ZERO = -128  # which goes from 0 to 1
FRACTION = 12  # bits behind the point of gradients under way
MOST = 1 << 23  # their largest magnitude
MANTISSA, FARTHEST = 15, 48  # bits of a scale, and the largest exponent below its point
ONE = 1 << int16.FRACTION


def real_slopes(i: Array, f: Array, g: Array, o: Array, c: Array, before: Array, free: Array) -> Array:
    """All six of each cell, [cells, 6]; where the cell state is limited, nothing passes back from it."""
    tanh = np.tanh(c)
    back = (g * i * (1 - i), before * f * (1 - f), i * (1 - g * g), f)
    return np.stack([tanh * o * (1 - o), o * (1 - tanh * tanh), *(part * free for part in back)], axis=-1)


def int8_slopes(i: Array, f: Array, g: Array, o: Array, tanh: Array, before: Array, free: Array) -> Array:
    """The same of gates in Q0.15, rounded; that of the forget gate is as much coarser as the cell state is larger."""

    def up_to_a_quarter(x: Array, gate: Array) -> Array:
        slope: Array = (x * (gate * (ONE - gate) >> 15) + (1 << 20)) >> 21
        return slope

    def up_to_one(gate: Array, x: Array) -> Array:
        slope: Array = (gate * (ONE - (x * x >> 15)) + (1 << 22)) >> 23
        return slope

    back = (up_to_a_quarter(g, i), up_to_a_quarter(before, f), up_to_one(i, g), (f + 64) >> 7)
    kinds = [up_to_a_quarter(tanh, o), up_to_one(o, tanh), *(part * free for part in back)]
    kinds[-1] = kinds[-1] + SHARE_ZERO
    slopes: Array = np.clip(np.stack(kinds, axis=-1), INT8_MIN, INT8_MAX).astype(np.int8)
    return slopes


def mantissas(weights: Type) -> tuple[Array, int]:
    """The scales of gates as whole numbers below 2^15 over one power of two, whose exponent comes second."""
    assert weights.q is not None
    scales = weights.q.scale * (weights.shape[0] if len(weights.q.scale) == 1 else 1)
    places = min(max(MANTISSA - int(np.frexp(max(scales))[1]), 1), FARTHEST)
    numbers = np.floor(np.ldexp(np.array(scales), places) + 0.5)
    return np.minimum(numbers, (1 << MANTISSA) - 1).astype(np.int32), places


def limited(x: Array) -> Array:
    limited: Array = np.clip(x, -MOST, MOST)
    return limited


def shifted(x: Array, bits: int) -> Array:
    """x / 2^bits, halves up."""
    return (x + ((1 << bits) >> 1)) >> bits


def _along(weights: Type) -> Array:
    """The scale of each gate, to be multiplied with its weights."""
    assert weights.q is not None
    return np.array(weights.q.scale, np.float32).reshape(-1, 1, 1)


def through(dz: Array, weights: Array, scale: Array, places: int) -> Array:
    """What gates' gradients [gates, cells] are to what their weights are multiplied with."""
    sums = np.einsum("gc,gci->gi", dz, weights)
    return limited(shifted((sums * scale[:, None].astype(np.int64)).sum(axis=0), places))


@dataclass(frozen=True)
class RecurrentGrad(GradOp, ABC):
    """dx of a recurrent layer from dy, its slopes, and its weights of x and of h."""

    gates: ClassVar[int]
    slopes: ClassVar[int]  # kinds of them
    operands = 4
    working_memory = True

    @abstractmethod
    def real(self, kinds: Array) -> Array:
        """int8 slopes [steps, cells, kinds] as the real numbers they stand for."""

    @abstractmethod
    def reals(self, dy: Array, slopes: Array, w: Array, u: Array) -> Array:
        """dx in real numbers."""

    @abstractmethod
    def integers(self, node: Node, dy: Array, slopes: Array, w: Array, u: Array) -> Array:
        """dx in units of 2^−12 steps of dy."""

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
        if self.lowered:
            return self.integers(node, every, kinds.astype(np.int64), w, u)
        if slopes.dtype == np.float32:
            return self.reals(every, kinds, w, u)
        whole = (data * _along(v.type) for data, v in zip((w, u), node.ins[2:4], strict=True))
        return self.reals(every, self.real(kinds), *whole) * np.float32(1 << FRACTION)

    def scaled(self, node: Node, w: Array, u: Array) -> tuple[tuple[Array, Array, int], tuple[Array, Array, int]]:
        """The weights of x and of h, each with its scales as mantissas and their exponent."""
        to_x, to_h = mantissas(node.ins[2].type), mantissas(node.ins[3].type)
        return (w.astype(np.int64), *to_x), (u.astype(np.int64), *to_h)

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
        """Bits before the point of a cell state, where there is one."""
        return 0

    def macs(self, node: Node) -> int:
        _, slopes, w, u = (v.type for v in node.ins[:4])
        return slopes.shape[1] * (w.size + u.size)


@op
@dataclass(frozen=True)
class LstmGrad(RecurrentGrad):
    """dx of an LSTM from dy, its slopes, and its weights of x and of h; in int8 in units of 2^−12 steps of dy."""

    bits: int = 3  # before the point of the cell state

    kernel = "smg_lstm_grad_g8"
    gates = 4
    slopes = SLOPES

    def shape(self, *operands: Type) -> tuple[int, ...]:
        if not 0 <= self.bits < FINE:
            raise GraphError(f"LstmGrad of a cell state with {self.bits} bits before the point; give 0 to {FINE - 1}")
        return super().shape(*operands)

    @property
    def cell_bits(self) -> int:
        return self.bits

    def real(self, kinds: Array) -> Array:
        points = np.array([FINE, COARSE, FINE, FINE - self.bits, COARSE, SHARE])
        real: Array = (kinds - np.array([0] * (SLOPES - 1) + [SHARE_ZERO])) * 2.0**-points
        return real.astype(np.float32)

    def reals(self, dy: Array, slopes: Array, w: Array, u: Array) -> Array:
        dh = dc = np.zeros(w.shape[1], np.float32)
        found = np.zeros((1, len(dy), w.shape[2]), np.float32)
        for t in range(len(dy) - 1, -1, -1):
            o, c, i, f, g, share = slopes[t].T
            dh = dy[t] + dh
            dc = dc + dh * c
            dz = np.stack([dc * i, dc * f, dc * g, dh * o])
            dc = dc * share
            found[0, t], dh = (np.einsum("gc,gci->i", dz, weights) for weights in (w, u))
        return found

    def integers(self, node: Node, dy: Array, slopes: Array, w: Array, u: Array) -> Array:
        to_x, to_h = self.scaled(node, w, u)
        dh = dc = np.zeros(w.shape[1], np.int64)
        found = np.zeros((1, len(dy), w.shape[2]), np.int64)
        for t in range(len(dy) - 1, -1, -1):
            o, c, i, f, g, share = slopes[t].T
            dh = limited((dy[t].astype(np.int64) << FRACTION) + dh)
            dc = limited(dc + shifted(dh * c, COARSE))
            kinds = ((dc * i, FINE), (dc * f, FINE - self.bits), (dc * g, COARSE), (dh * o, FINE))
            dz = limited(np.stack([shifted(product, bits) for product, bits in kinds]))
            dc = shifted(dc * (share - SHARE_ZERO), SHARE)
            found[0, t], dh = through(dz, *to_x), through(dz, *to_h)
        return found
