"""Layer, group and instance normalization, in int8 with integers alone, its gradient, and folded batch normalization.

With n elements of int8 x, their sum S and their sum of squares Q, (x − mean) / deviation = (n·x − S) / √V, where
V = n·Q − S² + n²·ε / s², s the step of x. All of it is exact but the root, which is taken of 64 bits.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smidgen import numerics
from smidgen.errors import GraphError
from smidgen.ir import Array, Builder, Node, Op, Params, QParams, Type, Value, op
from smidgen.ops.checks import shown
from smidgen.ops.gradient import GRADIENT_MOST, GradOp, requantize_grad

MOST_ELEMENTS = 1 << 20  # that share statistics: more would leave 64 bits
SCORE_BITS = 20  # of a normalized number after the point; SCORE_BITS in C
SCALE_BITS = 15  # of a scale; SMG_SCALE_BITS in C
SHIFT_BITS = 10  # of a step of the output after the point; SMG_SHIFT_BITS in C
ROOT_BITS = 61  # a reciprocal root times a root; SMG_ROOT_BITS in C
COARSE_BITS = 10  # of a normalized number after the point, in gradients; SMG_COARSE_BITS in C
LARGEST_SCALE, LARGEST_SHIFT = 2**15 - 1, 2**30
SUM_BITS = 29  # that sums of a gradient may have


@dataclass(frozen=True)
class Groups:
    """The elements that share statistics: those of a group of channels, of one row or of all of them."""

    rows: int  # each with its own statistics
    positions: int  # that share them
    groups: int  # of channels
    width: int  # channels of a group

    @property
    def size(self) -> int:
        return self.positions * self.width

    def apart(self, x: Array) -> Array:
        """Return x as [rows, groups, elements]."""
        return (
            x.reshape(self.rows, self.positions, self.groups, self.width)
            .swapaxes(1, 2)
            .reshape(self.rows, self.groups, self.size)
        )

    def channels(self, w: Array) -> Array:
        """Return a number of each channel as [1, groups, elements]."""
        return np.tile(w.reshape(1, self.groups, self.width), (1, 1, self.positions))

    def together(self, x: Array, shape: tuple[int, ...]) -> Array:
        """Return [rows, groups, elements] in their original layout."""
        return x.reshape(self.rows, self.groups, self.positions, self.width).swapaxes(1, 2).reshape(shape)

    def params(self, x: Type, epsilon: float) -> dict[str, int]:
        high, low = divmod(epsilon_steps(x, self.size, epsilon), 1 << 31)
        return {
            "rows": self.rows, "positions": self.positions, "groups": self.groups, "width": self.width,
            "epsilon_high": high, "epsilon_low": low,
        }  # fmt: skip


def groups_of(what: str, x: Type, groups: int, epsilon: float) -> Groups:
    """Return the groups of a tensor, each row one of them where `groups` is 0; GraphError where they do not fit."""
    if not x.shape or groups < 0 or (groups and x.shape[-1] % groups):
        raise GraphError(f"{what} of {shown(x)} in {groups} groups: its last dimension must divide into them")
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise GraphError(f"{what} has the epsilon {epsilon}; give a number from 0 on")
    channels, rows = x.shape[-1], x.size // x.shape[-1]
    made = Groups(1, rows, groups, channels // groups) if groups else Groups(rows, 1, 1, channels)
    if made.size >= MOST_ELEMENTS:
        raise GraphError(f"{what} over {made.size:,} elements leaves 64 bits; {MOST_ELEMENTS - 1:,} fit")
    return made


def epsilon_steps(x: Type, size: int, epsilon: float) -> int:
    """Return n²·ε / s², in V's units."""
    steps = size * size * epsilon / x.scale**2
    if steps >= 2.0**61:
        raise GraphError(f"an epsilon of {epsilon:g} is too large for a scale of {x.scale:.3g}; calibrate it again")
    return round(steps)


@dataclass(frozen=True, eq=False)
class Scores:
    """int8 elements as normalized numbers with SCORE_BITS bits after the point, and the reciprocal roots they took.

    1 / √V = inverse · 2^(half − ROOT_BITS).
    """

    scores: Array
    inverse: Array
    half: Array


def scores_of(x: Array, size: int, epsilon: int) -> Scores:
    """Normalize int8 elements, [rows, groups, elements]."""
    wide = x.astype(np.int64)
    total, squares = wide.sum(axis=2, keepdims=True), (wide * wide).sum(axis=2, keepdims=True)
    spread = size * squares - total * total + epsilon
    roots = [inverse_root_of(max(int(v), 1)) for v in spread.ravel()]
    inverse, half = (np.array(part, np.int64).reshape(spread.shape) for part in zip(*roots, strict=True))
    right = ROOT_BITS - SCORE_BITS - half
    scores: Array = ((size * wide - total) * inverse + (np.int64(1) << (right - 1))) >> right
    return Scores(scores, inverse, half)


