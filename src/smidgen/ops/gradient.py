"""Gradient ops in common: exact sums, then one passage through scale, mask and rounding.

A gradient op runs in float32 (the definition of the gradient, and the fp32 baseline) or, lowered, in
int8 with carried exponents: then it also reads the step state and reports the bits it saw.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Op, Params, Type, Value, op
from smidgen.numerics import stochastic
from smidgen.ops import checks

T = TypeVar("T")
GRADIENT_MOST = 127  # the largest magnitude of an int8 gradient


def mask_bytes(size: int) -> int:
    """Return the bytes of a mask: one bit per element, eight to a byte."""
    return (size + 7) // 8


@op
class Mask(Op):
    """One bit per element: set where the value lies strictly inside its activation's limits, so gradient passes.

    An int8 value on a limit counts as clamped: half of what rounds to it was beyond the limit.
    """

    activation: str = "none"

    kernel = "smg_mask_s8"
    saved = True

    def infer(self, y: Type) -> Type:
        numerics.check_activation(self.activation)
        if y.dtype != "float32" and (y.dtype != "int8" or y.q is None or y.q.axis is not None):
            raise GraphError(f"Mask takes float32, or int8 with one scale, not {checks.shown(y)}")
        return Type((mask_bytes(y.size),), "uint8")

    def ref(self, node: Node, y: Array) -> Array:
        if y.dtype == np.float32:
            low, high = numerics.activation_limits(self.activation)
        else:
            low, high = numerics.activation_range(self.activation, node.ins[0].type)
        return np.asarray(np.packbits(((y > low) & (y < high)).ravel(), bitorder="little"))

    def params(self, node: Node) -> Params:
        low, high = numerics.activation_range(self.activation, node.ins[0].type)
        return {"n": node.ins[0].type.size, "lo": low, "hi": high}


def unmask(mask: Array, shape: tuple[int, ...]) -> Array:
    """Return a mask's bits as booleans of a tensor's shape."""
    return np.asarray(np.unpackbits(mask, bitorder="little", count=int(np.prod(shape))).reshape(shape).astype(bool))


@dataclass(frozen=True)
class GradInputs(Generic[T]):
    """The inputs of a gradient op."""

    operands: tuple[T, ...]  # gradients first
    mask: T | None
    step_state: T | None  # where it is lowered


@dataclass(frozen=True)
class GradOp(Op):
    """dx = round(sums · factors) where the mask is set; `sums` is what each subclass defines."""

    factors: tuple[float, ...] = ()  # one for the tensor or one per channel; none means 1
    masked: bool = False  # the input after the operands is a mask of the output
    slots: tuple[int, ...] = ()  # lowered: the gradient operands' places in the step state, then the output's
    stream: int = 0  # lowered: which random bits

    operands: ClassVar[int] = 1  # inputs before mask and step_state; the first is a gradient
    gradients: ClassVar[int] = 1  # how many operands, from the first, are gradients
    reads: ClassVar[tuple[str, ...]] = ("int8",)  # the dtypes of other operands, where they are quantized
    fraction = 0  # lowered: bits of a sum after the point

    def shape(self, *operands: Type) -> tuple[int, ...]:
        """Return the output's shape: by default that of the gradient."""
        return operands[0].shape

    def sums(self, node: Node, *operands: Array) -> Array:
        """Return what is scaled and rounded: integers where the gradients are, float32 where they are."""
        raise GraphError(f"{type(self).__name__} gives no sums")

    def bound(self, node: Node) -> int:
        """Return the largest magnitude a sum of integers can have."""
        raise GraphError(f"{type(self).__name__} gives no bound")

    @property
    def lowered(self) -> bool:
        return bool(self.slots)

    def infer(self, *types: Type) -> Type | tuple[Type, ...]:
        expected = self.operands + self.masked + self.lowered
        if len(types) != expected:
            raise GraphError(f"{type(self).__name__} does not take {len(types)} inputs but {expected}")
        what, parts = type(self).__name__, self.parts(types)
        gradients, others = parts.operands[: self.gradients], parts.operands[self.gradients :]
        if any(t.dtype != ("int8" if self.lowered else "float32") for t in gradients):
            raise GraphError(f"{what} got {types[0].dtype} gradients, lowered: {self.lowered}")
        checks.check_dtypes(what, self.reads if self.lowered else (*self.reads, "float32"), *others)
        checks.check_channels(what, *parts.operands)
        shape = self.shape(*parts.operands)
        checks.check_shape(what, shape)
        checks.check_factors(what, self.factors, 0, 1, shape[-1])
        if parts.mask is not None:
            checks.check_is(what, "mask", parts.mask, Type((mask_bytes(math.prod(shape)),), "uint8"))
        if parts.step_state is None:
            return Type(shape, "float32")
        checks.check_gradient(what, *gradients)
        self._check_lowered(parts.operands, Type(shape, "int8"), parts.step_state)
        return Type(shape, "int8"), checks.PEAK_BITS

    def _check_lowered(self, operands: tuple[Type, ...], out: Type, step_state: Type) -> None:
        """Raise GraphError unless each gradient has its exponent in the step state, and sums fit."""
        what = type(self).__name__
        if len(self.slots) != self.gradients + 1:
            raise GraphError(f"{what} of {self.gradients} gradients has {len(self.slots)} slots; one more is its own")
        checks.check_step_state(what, step_state, *self.slots)
        checks.check_stream(what, self.stream)
        node = Node(self, tuple(Value("x", t) for t in operands), (Value("dx", out),))
        checks.check_sums(what, self.bound(node), checks.MOST_SUMMED)

    def ref(self, node: Node, *arrays: Array) -> Array | tuple[Array, ...]:
        parts = self.parts(arrays)
        sums = self.sums(node, *parts.operands)
        mask = np.bool_(True) if parts.mask is None else unmask(parts.mask, sums.shape)
        if parts.step_state is None:
            return np.asarray((sums * np.array(self.factors or (1.0,), np.float32) * mask).astype(np.float32))
        return self._round(node, sums, mask, parts.step_state)

    def _round(self, node: Node, sums: Array, mask: Array | np.bool_, step_state: Array) -> tuple[Array, Array]:
        multiplier, shift = self.multipliers()
        lift = self.lift(node)
        e_in, e_out = self.reference(step_state), stochastic.exponent(step_state, self.slots[-1])
        v = stochastic.high_product((sums << lift) * mask, multiplier)
        t = e_out - e_in - shift + lift
        g, peak_bits = stochastic.round_gradient(v, t, stochastic.stream_key(step_state, self.stream))
        return g, np.array([peak_bits], np.int32)

    def reference(self, step_state: Array) -> int:
        """Return the exponent of the sums."""
        return stochastic.exponent(step_state, self.slots[0])

    def multipliers(self) -> tuple[Array, int]:
        """Return the factors as mantissas of one power of two: a gradient has one exponent, and so have its factors."""
        multiplier, shift = stochastic.shared_mantissas(np.array(self.factors or (1.0,)))
        return multiplier, shift - self.fraction

    def lift(self, node: Node) -> int:
        """Return the bits by which sums are raised before scaling, so that small ones keep their precision."""
        return stochastic.lift(self.bound(node), f"{type(self).__name__}, which gives %{node.outs[0].name},")

    def rounding(self, node: Node) -> Params:
        """Return the fields of the C struct that say how sums become a gradient."""
        multiplier, shift = self.multipliers()
        return {
            "multiplier": multiplier, "shift": shift, "factors": len(multiplier), "lift": self.lift(node),
            "slot_in": self.slots[0], "slot_out": self.slots[-1], "stream": self.stream,
        }  # fmt: skip

    def sizes(self, node: Node) -> Params:
        """Return the fields of the C struct before those of the rounding."""
        return {"n": node.outs[0].type.size, "c": node.outs[0].type.shape[-1]}

    def params(self, node: Node) -> Params:
        return {**self.sizes(node), **self.rounding(node)}

    def arguments(self, node: Node) -> tuple[Value | None, ...]:
        parts = self.parts(node.ins)
        return (*parts.operands, parts.mask, parts.step_state, *node.outs)

    def parts(self, ins: tuple[T, ...]) -> GradInputs[T]:
        """Sort the inputs, be they values, types or arrays, by what they are for."""
        rest = iter(ins[self.operands :])
        mask = next(rest) if self.masked else None
        return GradInputs(ins[: self.operands], mask, next(rest) if self.lowered else None)


