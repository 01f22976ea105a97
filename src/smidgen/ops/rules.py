"""Update rules: how the gradients of one sample after another, scaled by the learning rate, move a weight.

Most rules keep a buffer beside each tensor that learns. It gathers one delta per sample; at the last of `accumulate`
samples the rule decides how much of it moves the weight and how much stays. A new rule is a class here, entered by its
name, and what `smg_follow_rule` of the runtime's `step.h` makes of its fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from smidgen import numerics
from smidgen.errors import InputError
from smidgen.ir import Array, Node, Op, Params, Type, attribute, op
from smidgen.ops.checks import RATE, SCALAR, check_dtypes, check_is

# By the dtype of what learns.
BUFFERS: Mapping[str, str] = {"int8": "int16", "int16": "int32", "int32": "int32", "float32": "float32"}
LIMITS: Mapping[str, int] = {"int16": 32767, "int32": 1 << 30}  # of what a buffer holds
DECAY_ONE = 65536  # a decay of 1 where buffers are integers
MOST_SAMPLES = 1024
LEAST_RATE, LARGEST_RATE = 41, 253  # biased exponents of float32: 2^−86 and just below infinity
STEP_LIMIT = 1 << 30  # of rate · dy in the float32 head, whose weights then stay numbers; and of a rate by itself


@dataclass(frozen=True)
class UpdateRule:
    """A buffer gathers deltas; at the last of `accumulate` samples it moves the weight, and `decay` of it stays."""

    accumulate: int = field(default=1, kw_only=True)  # samples whose gradients are added up before a step

    decay: ClassVar[float] = 0.0  # the share of a buffer that stays after a step

    @property
    def buffered(self) -> bool:
        """Return whether a buffer is kept beside each tensor that learns."""
        return self.accumulate > 1

    def buffer(self, w: Type) -> Type:
        """Return the type of the buffer beside a tensor."""
        return Type(w.shape, BUFFERS[w.dtype])

    def step(self, buffer: Array, delta: Array, due: bool, words: Array | None = None) -> tuple[Array, Array]:
        """Return what moves the weight at this sample, in the buffer's unit, and the buffer after it.

        Integers that stay are rounded at random with the upper halves of `words`.
        """
        if words is None:
            full: Array = buffer + delta
            stays: Array = full * np.float32(self.decay)
        else:
            limit = LIMITS[buffer.dtype.name]
            full = np.clip(buffer.astype(np.int64) + delta, -limit, limit)
            stays = (full * self._whole_decay + (words >> 16).astype(np.int64)) >> 16
        return (full, stays.astype(buffer.dtype)) if due else (np.zeros_like(full), full.astype(buffer.dtype))

    @property
    def _whole_decay(self) -> int:
        return numerics.round_half_away(self.decay * DECAY_ONE)

    def params(self, dtype: str) -> Params:
        """Return the fields of C's `smg_rule`, or, for a tensor of float32, of `smg_rule_f32`."""
        decay = self.decay if dtype == "float32" else self._whole_decay
        return {"rule.accumulate": self.accumulate, "rule.decay": decay}

    def check(self) -> None:
        """Raise InputError where a number is out of range."""
        if not 1 <= self.accumulate <= MOST_SAMPLES:
            raise InputError(f"gradients of {self.accumulate} samples cannot be accumulated; give 1 to {MOST_SAMPLES}")


@attribute
@dataclass(frozen=True)
class Sgd(UpdateRule):
    """Stochastic gradient descent: w −= the sum of the deltas."""


SGD = Sgd()


@attribute
@dataclass(frozen=True)
class Momentum(UpdateRule):
    """SGD with momentum: v = momentum · v + the sum of the deltas, w −= v."""

    momentum: float

    @property
    def buffered(self) -> bool:
        return True

    @property
    def decay(self) -> float:  # type: ignore[override]
        return self.momentum

    def check(self) -> None:
        super().check()
        if not 0 < self.momentum < 1:
            raise InputError(f"momentum is {self.momentum}; give a number above 0 and below 1, or the rule Sgd")


def check_rate(learning_rate: float) -> None:
    """Raise InputError unless a learning rate can be used."""
    if not 0 <= learning_rate <= STEP_LIMIT:
        raise InputError(f"a learning rate of {learning_rate} cannot be used; give a number from 0 to {STEP_LIMIT:,}")


@op
class MaxAbs(Op):
    """g0: the largest magnitude of the loss gradient, the unit of every int8 gradient of this step."""

    kernel = "smg_max_abs_f32"
    takes = "float32"

    def infer(self, x: Type) -> Type:
        check_dtypes("MaxAbs", ("float32",), x)
        return SCALAR

    def ref(self, node: Node, x: Array) -> Array:
        return np.asarray(np.fmax.reduce(np.abs(x), axis=None, initial=np.float32(0)).reshape(1))

    def params(self, node: Node) -> Params:
        return {"n": node.ins[0].type.size}


@op
class Rate(Op):
    """learning rate · g0 as a 31-bit mantissa and an exponent: rate = m · 2^(e − 31).

    Tiny, negative, infinite or not a number, it becomes 0: no update.
    """

    kernel = "smg_rate_f32"
    takes = "float32"

    def infer(self, learning_rate: Type, g0: Type) -> Type:
        check_is("Rate", "learning rate", learning_rate, SCALAR)
        check_is("Rate", "unit", g0, SCALAR)
        return RATE

    def ref(self, node: Node, learning_rate: Array, g0: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            bits = int((learning_rate * g0).view(np.int32)[0])
        exponent = bits >> 23
        if not LEAST_RATE <= exponent <= LARGEST_RATE:
            return np.zeros(2, np.int32)
        return np.array([((bits & 0x7FFFFF) | 0x800000) << 7, exponent - 126], np.int32)

    def params(self, node: Node) -> Params:
        return {"least": LEAST_RATE, "largest": LARGEST_RATE}
