"""Updates: an int32 weight gradient becomes a stochastically rounded step of a weight, in place.

A trained weight is W = w · 2^f + fraction − half: w is the int8 the forward pass reads, the fraction its
f = weight_bits − 8 further bits, packed. QAS is the factor 1 / s_w² (weights) or 1 / (s_x·s_w)² (biases).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Node, Op, Params, Type, Value, op
from smidgen.numerics import stochastic
from smidgen.ops.conv_grad import ConvGradWeight, DenseGradWeight, DepthwiseGradWeight
from smidgen.ops.window import Pad

T = TypeVar("T")
BUFFER_BITS = 12  # fraction bits, below one int8 step, of a weight's momentum or accumulated gradients
BUFFER_TYPES = {"weight": np.int16, "bias": np.int32}


def fraction_bytes(size: int, bits: int) -> int:
    """Bytes of the packed fractions of `size` weights of 8 + bits bits."""
    return -(-size * bits // 8)


def initial_fraction(size: int, bits: int) -> Array:
    """Fractions of weights that are exactly their int8."""
    return pack(np.full(size, 1 << (bits - 1), np.uint8), bits)


def pack(fraction: Array, bits: int) -> Array:
    """Fractions side by side, lowest bits first."""
    each = 8 // bits
    padded = np.zeros(-(-fraction.size // each) * each, np.uint8)
    padded[: fraction.size] = fraction
    shifts = np.arange(each, dtype=np.uint8) * np.uint8(bits)
    packed: Array = np.bitwise_or.reduce(padded.reshape(-1, each) << shifts, axis=1)
    return packed


def unpack(packed: Array, bits: int, size: int) -> Array:
    each = 8 // bits
    shifts = np.arange(each, dtype=np.uint8) * np.uint8(bits)
    fractions: Array = ((packed[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[:size]
    return fractions


@dataclass(frozen=True)
class StepInputs(Generic[T]):
    """What an update reads."""

    states: tuple[T, ...]  # what it replaces, the weight first
    sources: tuple[T, ...]  # the sums, or what they are summed from
    rate: T
    carry: T


@dataclass(frozen=True)
class Step(Op):
    """delta = sums · factor · rate · 2^e, rounded at random; factor is one a channel along `axis` of the tensor."""

    factors: tuple[float, ...]
    slot: int  # of the gradient the sums were taken from
    stream: int
    bound: int  # the largest magnitude of a sum
    momentum: float = 0.0
    every: int = 1  # samples added up before a step is taken

    inplace = 0

    @property
    def buffered(self) -> bool:
        return self.momentum > 0 or self.every > 1

    @property
    def decay(self) -> int:
        """Momentum in 1/65536."""
        return numerics.round_half_away(self.momentum * 65536)

    def decayed(self, full: Array, words: Array) -> Array:
        """The buffer after a step: momentum times it, rounded at random with a word's upper half."""
        kept: Array = (full * self.decay + (words >> 16).astype(np.int64)) >> 16
        return kept

    def delta(self, sums: Array, rate: Array, carry: Array, fraction_bits: int, along: tuple[int, ...]) -> Array:
        """The step in units of 2^−fraction_bits; `along` is the shape in which the factors broadcast."""
        multiplier, shift = stochastic.mantissas(np.array(self.factors))
        mantissa = stochastic.high_product(multiplier, int(rate[0])).reshape(along)
        v = stochastic.high_product(sums.astype(np.int64) << self.lift, mantissa)
        power = int(rate[1]) + stochastic.exponent(carry, self.slot) + fraction_bits
        t = np.broadcast_to(self.lift - power - shift.reshape(along).astype(np.int64), v.shape)
        return stochastic.round_update(v, t, stochastic.stream_key(carry, self.stream))

    @property
    def lift(self) -> int:
        return stochastic.lift(self.bound, type(self).__name__)

    def arguments(self, node: Node) -> tuple[Value | None, ...]:
        """States in place, NULL for one that is not kept: the outputs are their memory."""
        parts = self.parts(node.ins)
        buffer = parts.states[-1] if self.buffered else None
        return (parts.states[0], *self.fraction(node), buffer, *parts.sources, parts.rate, parts.carry)

    def parts(self, ins: tuple[T, ...]) -> StepInputs[T]:
        """Inputs by what they are: values, types or arrays."""
        (*sources, rate, carry) = ins[self.states() :]
        return StepInputs(ins[: self.states()], tuple(sources), rate, carry)

    def states(self) -> int:
        """How many inputs, from the first, are state that the step replaces."""
        return 1 + self.buffered

    def fraction(self, node: Node) -> tuple[Value | None, ...]:
        return ()

    def step_params(self) -> Params:
        multiplier, shift = stochastic.mantissas(np.array(self.factors))
        return {
            "multiplier": multiplier, "shift": shift, "slot": self.slot, "stream": self.stream, "lift": self.lift,
            "decay": self.decay, "every": self.every,
        }  # fmt: skip