@op
class RequantizeGrad(GradOp):
    """The gradient before a requantization: the gradient after it, times its factor, where it did not clamp."""

    kernel = "smg_requantize_grad_g8"

    def sums(self, node: Node, *operands: Array) -> Array:
        return operands[0].astype(np.int64) if self.lowered else operands[0]

    def bound(self, node: Node) -> int:
        return 127


@op
class SumGrads(GradOp):
    """The sum of two gradients of one value: paths that part in the forward pass meet here."""

    kernel = "smg_sum_g8"
    operands = 2
    gradients = 2
    REACH: ClassVar[int] = 16  # bits by which the larger exponent may stand above the reference

    def shape(self, *operands: Type) -> tuple[int, ...]:
        if operands[0].shape != operands[1].shape:
            raise GraphError(f"SumGrads of {operands[0].shape} and {operands[1].shape}: both must have the same shape")
        return operands[0].shape

    def sums(self, node: Node, *operands: Array) -> Array:
        return operands[0] + operands[1]

    def reference(self, step_state: Array) -> int:
        a, b = (stochastic.exponent(step_state, slot) for slot in self.slots[:2])
        return max(min(a, b), max(a, b) - self.REACH)

    def bound(self, node: Node) -> int:
        return 127 << (self.REACH + 1)

    def ref(self, node: Node, *arrays: Array) -> Array | tuple[Array, ...]:
        parts = self.parts(arrays)
        if parts.step_state is None:
            return super().ref(node, *arrays)
        step_state, reference = parts.step_state, self.reference(parts.step_state)
        aligned = []
        for g, slot in zip(parts.operands, self.slots[:2], strict=True):
            by = stochastic.exponent(step_state, slot) - reference
            aligned.append(g.astype(np.int64) << by if by >= 0 else g.astype(np.int64) >> min(-by, 31))
        mask = np.bool_(True) if parts.mask is None else unmask(parts.mask, aligned[0].shape)
        return self._round(node, aligned[0] + aligned[1], mask, step_state)

    def sizes(self, node: Node) -> Params:
        return {**super().sizes(node), "slot_b": self.slots[1], "reach": self.REACH}


