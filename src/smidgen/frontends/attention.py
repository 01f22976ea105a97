"""What transformers of channels-first files are made of: products of two tensors, attention, normalization."""

from __future__ import annotations

import math

import numpy as np

from smidgen import ops
from smidgen.errors import ImportModelError
from smidgen.frontends.channels import Channels, Constant, FileTensor, Operand, together
from smidgen.frontends.layout import Shape, TensorLayout
from smidgen.ir import Array, QParams, Value
from smidgen.numerics import INT8_MAX
from smidgen.ops.normalize import rounded_constants

MOST_REPEATED = 1 << 14  # matrices


class Attending(Channels):
    """Rules for operators that read two computed matrices, or statistics of what they read."""

    def matmul(self, a: Operand, b: Operand) -> FileTensor:
        """The product of two tensors, matrix by matrix; the dimensions before the last two may repeat."""
        if len(a.shape) < 2 or len(b.shape) < 2:
            raise ImportModelError(f"a product of {list(a.shape)} and {list(b.shape)} is not supported; use matrices")
        outer = together(a.shape[:-2], b.shape[:-2])
        left, right = self._factors(a, b)
        count = math.prod(outer)
        (first, turned_a), (second, turned_b) = self._matrices(left, count, False), self._matrices(right, count, True)
        value = self.emit(ops.MatMul(turned_a, turned_b), first, second, q=self.q)
        return self.reshape(FileTensor(value, TensorLayout.of(value.type.shape)), (*outer, a.shape[-2], b.shape[-1]))

    def _factors(self, a: Operand, b: Operand) -> tuple[FileTensor, FileTensor]:
        """Both in int8 where they are and the file quantizes their product, else both in float32."""
        computed = [x for x in (a, b) if isinstance(x, FileTensor)]
        if self.q is not None and all(x.value.type.dtype == "int8" for x in computed):
            left, right = (x if isinstance(x, FileTensor) else self._steps(x) for x in (a, b))
            return left, right
        return self.real(a), self.real(b)

    def _steps(self, x: Constant) -> FileTensor:
        """A constant in int8: as the file holds it or, where it holds numbers, with one scale."""
        if x.steps is not None and len(x.scales) == 1:
            steps, q = x.steps.astype(np.int8), QParams.per_tensor(x.scales[0], x.zero)
        else:
            q = QParams.per_tensor((float(np.abs(x.data).max(initial=0)) or 1.0) / INT8_MAX)
            steps = np.rint(x.data / q.one).astype(np.int8)
        return FileTensor(self.constant("constant", steps, q), TensorLayout.of(x.shape))

    def _matrices(self, x: FileTensor, count: int, turned: bool) -> tuple[Value, bool]:
        """[1, count, rows, columns], or [1, count, columns, rows] and that it is so: as they lie, else as asked for.

        What is summed along lies side by side where the first factor is as it is and the second one turned.
        """
        rows, columns = x.shape[-2:]
        if math.prod(x.shape[:-2]) not in (1, count) or (math.prod(x.shape[:-2]) != count and count > MOST_REPEATED):
            raise ImportModelError(
                f"{list(x.shape)} would be repeated to {count:,}; repeat it as a whole, {MOST_REPEATED:,} times at most"
            )
        if math.prod(x.shape[:-2]) != count:
            x = self._repeated(x, count)
        x = self.reshape(x, (count, rows, columns))
        ways = {False: x.layout.order((0, 1, 2)), True: x.layout.order((0, 2, 1))}
        turned = next((way for way, memory in ways.items() if memory == x.layout.memory), turned)
        shape = (columns, rows) if turned else (rows, columns)
        return self.view(self.arranged(x, ways[turned]).value, (1, count, *shape)), turned

    def _repeated(self, x: FileTensor, count: int) -> FileTensor:
        """One matrix, as often as there are others."""
        flat = self.reshape(x, x.shape[-2:])
        source = self.view(self.arranged(flat, flat.layout.order((0, 1))).value, (1, 1, 1, x.size))
        value = self.builder.emit(ops.Pick((0,) * count), source)
        return FileTensor(value, TensorLayout.of((count, *x.shape[-2:])))

    def attention(self, q: Operand, k: FileTensor, v: Operand, scale: float, mask: Constant | None) -> FileTensor:
        """softmax(q · kᵀ · scale + mask) · v."""
        rank = len(k.shape)
        scores = self.matmul(q, self.transpose(k, (*range(rank - 2), rank - 1, rank - 2)))
        if mask is not None:
            scores = self.add(self.multiply(scores, Constant(np.array([scale], np.float32))), mask)
            scale = 1.0
        return self.matmul(self.softmax(scores, -1, scale), v)

    def softmax(self, x: FileTensor, axis: int, beta: float = 1.0) -> FileTensor:
        """exp(βx) / Σ exp(βx) along a dimension."""
        x = self._last(x, axis)
        return FileTensor(self.emit(ops.Softmax(beta), x.value), x.layout)

    def unit_norm(self, x: FileTensor, axis: int) -> FileTensor:
        """x / √Σ x² along a dimension."""
        x = self._last(x, axis)
        return FileTensor(self.emit(ops.UnitNorm(), x.value), x.layout)

    def _last(self, x: FileTensor, axis: int) -> FileTensor:
        """The tensor with a dimension last in memory."""
        axis %= len(x.shape)
        last = x.layout.places(axis)
        x = self.arranged(x, tuple(i for i in x.layout.memory if i not in last) + last)
        if x.value.type.shape[-1] != x.shape[axis]:
            x = FileTensor(self.view(x.value, (x.size // x.shape[axis], x.shape[axis])), x.layout)
        return x

    def power(self, x: FileTensor, exponent: float) -> FileTensor:
        """x to a constant power."""
        return self.multiply(x, x) if exponent == 2 else self.unary(ops.Lookup("power", exponent), x)

    def layer_norm(
        self, x: FileTensor, count: int, scale: Constant | None, shift: Constant | None, epsilon: float
    ) -> FileTensor:
        """Each row of the last `count` dimensions normalized, then scaled and shifted element by element."""
        rank = len(x.shape)
        if not 1 <= count <= rank:
            raise ImportModelError(f"it normalizes {count} dimensions of {list(x.shape)}; export the model again")
        x = self.int8_if_planned(x)
        shape = x.shape[rank - count :]
        places = {place for i in range(rank - count, rank) for place in x.layout.places(i)}
        slow = tuple(i for i in x.layout.memory if i not in places)
        fast = tuple(i for i in x.layout.memory if i in places)
        x = self.arranged(x, slow + fast)
        size = math.prod(shape)
        factors = [f for dim in x.layout.dims[rank - count :] for f in dim]
        order = [place - min(places) for place in fast] if places else []
        scales, shifts = (
            _spread(part, number, shape).reshape(factors).transpose(order).reshape(-1)
            for part, number in ((scale, 1.0), (shift, 0.0))
        )
        source = self.view(x.value, (x.size // size, size))
        return FileTensor(
            self._normalized(ops.Normalize(single(epsilon)), source, scales, shifts, _step(scale)), x.layout
        )

    def group_norm(
        self, x: FileTensor, groups: int, scale: Constant | None, shift: Constant | None, epsilon: float
    ) -> FileTensor:
        """All elements of a group of channels normalized; channels are dimension 1."""
        rank = len(x.shape)
        if rank not in (3, 4):
            raise ImportModelError(f"it normalizes groups of {list(x.shape)}; give one or two dimensions of a map")
        source, channels = self.to_map(self.int8_if_planned(x)), x.shape[1]
        scales, shifts = (_spread(part, number, (channels,)) for part, number in ((scale, 1.0), (shift, 0.0)))
        op = ops.Normalize(single(epsilon), groups)
        return self.from_map(self._normalized(op, source, scales, shifts, _step(scale)), rank)

    def _normalized(self, op: ops.Normalize, x: Value, scale: Array, shift: Array, step: float | None) -> Value:
        """A normalization with its constants, rounded where it is in int8; `step` is what the file rounds scales to."""
        if x.type.dtype == "float32":
            parts = [
                self.constant(role, data.astype(np.float32)) for role, data in (("scale", scale), ("shift", shift))
            ]
            return self.emit(op, x, *parts)
        assert self.q is not None
        rounded = rounded_constants(scale, shift, self.q, step)
        held = self.constant("scale", rounded.scale, rounded.q), self.constant("shift", rounded.shift)
        return self.emit(op, x, *held, q=self.q)


def single(number: float) -> float:
    """A number as float32 holds it, which is how files do."""
    return float(np.float32(number))


def _spread(part: Constant | None, number: float, shape: Shape) -> Array:
    """A constant, or one number, for each element of a shape."""
    data = np.asarray(number if part is None else part.data, np.float64)
    if data.size not in (1, math.prod(shape)) and together(data.shape, shape) != shape:
        raise ImportModelError(f"scales or shifts {list(data.shape)} do not fit {list(shape)}; export the model again")
    if data.size == math.prod(shape):
        return data.reshape(shape)
    return np.broadcast_to(data.reshape(()) if data.size == 1 else data, shape)


def _step(scale: Constant | None) -> float | None:
    """The step of a constant that the file holds quantized as a whole."""
    return scale.scales[0] if scale is not None and len(scale.scales) == 1 and scale.zero == 0 else None
