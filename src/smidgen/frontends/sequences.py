"""Layers of transformers and recurrent networks in channels-first files: products, attention, normalization, cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smidgen import ops
from smidgen.errors import ImportModelError, refuse
from smidgen.frontends.channels import Constant, FileTensor, Operand, together
from smidgen.frontends.layers import Layers
from smidgen.frontends.layout import Shape, TensorLayout
from smidgen.ir import Array, QParams, Value
from smidgen.ops.normalize import rounded_constants

MOST_REPEATED = 1 << 14  # matrices


@dataclass(frozen=True, eq=False)
class Cells:
    """A recurrent op and its weights as the op takes them: [gates, cells, …] each."""

    op: ops.Lstm | ops.Gru
    w: Array
    u: Array
    b: Array

    @staticmethod
    def stacked(op: ops.Lstm | ops.Gru, order: Sequence[int], w: Array, u: Array, b: Array, d: Array) -> Cells:
        """Build cells from matrices [gates · cells, …] and the biases of x and h; `order` gives our gates' places."""
        cells = w.shape[0] // op.gates if w.ndim == 2 else 0
        shapes = (op.gates * cells, cells), (op.gates * cells,)
        if not cells or (u.shape, b.shape, d.shape) != (shapes[0], *shapes[1:] * 2):
            raise ImportModelError(
                f"its weights {list(w.shape)} and {list(u.shape)} with biases {list(b.shape)} and {list(d.shape)} do "
                f"not fit {op.gates} gates; projections are not supported"
            )
        w, u, b, d = (
            np.stack([part.reshape(op.gates, cells, -1)[gate] for gate in order]).astype(np.float32)
            for part in (w, u, b, d)
        )
        b, d = b[:, :, 0], d[:, :, 0]
        whole = b + d if isinstance(op, ops.Lstm) else np.concatenate([b[:2] + d[:2], b[2:], d[2:]])
        return Cells(op, w, u, whole)