def inverse_root_of(v: int) -> tuple[int, int]:
    """Return 1 / √v as inverse · 2^(half − ROOT_BITS), for v from 1 on and below 2^62."""
    half = (62 - v.bit_length()) // 2
    return min((1 << ROOT_BITS) // math.isqrt(v << 2 * half), numerics.INT32_MAX), half


@dataclass(frozen=True, eq=False)
class RoundedConstants:
    """Scales in int16 with their quantization, and shifts in 1/1024 of the output's step."""

    scale: Array
    q: QParams
    shift: Array


def rounded_constants(scale: Array, shift: Array, y: QParams, step: float | None = None) -> RoundedConstants:
    """Round a normalization's constants for an int8 output; `step`, where given, is the step of the scales."""
    largest = float(np.abs(scale).max()) or 1.0
    fits = step is not None and largest < step * (LARGEST_SCALE + 0.5)
    q = QParams.per_tensor(step if step is not None and fits else largest / LARGEST_SCALE)
    steps = np.clip(np.rint(shift / (y.one / (1 << SHIFT_BITS))), -LARGEST_SHIFT, LARGEST_SHIFT)
    return RoundedConstants(np.rint(scale / q.one).astype(np.int16), q, steps.astype(np.int32))


@op
class Normalize(Op):
    """y = (x − mean) / √(variance + ε) · scale + shift; channels run along the last dimension.

    Statistics are those of each row or, with groups, of the channels of a group in all rows. In int8 scales are
    int16, and shifts are in 1/1024 of the output's step.
    """

    epsilon: float = 1e-5
    groups: int = 0  # of channels; 0: each row by itself

    kernel = "smg_normalize_s8"
    requantizes = True

    def infer(self, x: Type, scale: Type, shift: Type) -> Type:
        groups_of("Normalize", x, self.groups, self.epsilon)
        channels = x.shape[-1]
        if x.dtype not in ("int8", "float32") or (x.dtype == "int8" and (x.q is None or x.q.axis is not None)):
            raise GraphError(f"Normalize takes float32, or int8 with one scale, not {shown(x)}")
        wanted, moved = ("int16", "int32") if x.dtype == "int8" else ("float32", "float32")
        one = scale.q is not None and scale.q.axis is None and scale.zero == 0
        if scale.dtype != wanted or scale.shape != (channels,) or (wanted == "int16") != one:
            found = f"{wanted}[{channels}]{' with one scale' if wanted == 'int16' else ''}"
            raise GraphError(f"Normalize takes {found} as its scales, not {shown(scale)}")
        if shift.dtype != moved or shift.shape != (channels,):
            raise GraphError(f"Normalize takes {moved}[{channels}] as its shifts, not {shown(shift)}")
        return Type(x.shape, x.dtype)

    def split(self, x: Type) -> Groups:
        return groups_of("Normalize", x, self.groups, self.epsilon)

    def multiplier(self, node: Node) -> tuple[int, int]:
        """Return the multiplier from a normalized number times a scale to 1/1024 of a step."""
        scale, y = node.ins[1].type.scale, node.out.type.scale
        return numerics.quantize_multiplier(scale / y * 2.0 ** (SHIFT_BITS + SCALE_BITS - SCORE_BITS))

    def ref(self, node: Node, x: Array, scale: Array, shift: Array) -> Array:
        split = self.split(node.ins[0].type)
        apart, scales, shifts = split.apart(x), split.channels(scale), split.channels(shift)
        if x.dtype == np.float32:
            mean, variance = apart.mean(axis=2, keepdims=True), apart.var(axis=2, keepdims=True)
            real = (apart - mean) / np.sqrt(variance + np.float32(self.epsilon)) * scales + shifts
            return split.together(real.astype(np.float32), x.shape)
        made = scores_of(apart, split.size, epsilon_steps(node.ins[0].type, split.size, self.epsilon))
        multiplier, exponent = self.multiplier(node)
        products = (made.scores * scales.astype(np.int64)) >> SCALE_BITS
        moved = ((products * multiplier) >> (31 - exponent)) + shifts
        steps = (moved + (1 << (SHIFT_BITS - 1))) >> SHIFT_BITS
        return split.together(numerics.to_int8(steps, node.out.type.zero), x.shape)

    def params(self, node: Node) -> Params:
        x, y = node.ins[0].type, node.out.type
        split = self.split(x)
        multiplier, shift = self.multiplier(node)
        return {**split.params(x, self.epsilon), "y_zero": y.zero, "multiplier": multiplier, "shift": shift}

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        """Emit the gradient of the input alone: scales and shifts do not learn."""
        (x, scale, _), y = node.ins, node.out
        factors = () if y.type.q is None else (scale.type.scale / y.type.scale,)
        dz = requantize_grad(g, dy, y, factors, "none")
        fraction = 0
        if x.type.dtype == "int8":
            fraction = SUM_BITS - largest_sum(x.type, self.split(x.type).size, self.epsilon).bit_length()
        op = NormalizeGrad(epsilon=self.epsilon, groups=self.groups, fraction=fraction)
        return g.emit(op, dz, x, scale), None, None


def largest_sum(x: Type, size: int, epsilon: float) -> int:
    """Return the largest magnitude of a sum of integers in the gradient: that where a group's variance is about 0."""
    rest = GRADIENT_MOST * (1 << SCALE_BITS) * (3 + math.isqrt(size))
    return rest * size // math.isqrt(max(epsilon_steps(x, size, epsilon), 1)) + 1


@op
class NormalizeGrad(GradOp):
    """dx = (g − mean(g) − z · mean(g · z)) / deviation, with g = dy · scale and z the normalized input."""

    epsilon: float = 1e-5
    groups: int = 0  # of channels; 0: each row by itself
    fraction: int = 0  # lowered: bits of a sum after the point

    kernel = "smg_normalize_grad_g8"
    operands = 3
    reads: ClassVar[tuple[str, ...]] = ("int8", "int16")

    def shape(self, *operands: Type) -> tuple[int, ...]:
        dy, x, scale = operands
        groups_of("NormalizeGrad", x, self.groups, self.epsilon)
        if dy.shape != x.shape or scale.shape != x.shape[-1:] or (x.dtype == "int8") != (scale.dtype == "int16"):
            raise GraphError(f"NormalizeGrad of {shown(x)} and scales {shown(scale)} does not fit {shown(dy)}")
        return x.shape

    def split(self, node: Node) -> Groups:
        return groups_of("NormalizeGrad", node.ins[1].type, self.groups, self.epsilon)

    def sums(self, node: Node, *operands: Array) -> Array:
        dy, x, scale = operands
        split = self.split(node)
        apart, moved = split.apart(x), split.apart(dy)
        scales = split.channels(scale)
        if self.lowered:
            return split.together(self._whole_sums(node, apart, moved.astype(np.int64) * scales), x.shape)
        wide = apart.astype(np.float64)
        variance, epsilon = wide.var(axis=2, keepdims=True), self.epsilon
        if x.dtype == np.int8:
            epsilon /= node.ins[1].type.scale ** 2
        deviation = np.sqrt(np.maximum(variance + epsilon, np.finfo(np.float64).tiny))
        z, g = (wide - wide.mean(axis=2, keepdims=True)) / deviation, moved * scales.astype(np.float64)
        rest = g - g.mean(axis=2, keepdims=True) - z * (g * z).mean(axis=2, keepdims=True)
        return split.together((rest / deviation).astype(np.float32), x.shape)

    def _whole_sums(self, node: Node, x: Array, g: Array) -> Array:
        """Return the same in integers, with `fraction` bits after the point."""
        size = x.shape[2]
        made = scores_of(x, size, epsilon_steps(node.ins[1].type, size, self.epsilon))
        z = made.scores >> (SCORE_BITS - COARSE_BITS)
        mean, along = (_mean(part, size) for part in (g, g * z))
        rest = g - mean - ((z * along) >> (2 * COARSE_BITS))
        factor = (made.inverse * size) >> size.bit_length()
        right = ROOT_BITS - made.half - size.bit_length() - self.fraction
        return np.asarray((rest * factor) >> np.clip(right, 0, 63))

    def bound(self, node: Node) -> int:
        most = largest_sum(node.ins[1].type, self.split(node).size, self.epsilon)
        return most << self.fraction if self.fraction >= 0 else (most >> -self.fraction) + 1

    def sizes(self, node: Node) -> Params:
        split = self.split(node)
        fields = split.params(node.ins[1].type, self.epsilon)
        return {**fields, "size_bits": split.size.bit_length(), "fraction": self.fraction}


def _mean(x: Array, size: int) -> Array:
    """Return the mean over the elements, towards zero."""
    total = x.sum(axis=2, keepdims=True)
    return np.asarray(np.sign(total) * (np.abs(total) // size))


@op
class BatchNorm(Op):
    """y = x · scale + shift along the last axis, in float32; quantization folds it into the layer beside it."""

    def infer(self, x: Type, scale: Type, shift: Type) -> Type:
        if any(t.dtype != "float32" for t in (x, scale, shift)):
            found = ", ".join(t.dtype for t in (x, scale, shift))
            raise GraphError(f"BatchNorm takes float32, not {found}; quantization folds it into the layer before it")
        if not x.shape or scale.shape != x.shape[-1:] or shift.shape != x.shape[-1:]:
            raise GraphError(
                f"BatchNorm of {list(x.shape)} needs one scale and one shift per channel, "
                f"got {list(scale.shape)} and {list(shift.shape)}"
            )
        return Type(x.shape, x.dtype)

    def ref(self, node: Node, x: Array, scale: Array, shift: Array) -> Array:
        return np.asarray(x * scale + shift)