@op
class FromFloat(Op):
    """A float32 gradient becomes int8 in units of g0, the largest magnitude of the loss gradient."""

    scale: float
    slots: tuple[int, ...]
    stream: int

    kernel = "smg_from_float_g8"
    takes = "float32"
    TINY: ClassVar[float] = 2.0**-40  # of g0: below, there is nothing to learn and nothing to divide by
    BITS: ClassVar[int] = 8  # of a fraction, before rounding

    def infer(self, dy: Type, g0: Type, step_state: Type) -> tuple[Type, ...]:
        checks.check_dtypes("FromFloat", ("float32",), dy)
        checks.check_is("FromFloat", "unit", g0, checks.SCALAR)
        checks.check_factors("FromFloat", (self.scale,), 1)
        if len(self.slots) != 1 or self.scale > np.finfo(np.float32).max:
            raise GraphError(f"FromFloat has the scale {self.scale:g} and {len(self.slots)} slots; it has one of each")
        checks.check_step_state("FromFloat", step_state, *self.slots)
        checks.check_stream("FromFloat", self.stream)
        return Type(dy.shape, "int8"), checks.PEAK_BITS

    def ref(self, node: Node, dy: Array, g0: Array, step_state: Array) -> tuple[Array, ...]:
        unit = np.float32(1) / g0[0] if g0[0] > self.TINY else np.float32(0)
        power = np.float32(2.0 ** (self.BITS - stochastic.exponent(step_state, self.slots[0])))
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = dy * (np.float32(self.scale) * unit) * power
        limit = np.float32(2.0**29)
        above = np.where(scaled > -limit, scaled, -limit)  # in this order a NaN becomes the lower limit
        v = np.floor(np.where(above < limit, above, limit)).astype(np.int64)
        g, peak_bits = stochastic.round_gradient(v, self.BITS, stochastic.stream_key(step_state, self.stream))
        return g, np.array([peak_bits], np.int32)

    def params(self, node: Node) -> Params:
        return {
            "n": node.outs[0].type.size, "scale": self.scale, "tiny": self.TINY,
            "bits": self.BITS, "slot": self.slots[0], "stream": self.stream,
        }  # fmt: skip