@op
@dataclass(frozen=True)
class BiasStep(Step):
    """b −= delta, saturated. Inputs: b, its buffer (momentum > 0 or every > 1), sums, rate, carry."""

    kernel = "smg_bias_step"
    takes = "int32"

    def infer(self, b: Type, *rest: Type) -> tuple[Type, ...]:
        fits = len(rest) == 3 + self.buffered and b.dtype == "int32" and len(self.factors) == b.size
        if not fits or rest[self.buffered] != b:
            raise GraphError(f"BiasStep of {b.dtype}{list(b.shape)} does not take {len(rest) + 1} inputs like these")
        return (b, *rest[: self.buffered])

    def ref(self, node: Node, b: Array, *rest: Array) -> tuple[Array, ...]:
        (*buffer, sums, rate, carry) = rest
        step, after = self.delta(sums, rate, carry, 0, b.shape), []
        if self.buffered:
            full = np.clip(buffer[0].astype(np.int64) + step, -(1 << 30), 1 << 30)
            words = stochastic.random_words(stochastic.stream_key(carry, self.stream + 1), b.size)
            step = full if stochastic.due(carry, self.every) else np.zeros_like(full)
            after = [(self.decayed(full, words) if stochastic.due(carry, self.every) else full).astype(np.int32)]
        moved = np.clip(b.astype(np.int64) - step, -(1 << 30), 1 << 30).astype(np.int32)
        return (moved, *after)

    def params(self, node: Node) -> Params:
        return {"c": node.ins[0].type.size, **self.step_params()}


