"""Updates: an int32 weight gradient becomes a stochastically rounded step of a weight, in place.

A trained weight is W = w · 2^f + fraction − half: w is the int8 the forward pass reads, the fraction its
f = weight_bits − 8 further bits, packed. QAS is the factor 1 / s_w² (weights) or 1 / (s_x·s_w)² (biases).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import Array, Node, Op, Params, Type, Value, infer, op
from smidgen.numerics import stochastic
from smidgen.numerics.float32 import limit
from smidgen.ops import checks
from smidgen.ops.gradient import ChannelSum, ParameterGrad
from smidgen.ops.rules import SGD, STEP_LIMIT, UpdateRule
from smidgen.ops.state import MOST_DIFFERENCE, units
from smidgen.ops.weighted import WeightGrad

T = TypeVar("T")
NOTHING: Array = np.zeros(0, np.uint8)  # factors are listed here; codegen may derive them from their layer's
BUFFER_BITS = 12  # fraction bits, below one int8 step, of a weight's buffer


def _wrapped(x: Array) -> Array:
    """Return integers as 32 bits hold them."""
    return x.astype(np.int32).astype(np.int64)


def fraction_bytes(size: int, bits: int) -> int:
    """Return the bytes of the packed fractions of `size` weights of 8 + bits bits."""
    return -(-size * bits // 8)


def initial_fraction(size: int, bits: int) -> Array:
    """Return the fractions of weights that are exactly their int8."""
    return pack(np.full(size, 1 << (bits - 1), np.uint8), bits)


def pack(fraction: Array, bits: int) -> Array:
    """Pack fractions side by side, lowest bits first."""
    each = 8 // bits
    padded = np.zeros(-(-fraction.size // each) * each, np.uint8)
    padded[: fraction.size] = fraction
    shifts = np.arange(each, dtype=np.uint8) * np.uint8(bits)
    return np.asarray(np.bitwise_or.reduce(padded.reshape(-1, each) << shifts, axis=1))


def unpack(packed: Array, bits: int, size: int) -> Array:
    each = 8 // bits
    shifts = np.arange(each, dtype=np.uint8) * np.uint8(bits)
    return np.asarray(((packed[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[:size])


@dataclass(frozen=True)
class StepInputs(Generic[T]):
    """The inputs of an update."""

    states: tuple[T, ...]  # what it replaces, the weight first
    sources: tuple[T, ...]  # the sums, or what they are summed from
    rate: T
    step_state: T


@dataclass(frozen=True)
class Step(Op):
    """delta = sums · factor · rate · 2^e, rounded at random; one factor per channel along `axis` of the tensor."""

    factors: tuple[float, ...]
    slot: int  # of the gradient the sums were taken from
    stream: int
    bound: int  # the largest magnitude of a sum
    rule: UpdateRule = SGD

    infer: ClassVar[Callable[..., tuple[Type, ...]]]
    ref: ClassVar[Callable[..., tuple[Array, ...]]]
    inplace = 0

    def delta(
        self, sums: Array, rate: Array, step_state: Array, fraction_bits: int | Array, along: tuple[int, ...]
    ) -> Array:
        """Return the step in units of 2^−fraction_bits; `along` is the shape in which the factors broadcast."""
        multiplier, shift = stochastic.mantissas(np.array(self.factors))
        mantissa = stochastic.high_product(multiplier, int(rate[0])).reshape(along)
        v = stochastic.high_product(_wrapped(sums.astype(np.int64) << self.lift), mantissa)
        power = int(rate[1]) + stochastic.exponent(step_state, self.slot) + fraction_bits
        t = _wrapped(np.broadcast_to(self.lift - power - shift.reshape(along).astype(np.int64), v.shape))
        return stochastic.round_update(v, t, stochastic.stream_key(step_state, self.stream))

    def follow_rule(self, buffer: Array, delta: Array, step_state: Array, down: int) -> tuple[Array, Array]:
        """Return what moves the tensor now, without the `down` last bits of the buffer's unit, and the new buffer."""
        words = stochastic.random_words(stochastic.stream_key(step_state, self.stream + 1), delta.size).reshape(
            delta.shape
        )
        step, after = self.rule.step(buffer, delta, stochastic.due(step_state, self.rule.accumulate), words)
        return (step + (words & ((1 << down) - 1)).astype(np.int64)) >> down, after

    @property
    def lift(self) -> int:
        return stochastic.lift(self.bound, type(self).__name__)

    def arguments(self, node: Node) -> tuple[Value | None, ...]:
        """Return states in place, None for one that is not kept: the outputs are their memory."""
        parts = self.parts(node.ins)
        buffer = parts.states[-1] if self.rule.buffered else None
        return (parts.states[0], *self.fraction(node), buffer, *parts.sources, parts.rate, parts.step_state)

    def parts(self, ins: tuple[T, ...]) -> StepInputs[T]:
        """Sort the inputs, be they values, types or arrays, by what they are for."""
        (*sources, rate, step_state) = ins[self.states() :]
        return StepInputs(ins[: self.states()], tuple(sources), rate, step_state)

    def states(self) -> int:
        """Return how many inputs, from the first, are state that the step replaces."""
        return 1 + self.rule.buffered

    def moved(self, node: Node) -> int:
        return self.states()

    def fraction(self, node: Node) -> tuple[Value | None, ...]:
        return ()

    def check_step(self, channels: int, w: Type, *rest: Type) -> None:
        """Raise unless the rule can be followed, its buffer, the last state, is one for w, and the rest is what it is.

        Of `channels`, each has a factor.
        """
        what, (rate, step_state) = type(self).__name__, rest[-2:]
        self.rule.check()
        buffer = rest[self.states() - 2]
        if self.rule.buffered and buffer != self.rule.buffer(w):
            raise GraphError(f"{what} of {list(w.shape)} has a buffer of {checks.shown(buffer)}")
        checks.check_factors(what, self.factors, channels)
        checks.check_is(what, "rate", rate, checks.RATE)
        checks.check_step_state(what, step_state, self.slot)
        checks.check_stream(what, self.stream)
        checks.check_sums(what, self.bound)

    def step_params(self, node: Node) -> Params:
        multiplier, shift = stochastic.mantissas(np.array(self.factors))
        return {
            "multiplier": multiplier, "shift": shift, "correction": NOTHING, "scale": 0, "exponent": 0,
            "slot": self.slot, "stream": self.stream, "lift": self.lift, **self.rule.params(node.ins[0].type.dtype),
        }  # fmt: skip