@op
class AdvanceStepState(Op):
    """The step_state after a step: one step on, each level moved by what its tensor showed."""

    kernel = "smg_advance_step_state"
    takes = "int32"
    variadic = True
    inplace = 0

    def infer(self, step_state: Type, *peak_bits: Type) -> Type:
        checks.check_step_state("AdvanceStepState", step_state)
        for bits in peak_bits:
            checks.check_is("AdvanceStepState", "peak bits", bits, checks.PEAK_BITS)
        if step_state.shape != (stochastic.FIRST_LEVEL + len(peak_bits),):
            raise GraphError(f"AdvanceStepState of {step_state.shape[0]} entries got {len(peak_bits)} gradients")
        return step_state

    def ref(self, node: Node, step_state: Array, *peak_bits: Array) -> Array:
        after = step_state.copy()
        after[stochastic.STEP] = np.int64(int(step_state[stochastic.STEP]) + 1).astype(np.int32)
        for i, bits in enumerate(peak_bits, start=stochastic.FIRST_LEVEL):
            after[i] = stochastic.next_level(int(step_state[i]), int(bits[0]))
        return after

    def params(self, node: Node) -> Params:
        return {"count": len(node.ins) - 1}


@dataclass(frozen=True)
class ParameterGrad(Op):
    """The gradient of a tensor that learns, as exact sums; a step of that tensor may compute it itself."""

    fused_kernel: ClassVar[str] = ""  # C symbol of that step
    axis: ClassVar[int] = 0  # of the tensor: along it lie the channels, of which each has a factor in that step

    def bound(self, *types: Type) -> int:
        """Return the largest magnitude a sum of integers can have, given the inputs' types."""
        raise GraphError(f"{type(self).__name__} gives no bound")


@op
class ChannelSum(ParameterGrad):
    """The sum over all positions: a bias's gradient."""

    kernel = "smg_channel_sum_g8"
    fused_kernel = "smg_bias_sum_step"

    def bound(self, *types: Type) -> int:
        (dy,) = types
        return GRADIENT_MOST * (dy.size // dy.shape[-1])

    def infer(self, dy: Type) -> Type:
        checks.check_channels("ChannelSum", dy)
        if dy.dtype == "float32":
            return Type((dy.shape[-1],), "float32")
        checks.check_gradient("ChannelSum", dy)
        checks.check_sums("ChannelSum", self.bound(dy))
        return Type((dy.shape[-1],), "int32")

    def ref(self, node: Node, dy: Array) -> Array:
        wide = np.float32 if dy.dtype == np.float32 else np.int32
        return np.asarray(dy.reshape(-1, dy.shape[-1]).sum(axis=0, dtype=wide))

    def params(self, node: Node) -> Params:
        dy = node.ins[0].type
        return {"n": dy.size // dy.shape[-1], "c": dy.shape[-1]}


def requantize_grad(g: Builder, dy: Value, y: Value, factors: tuple[float, ...], activation: str) -> Value:
    """Emit the gradient back through y's clamp and requantization; nothing where y had neither."""
    if y.type.dtype == "float32" and activation == "none":
        return dy
    return g.emit(RequantizeGrad(factors, masked=True), dy, g.emit(Mask(activation), y))