class Sequences(Layers):
    """Layers that read two computed matrices, statistics of their input, or a sequence step by step."""

    def matmul(self, a: Operand, b: Operand) -> FileTensor:
        """Multiply two tensors matrix by matrix; the dimensions before the last two may repeat."""
        if len(a.shape) < 2 or len(b.shape) < 2:
            raise ImportModelError(f"a product of {list(a.shape)} and {list(b.shape)} is not supported; use matrices")
        outer = together(a.shape[:-2], b.shape[:-2])
        left, right = self._factors(a, b)
        count = math.prod(outer)
        (first, turned_a), (second, turned_b) = self._matrices(left, count, False), self._matrices(right, count, True)
        value = self.emit(ops.MatMul(turned_a, turned_b), first, second, q=self.q)
        return self.reshape(FileTensor(value, TensorLayout.of(value.type.shape)), (*outer, a.shape[-2], b.shape[-1]))

    def _factors(self, a: Operand, b: Operand) -> tuple[FileTensor, FileTensor]:
        """Return both in int8 where computed ones are int8 and the file quantizes their product, else in float32."""
        if self.q is None or not all(isinstance(x, Constant) or x.is_int8 for x in (a, b)):
            return self.real(a), self.real(b)

        def factor(x: Operand) -> FileTensor:
            """Return a factor in int8: a constant with the file's integers, if of one scale, else quantized here."""
            if isinstance(x, FileTensor):
                return x
            if x.steps is None or len(x.scales) != 1:
                return FileTensor(self.int8_constant(x.data), TensorLayout.of(x.shape))
            value = self.constant("constant", x.steps.astype(np.int8), QParams.per_tensor(x.scales[0], x.zero))
            return FileTensor(value, TensorLayout.of(x.shape))

        return factor(a), factor(b)

    def _matrices(self, x: FileTensor, count: int, turned: bool) -> tuple[Value, bool]:
        """Return [1, count, rows, columns] or its transpose, and whether it is transposed.

        Memory decides where it has one of the two orders, else `turned`. The product is quickest where the summed
        dimension is contiguous: in the first factor untransposed, in the second transposed.
        """
        (rows, columns), matrices = x.shape[-2:], math.prod(x.shape[:-2])
        if matrices != count:
            if matrices != 1 or count > MOST_REPEATED:
                raise ImportModelError(
                    f"{list(x.shape)} would be repeated to {count:,}; repeat it as a whole, {MOST_REPEATED:,} times at "
                    "most"
                )
            flat = self.reshape(x, x.shape[-2:])
            source = self.view(self.arranged(flat, flat.layout.order((0, 1))).value, (1, 1, 1, x.size))
            repeated = self.builder.emit(ops.Pick((0,) * count), source)
            x = FileTensor(repeated, TensorLayout.of((count, rows, columns)))
        x = self.reshape(x, (count, rows, columns))
        ways = {False: x.layout.order((0, 1, 2)), True: x.layout.order((0, 2, 1))}
        turned = next((way for way, memory in ways.items() if memory == x.layout.memory), turned)
        shape = (columns, rows) if turned else (rows, columns)
        return self.view(self.arranged(x, ways[turned]).value, (1, count, *shape)), turned

    def attention(self, q: Operand, k: FileTensor, v: Operand, scale: float, mask: Constant | None) -> FileTensor:
        """softmax(q · kᵀ · scale + mask) · v."""
        rank = len(k.shape)
        scores = self.matmul(q, self.transpose(k, (*range(rank - 2), rank - 1, rank - 2)))
        if mask is not None:
            scores = self.add(self.multiply(scores, Constant(np.array([scale], np.float32))), mask)
            scale = 1.0
        return self.matmul(self.along(ops.Softmax(scale), scores, -1), v)

    def along(self, op: ops.Softmax | ops.UnitNorm, x: FileTensor, axis: int) -> FileTensor:
        """Apply an op of rows along a dimension."""
        x = self.with_last(x, axis % len(x.shape))
        return FileTensor(self.emit(op, x.value), x.layout)

    def power(self, x: FileTensor, exponent: float) -> FileTensor:
        """x to a constant power."""
        return self.multiply(x, x) if exponent == 2 else self.unary(ops.Lookup("power", exponent), x)

    def layer_norm(
        self, x: FileTensor, count: int, scale: Constant | None, shift: Constant | None, epsilon: float
    ) -> FileTensor:
        """Normalize each row of the last `count` dimensions, then scale and shift element by element."""
        rank = len(x.shape)
        refuse(not 1 <= count <= rank, f"it normalizes {count} dimensions of {list(x.shape)}")
        x = self.int8_if_planned(x)
        shape = x.shape[rank - count :]
        places = {place for i in range(rank - count, rank) for place in x.layout.places(i)}
        x = self.arranged(x, x.layout.with_last(places))
        size = math.prod(shape)
        factors = [f for dim in x.layout.dims[rank - count :] for f in dim]
        order = [place - min(places) for place in x.layout.memory if place in places]
        whole = _spread(scale, 1.0, shape), _spread(shift, 0.0, shape)
        scales, shifts = (part.reshape(factors).transpose(order).reshape(-1) for part in whole)
        source = self.view(x.value, (x.size // size, size))
        return FileTensor(self._normalized(source, epsilon, 0, scales, shifts, scale), x.layout)

    def group_norm(
        self, x: FileTensor, groups: int, scale: Constant | None, shift: Constant | None, epsilon: float
    ) -> FileTensor:
        """Normalize all elements of each group of channels, which are dimension 1."""
        rank = len(x.shape)
        refuse(rank not in (3, 4), f"it normalizes groups of {list(x.shape)}; give one or two dimensions of a map")
        source, channels = self.to_map(self.int8_if_planned(x)), x.shape[1]
        scales, shifts = _spread(scale, 1.0, (channels,)), _spread(shift, 0.0, (channels,))
        return self.from_map(self._normalized(source, epsilon, groups, scales, shifts, scale), rank)

    def _normalized(
        self, x: Value, epsilon: float, groups: int, scale: Array, shift: Array, held: Constant | None
    ) -> Value:
        """Emit a normalization with its constants, rounded where it is int8; `held` is the scale in the file."""
        op = ops.Normalize(float(np.float32(epsilon)), groups)  # files hold it in float32
        if x.type.dtype == "float32":
            return self.emit(op, x, *self.scale_and_shift(scale, shift))
        assert self.q is not None
        step = held.scales[0] if held is not None and len(held.scales) == 1 and held.zero == 0 else None
        rounded = rounded_constants(scale, shift, self.q, step)
        parts = self.constant("scale", rounded.scale, rounded.q), self.constant("shift", rounded.shift)
        return self.emit(op, x, *parts, q=self.q)

    def recurrent(self, x: FileTensor, time: int, cells: Cells, reverse: bool = False) -> tuple[FileTensor, FileTensor]:
        """Return every hidden state along x's time dimension, and the last one computed; x is a batch of one."""
        x = self.real(x)
        steps, inputs = x.shape[time], x.shape[-1]
        if len(x.shape) not in (2, 3) or steps * inputs != x.size:
            raise ImportModelError(f"its input is {list(x.shape)}; one sequence of [steps, inputs] is read, no batch")
        if cells.w.shape[2] != inputs:
            raise ImportModelError(f"its weights are for {cells.w.shape[2]} inputs, {list(x.shape)} has {inputs}")
        backwards = {time: range(steps - 1, -1, -1)}
        x = self.take(x, backwards) if reverse else x
        x = self.arranged(x, x.layout.order(tuple(range(len(x.shape)))))
        held = (self.constant(role, data) for role, data in (("w", cells.w), ("u", cells.u), ("b", cells.b)))
        value = self.emit(cells.op, self.view(x.value, (1, steps, inputs)), *held)
        y = FileTensor(value, TensorLayout.of((*x.shape[:-1], cells.w.shape[1])))
        last = self.take(y, {time: [steps - 1]})
        return (self.take(y, backwards) if reverse else y), last


def _spread(part: Constant | None, number: float, shape: Shape) -> Array:
    """Return a constant, or one number, for each element of a shape."""
    data = np.asarray(number if part is None else part.data, np.float64)
    if data.size not in (1, math.prod(shape)) and together(data.shape, shape) != shape:
        raise ImportModelError(f"scales or shifts {list(data.shape)} do not fit {list(shape)}")
    if data.size == math.prod(shape):
        return data.reshape(shape)
    return np.broadcast_to(data.reshape(()) if data.size == 1 else data, shape)


def check_zero(state: object) -> None:
    """Raise unless an initial state is left out or a constant of zeros."""
    if state is not None and not (isinstance(state, Constant) and not state.data.any()):
        raise ImportModelError("it begins with a state that is computed or not zero; begin with zeros, or give none")