@op
@dataclass(frozen=True)
class WeightStep(Step):
    """W −= delta, saturated to ±127 int8 steps; momentum and accumulation pass through an int16 buffer.

    Inputs: w, its packed fraction (weight_bits > 8), its buffer (momentum > 0 or every > 1), sums, rate, carry.
    With a buffer: buffer += delta; at the last of `every` samples W −= buffer and buffer ·= momentum.
    """

    axis: int = 0
    bits: int = 8

    def states(self) -> int:
        return 1 + (self.bits > 8) + self.buffered

    def fraction(self, node: Node) -> tuple[Value | None, ...]:
        return (node.ins[1] if self.bits > 8 else None,)

    kernel = "smg_weight_step"

    def infer(self, w: Type, *rest: Type) -> tuple[Type, ...]:
        states = self.states() - 1
        if len(rest) != states + 3 or self.bits not in (8, 10, 12):
            raise GraphError(f"WeightStep of {self.bits} bits does not take {len(rest) + 1} inputs")
        sums = rest[states]
        if sums != Type(w.shape, "int32") or len(self.factors) != w.shape[self.axis]:
            raise GraphError(f"WeightStep of {list(w.shape)} by sums of {sums.dtype}{list(sums.shape)}")
        return (w, *rest[:states])

    def ref(self, node: Node, w: Array, *rest: Array) -> tuple[Array, ...]:
        (*states, sums, rate, carry) = rest
        f = self.bits - 8
        half = (1 << f) >> 1
        fraction = unpack(states[0], f, w.size).reshape(w.shape).astype(np.int64) if f else np.zeros(w.shape, np.int64)
        whole = (w.astype(np.int64) << f) + fraction - half
        along = tuple(len(self.factors) if i == self.axis else 1 for i in range(w.ndim))
        after: list[Array] = []
        if self.buffered:
            delta, buffer = self._through_buffer(states[-1], sums, rate, carry, along)
            after = [buffer]
        else:
            delta = self.delta(sums, rate, carry, f, along)
        limit = 127 << f
        moved = np.clip(whole - delta, -limit, limit) + half
        if f:
            after.insert(0, pack((moved & ((1 << f) - 1)).astype(np.uint8).ravel(), f))
        return ((moved >> f).astype(np.int8), *after)

    def _through_buffer(
        self, buffer: Array, sums: Array, rate: Array, carry: Array, along: tuple[int, ...]
    ) -> tuple[Array, Array]:
        """The step to take now, in units of 2^−f, and the buffer after it."""
        delta = self.delta(sums, rate, carry, BUFFER_BITS, along)
        full = np.clip(buffer.astype(np.int64) + delta, -32767, 32767)
        if not stochastic.due(carry, self.every):
            return np.zeros_like(full), full.astype(np.int16)
        words = stochastic.random_words(stochastic.stream_key(carry, self.stream + 1), full.size).reshape(full.shape)
        down = BUFFER_BITS - (self.bits - 8)
        step = (full + (words & ((1 << down) - 1)).astype(np.int64)) >> down
        return step, self.decayed(full, words).astype(np.int16)

    def params(self, node: Node) -> Params:
        w = node.ins[0].type
        inner = int(np.prod(w.shape[self.axis + 1 :]))
        sizes = {"n": w.size, "inner": inner, "c": w.shape[self.axis], "fraction_bits": self.bits - 8}
        return {**sizes, **self.step_params()}