@op
class BiasStep(Step):
    """b −= delta, saturated. Inputs: b, its buffer where the rule keeps one, sums, rate, step_state.

    Where the layer's shifts are given, b is the difference of a `LearnedBias`, in its units.
    """

    shifts: tuple[int, ...] = ()

    kernel = "smg_bias_step"
    takes = "int32"

    def symbol(self, node: Node) -> str:
        return "smg_difference_step" if self.shifts else super().symbol(node)

    def infer(self, b: Type, *rest: Type) -> tuple[Type, ...]:
        dtype, narrow = "int16" if self.shifts else "int32", len(self.shifts) in (0, b.size)
        fits = len(rest) == self.states() + 2 and b == Type(b.shape, dtype) and len(self.factors) == b.size and narrow
        if not fits or self.parts((b, *rest)).sources != (Type(b.shape, "int32"),):
            raise GraphError(f"BiasStep of {b.dtype}{list(b.shape)} does not take {len(rest) + 1} inputs like these")
        self.check_step(b.size, b, *rest)
        return self.parts((b, *rest)).states

    def ref(self, node: Node, b: Array, *rest: Array) -> tuple[Array, ...]:
        (*buffer, sums, rate, step_state) = rest
        step, after = self.delta(sums, rate, step_state, -units(self.shifts) if self.shifts else 0, b.shape), []
        if self.rule.buffered:
            step, kept = self.follow_rule(buffer[0], step, step_state, 0)
            after = [kept]
        limit = MOST_DIFFERENCE if self.shifts else 1 << 30
        moved = np.clip(b.astype(np.int64) - step, -limit, limit).astype(b.dtype)
        return (moved, *after)

    def params(self, node: Node) -> Params:
        unit = {"unit": np.array(self.shifts, np.int8)} if self.shifts else {}
        return {"c": node.ins[0].type.size, **self.step_params(node), **unit}


@op
class WeightStep(Step):
    """W −= delta, saturated to ±127 int8 steps; a buffer holds BUFFER_BITS bits below one.

    Inputs: w, its packed fraction (weight_bits > 8), its buffer where the rule keeps one, sums, rate, step_state.
    """

    axis: int = 0
    bits: int = 8

    def states(self) -> int:
        return 1 + (self.bits > 8) + self.rule.buffered

    def fraction(self, node: Node) -> tuple[Value | None, ...]:
        return (node.ins[1] if self.bits > 8 else None,)

    kernel = "smg_weight_step"

    def infer(self, w: Type, *rest: Type) -> tuple[Type, ...]:
        states = self.states() - 1
        if len(rest) != states + 3 or self.bits not in (8, 10, 12):
            raise GraphError(f"WeightStep of {self.bits} bits does not take {len(rest) + 1} inputs")
        sums = rest[states]
        if w.dtype != "int8" or w.q is None or not 0 <= self.axis < len(w.shape) or sums != Type(w.shape, "int32"):
            raise GraphError(f"WeightStep of {checks.shown(w)} along axis {self.axis} by sums of {checks.shown(sums)}")
        if self.bits > 8:
            packed = Type((fraction_bytes(w.size, self.bits - 8),), "uint8")
            checks.check_is("WeightStep", "fraction", rest[0], packed)
        self.check_step(w.shape[self.axis], w, *rest)
        return (w, *rest[:states])

    def ref(self, node: Node, w: Array, *rest: Array) -> tuple[Array, ...]:
        (*states, sums, rate, step_state) = rest
        f = self.bits - 8
        half = (1 << f) >> 1
        fraction = unpack(states[0], f, w.size).reshape(w.shape).astype(np.int64) if f else np.zeros(w.shape, np.int64)
        whole = (w.astype(np.int64) << f) + fraction - half
        along = tuple(len(self.factors) if i == self.axis else 1 for i in range(w.ndim))
        after: list[Array] = []
        delta = self.delta(sums, rate, step_state, BUFFER_BITS if self.rule.buffered else f, along)
        if self.rule.buffered:
            delta, kept = self.follow_rule(states[-1], delta, step_state, BUFFER_BITS - f)
            after = [kept]
        limit = 127 << f
        moved = np.clip(whole - delta, -limit, limit) + half
        if f:
            packed = states[0]
            fractions = unpack(packed, f, packed.size * (8 // f))  # bits of the last byte that are no weight's stay
            fractions[: w.size] = (moved & ((1 << f) - 1)).ravel()
            after.insert(0, pack(fractions, f))
        return ((moved >> f).astype(np.int8), *after)

    def params(self, node: Node) -> Params:
        w = node.ins[0].type
        inner = int(np.prod(w.shape[self.axis + 1 :]))
        sizes = {"n": w.size, "inner": inner, "c": w.shape[self.axis], "fraction_bits": self.bits - 8}
        return {**sizes, **self.step_params(node)}


@dataclass(frozen=True)
class FusedStep(Step):
    """A step that computes its gradient itself, some at a time: what that reads stands where the sums would."""

    gradient: ParameterGrad = field(kw_only=True)

    working_memory = True
    steps_by: ClassVar[type[ParameterGrad]]  # whose kernels step such a tensor

    @property
    def title(self) -> str:
        return f"{self.gradient.title} + step"

    def symbol(self, node: Node) -> str:
        return self.gradient.fused_kernel

    def sums_node(self, node: Node) -> Node:
        """Return the gradient as a separate node."""
        read = self.parts(node.ins).sources
        type_ = self.gradient.infer(*(v.type for v in read))
        assert isinstance(type_, Type)
        return Node(self.gradient, read, (Value("sums", type_),))

    def infer(self, w: Type, *rest: Type) -> tuple[Type, ...]:
        states, what = self.states() - 1, type(self).__name__
        if not isinstance(self.gradient, self.steps_by):
            raise GraphError(f"{what} cannot step by {type(self.gradient).__name__}")
        if len(rest) < states + 2:
            raise GraphError(f"{what} does not take {len(rest) + 1} inputs")
        (sums,) = infer(self.gradient, rest[states:-2])
        if self.bound < self.gradient.bound(*rest[states:-2]):
            raise GraphError(f"{what} takes sums up to {self.bound:,}; there can be larger ones")
        return super().infer(w, *rest[:states], sums, *rest[-2:])

    def ref(self, node: Node, w: Array, *rest: Array) -> tuple[Array, ...]:
        states = self.states() - 1
        sums = self.gradient.ref(self.sums_node(node), *rest[states:-2])
        return super().ref(node, w, *rest[:states], sums, *rest[-2:])

    def params(self, node: Node) -> Params:
        return {**self.gradient.params(self.sums_node(node)), **super().params(node)}

    def macs(self, node: Node) -> int:
        return self.gradient.macs(self.sums_node(node))


@op
class FusedBiasStep(FusedStep, BiasStep):
    """A bias learns from its output's gradient."""

    steps_by = ChannelSum

    def symbol(self, node: Node) -> str:
        return "smg_difference_sum_step" if self.shifts else super().symbol(node)


@op
class FusedWeightStep(FusedStep, WeightStep):
    """A layer's weights learn from its input and its output's gradient."""

    steps_by = WeightGrad

    def infer(self, w: Type, *rest: Type) -> tuple[Type, ...]:
        if self.axis != self.gradient.axis:
            raise GraphError(
                f"FusedWeightStep has factors along axis {self.axis}, "
                f"{type(self.gradient).__name__} steps along axis {self.gradient.axis}"
            )
        return super().infer(w, *rest)


@op
class DenseStep(Op):
    """The float32 head learns: w −= rate · dy ⊗ x and b −= rate · dy, with rate · dy within ±STEP_LIMIT.

    Inputs: w, b, their buffers where the rule keeps them, x, dy, learning rate, step_state.
    """

    rule: UpdateRule = SGD

    inplace = 0

    kernel = "smg_dense_step_f32"
    takes = "float32"

    def infer(self, w: Type, b: Type, *rest: Type) -> tuple[Type, ...]:
        self.rule.check()
        if len(rest) != 2 * self.rule.buffered + 4:
            raise GraphError(f"DenseStep does not take {len(rest) + 2} inputs")
        (*buffers, x, dy, rate, step_state) = rest
        checks.check_dtypes("DenseStep", ("float32",), w, b, x, dy)
        checks.check_rank("DenseStep", 2, w, x, dy)
        fits = w.shape == (dy.shape[1], x.shape[1]) and b.shape == (dy.shape[1],) and x.shape[0] == dy.shape[0] == 1
        if not fits or w.q is not None or b.q is not None:
            raise GraphError(f"DenseStep of {list(w.shape)} by {list(dy.shape)} and {list(x.shape)}")
        for buffer, type_ in zip(buffers, (w, b), strict=False):
            checks.check_is("DenseStep", "buffer", buffer, type_)
        checks.check_is("DenseStep", "learning rate", rate, checks.SCALAR)
        checks.check_step_state("DenseStep", step_state)
        return (w, b, *buffers)

    def moved(self, node: Node) -> int:
        return 2 + 2 * self.rule.buffered

    def arguments(self, node: Node) -> tuple[Value | None, ...]:
        """Return states in place, None for one that is not kept: the outputs are their memory."""
        parts = self.parts(node.ins)
        w, b, *buffers = parts.states
        return (w, b, *(buffers or (None, None)), *parts.sources, parts.rate, parts.step_state)

    def parts(self, ins: tuple[T, ...]) -> StepInputs[T]:
        """Sort the inputs, be they values, types or arrays, by what they are for."""
        (*states, x, dy, rate, step_state) = ins
        return StepInputs(tuple(states), (x, dy), rate, step_state)

    def ref(self, node: Node, w: Array, b: Array, *rest: Array) -> tuple[Array, ...]:
        (*buffers, x, dy, learning_rate, step_state) = rest
        rate = learning_rate[0] if 0 <= learning_rate[0] < np.inf else np.float32(0)
        with np.errstate(over="ignore"):
            scaled = limit(dy[0] * rate, np.float32(STEP_LIMIT))
        deltas = (scaled[:, None] * x[0], scaled)
        if not self.rule.buffered:
            return w - deltas[0], b - deltas[1]
        due = stochastic.due(step_state, self.rule.accumulate)
        steps, after = zip(*(self.rule.step(*pair, due) for pair in zip(buffers, deltas, strict=True)), strict=True)
        return (w - steps[0], b - steps[1], *after)

    def params(self, node: Node) -> Params:
        w = node.ins[0].type
        return {"x_c": w.shape[1], "y_c": w.shape[0], **self.rule.params("float32")}