@op
@dataclass(frozen=True)
class BiasSumStep(BiasStep):
    """A bias step that sums its gradient itself: dy stands where the sums would."""

    kernel = "smg_bias_sum_step"

    def infer(self, b: Type, *rest: Type) -> tuple[Type, ...]:
        (*buffer, dy, rate, carry) = rest
        return super().infer(b, *buffer, Type((dy.shape[-1],), "int32"), rate, carry)

    def ref(self, node: Node, b: Array, *rest: Array) -> tuple[Array, ...]:
        (*buffer, dy, rate, carry) = rest
        return super().ref(node, b, *buffer, dy.reshape(-1, b.size).sum(axis=0, dtype=np.int32), rate, carry)

    def params(self, node: Node) -> Params:
        (dy,) = self.parts(node.ins).sources
        return {"n": dy.type.size // node.ins[0].type.size, **super().params(node)}

    def scratch(self, node: Node) -> int:
        return 4 * node.ins[0].type.size


@dataclass(frozen=True)
class FusedStep(WeightStep):
    """A weight step that computes its gradient itself, a row at a time: x and dy stand where the sums would."""

    def gradient(self) -> ConvGradWeight | DepthwiseGradWeight | DenseGradWeight:
        raise GraphError(f"{type(self).__name__} names no gradient")

    def _sums(self, node: Node) -> Node:
        x, dy = self.parts(node.ins).sources
        op = self.gradient()
        return Node(op, (x, dy), (Value("sums", op.infer(x.type, dy.type)),))

    def infer(self, w: Type, *rest: Type) -> tuple[Type, ...]:
        (*states, x, dy, rate, carry) = rest
        return super().infer(w, *states, self.gradient().infer(x, dy), rate, carry)

    def ref(self, node: Node, w: Array, *rest: Array) -> tuple[Array, ...]:
        (*states, x, dy, rate, carry) = rest
        sums = np.asarray(self.gradient().ref(self._sums(node), x, dy))
        return super().ref(node, w, *states, sums, rate, carry)

    def params(self, node: Node) -> Params:
        sums = self._sums(node)
        return {**sums.op.params(sums), **super().params(node)}

    def macs(self, node: Node) -> int:
        sums = self._sums(node)
        return sums.op.macs(sums)


@op
@dataclass(frozen=True)
class ConvWeightStep(FusedStep):
    """A convolution's weights learn from its input and its output's gradient."""

    stride: tuple[int, int] = (1, 1)
    pad: Pad = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    size: tuple[int, int] = (1, 1)
    groups: int = 1

    kernel = "smg_conv2d_weight_step"

    def gradient(self) -> ConvGradWeight:
        return ConvGradWeight(self.stride, self.pad, self.dilation, self.size, self.groups)

    def scratch(self, node: Node) -> int:
        return 4 * node.ins[0].type.size // node.ins[0].type.shape[0]


@op
@dataclass(frozen=True)
class DepthwiseWeightStep(FusedStep):
    """A depthwise convolution's weights learn from its input and its output's gradient."""

    stride: tuple[int, int] = (1, 1)
    pad: Pad = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    size: tuple[int, int] = (1, 1)

    kernel = "smg_depthwise_weight_step"

    def gradient(self) -> DepthwiseGradWeight:
        return DepthwiseGradWeight(self.stride, self.pad, self.dilation, self.size)

    def scratch(self, node: Node) -> int:
        return 4 * node.ins[0].type.shape[3]


@op
@dataclass(frozen=True)
class DenseWeightStep(FusedStep):
    """An int8 classifier's weights learn."""

    kernel = "smg_dense_weight_step"

    def gradient(self) -> DenseGradWeight:
        return DenseGradWeight()

    def scratch(self, node: Node) -> int:
        return 4 * node.ins[0].type.shape[1]


@op
@dataclass(frozen=True)
class DenseStep(Op):
    """The float32 head learns: w −= rate · dy ⊗ x and b −= rate · dy.

    Inputs: w, b, their buffers (momentum > 0 or every > 1), x, dy, learning rate, carry.
    """

    momentum: float = 0.0
    every: int = 1

    inplace = 0

    @property
    def buffered(self) -> bool:
        return self.momentum > 0 or self.every > 1

    kernel = "smg_dense_step_f32"
    takes = "float32"

    def infer(self, w: Type, b: Type, *rest: Type) -> tuple[Type, ...]:
        (*buffers, x, dy, _, _) = rest
        if w.shape != (dy.shape[1], x.shape[1]) or b.shape != (dy.shape[1],) or x.shape[0] != 1:
            raise GraphError(f"DenseStep of {list(w.shape)} by {list(dy.shape)} and {list(x.shape)}")
        if len(buffers) != 2 * self.buffered:
            raise GraphError(f"DenseStep got {len(buffers)} buffers, it keeps {2 * self.buffered}")
        return (w, b, *buffers)

    def arguments(self, node: Node) -> tuple[Value | None, ...]:
        """States in place, NULL for one that is not kept: the outputs are their memory."""
        parts = self.parts(node.ins)
        w, b, *buffers = parts.states
        return (w, b, *(buffers or (None, None)), *parts.sources, parts.rate, parts.carry)

    def parts(self, ins: tuple[T, ...]) -> StepInputs[T]:
        """Inputs by what they are: values, types or arrays."""
        (*states, x, dy, rate, carry) = ins
        return StepInputs(tuple(states), (x, dy), rate, carry)

    def ref(self, node: Node, w: Array, b: Array, *rest: Array) -> tuple[Array, ...]:
        (*buffers, x, dy, learning_rate, carry) = rest
        scaled = dy[0] * learning_rate[0]
        steps = (scaled[:, None] * x[0], scaled)
        if not self.buffered:
            return w - steps[0], b - steps[1]
        full = [buffer + step for buffer, step in zip(buffers, steps, strict=True)]
        if not stochastic.due(carry, self.every):
            return (w, b, *full)
        return (w - full[0], b - full[1], *(f * np.float32(self.momentum) for f in full))

    def params(self, node: Node) -> Params:
        w = node.ins[0].type
        return {"x_c": w.shape[1], "y_c": w.shape[0], "momentum": self.momentum, "every": self.every}
