"""Graphs of channels-first files under construction: tensors are [batch, channels, …], the graph is channels last.

Float tensors become float32 nodes. An int8 tensor stays int8 through every op whose output the file quantizes, and
becomes float32 before one whose output it does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from smidgen import ops
from smidgen.data.files import Budget
from smidgen.errors import ImportModelError, refuse
from smidgen.frontends.layout import Shape, TensorLayout, channels_last, common_factors, moves, one_step
from smidgen.ir import MAX_RANK, Array, Builder, Graph, Op, QParams, Type, Value
from smidgen.ir.types import identifier
from smidgen.numerics import INT8_MAX, INT8_MIN

Spans = tuple[tuple[int, int], ...]  # before and after, for each dimension


@dataclass(frozen=True)
class FileTensor:
    """A value of the graph under the file's dimensions."""

    value: Value
    layout: TensorLayout

    @property
    def shape(self) -> Shape:
        return self.layout.shape

    @property
    def size(self) -> int:
        return self.value.type.size

    @property
    def is_int8(self) -> bool:
        return self.value.type.dtype == "int8"


@dataclass(frozen=True, eq=False)
class Constant:
    """Numbers of the file; where it holds them quantized, `data` = scales · (`steps` − zero), scales along `axis`."""

    data: Array
    steps: Array | None = None
    scales: tuple[float, ...] = ()
    axis: int = 0
    zero: int = 0

    @property
    def shape(self) -> Shape:
        return tuple(self.data.shape)

    def each(self, place: Callable[[Array], Array]) -> Constant:
        """Return the constant with its numbers, and its integers where it has them, rearranged."""
        return replace(self, data=place(self.data), steps=None if self.steps is None else place(self.steps))

    def transposed(self, perm: Shape) -> Constant:
        refuse(len(perm) != self.data.ndim, f"a constant of {list(self.shape)} should have {len(perm)} dimensions")
        axis = perm.index(self.axis) if len(self.scales) > 1 else 0
        return replace(self.each(lambda a: a.transpose(perm)), axis=axis)


Operand = FileTensor | Constant


class Channels:
    """A graph under construction; `plan` has the int8 quantization of each output that the file quantizes, by name."""

    def __init__(self, name: str, plan: Mapping[str, QParams] | None = None, budget: Budget | None = None) -> None:
        self.builder = Builder(identifier(name) or "model")
        self.budget = budget or Budget()
        self.plan = plan or {}
        self.output = ""  # the file's name of the tensor being computed
        self._sources: dict[Value, Value] = {}  # the value that each reshaped value is a view of
        self._reals: dict[Value, Value] = {}  # int8 values in float32

    @property
    def q(self) -> QParams | None:
        """Return the int8 quantization of the tensor being computed; None where the file leaves it float."""
        return self.plan.get(self.output)

    @property
    def name(self) -> str | None:
        """Return a name for the value being computed; some files number the tensors of a layer behind a colon."""
        return identifier(self.output.partition(":")[0]) or None

    def input(self, name: str, shape: Shape, last: bool, q: QParams | None = None) -> FileTensor:
        """Add an input of the graph, channels last or in the file's order; int8 with a quantization."""
        layout = TensorLayout.channels_last(shape) if last else TensorLayout.of(shape)
        inner = tuple(shape[i] for i in channels_last(len(shape))) if last else shape
        inner = (1, *inner) if last and len(shape) == 3 and shape[0] == 1 else inner
        type_ = Type(inner, "float32" if q is None else "int8", q)
        return FileTensor(self.builder.input(identifier(name) or "input", type_), layout)

    def emit(self, op: Op, *ins: Value, q: QParams | None = None) -> Value:
        return self.builder.emit(op, *ins, q=q, name=self.name)

    def constant(self, role: str, data: Array, q: QParams | None = None) -> Value:
        self.budget.take(f"its constant '{role}'", data.nbytes)
        if data.dtype.kind == "f" and not np.isfinite(data).all():
            bad = int((~np.isfinite(data)).sum())
            raise ImportModelError(f"{bad} of the {data.size} numbers it reads are NaN or infinite; train it again")
        return self.builder.constant(f"{self.name or 'v'}.{role}", data, q)

    def view(self, value: Value, shape: Shape) -> Value:
        """Return the value's memory under another shape."""
        source = self._sources.get(value, value)
        if source.type.shape == shape:
            return source
        if value.type.shape == shape:
            return value
        made = self.builder.emit(ops.Reshape(shape), source, name=f"{source.name}.view")
        self._sources[made] = source
        return made

    def arranged(self, x: FileTensor, memory: Shape) -> FileTensor:
        """Return the tensor with its factors in another order in memory."""
        if x.layout.memory == memory:
            return x
        runs, perm = moves(x.layout.memory, memory)
        if len(runs) > MAX_RANK:
            return self.arranged(self.arranged(x, one_step(x.layout.memory, memory)), memory)
        factors = x.layout.factors
        shape = tuple(math.prod(factors[i] for i in run) for run in runs)
        value = self.builder.emit(ops.Transpose(perm), self.view(x.value, shape), name=f"{x.value.name}.arranged")
        return FileTensor(value, replace(x.layout, memory=memory))

    def in_order(self, x: FileTensor) -> FileTensor:
        """Return the tensor with its dimensions in the file's order in memory."""
        return self.arranged(x, tuple(range(len(x.layout.memory))))

    def with_last(self, x: FileTensor, axis: int) -> FileTensor:
        """Return the tensor with a dimension last in memory and in its value's shape."""
        last = x.layout.places(axis)
        x = self.arranged(x, tuple(i for i in x.layout.memory if i not in last) + last)
        if x.value.type.shape[-1] != x.shape[axis]:
            x = FileTensor(self.view(x.value, (x.size // x.shape[axis], x.shape[axis])), x.layout)
        return x

    def to_map(self, x: FileTensor) -> Value:
        """Return [1, channels, rows, columns] or [1, channels, length] as a [1, rows, columns, channels] map."""
        if len(x.shape) not in (3, 4) or x.shape[0] != 1:
            raise ImportModelError(
                f"its input {list(x.shape)} is neither [1, channels, length] nor [1, channels, rows, columns]; only a "
                "batch of 1 is supported"
            )
        order = channels_last(len(x.shape))
        shape = tuple(x.shape[i] for i in order)
        return self.view(self.arranged(x, x.layout.order(order)).value, (1, *shape) if len(shape) == 3 else shape)

    def from_map(self, value: Value, rank: int) -> FileTensor:
        """Return a [1, rows, columns, channels] map as the file's tensor of three or four dimensions."""
        n, h, w, c = value.type.shape
        return FileTensor(value, TensorLayout.channels_last((n, c, h, w) if rank == 4 else (n, c, w)))

    def real(self, x: Operand) -> FileTensor:
        """Return the operand as a float32 tensor."""
        if isinstance(x, Constant):
            self.budget.check("its constant in float32", 4 * x.data.size)
            return FileTensor(self.constant("constant", x.data.astype(np.float32)), TensorLayout.of(x.shape))
        if not x.is_int8:
            return x
        if x.value not in self._reals:
            self._reals[x.value] = self.builder.emit(ops.Dequantize(), x.value, name=f"{x.value.name}.real")
        return FileTensor(self._reals[x.value], x.layout)

    def int8_if_planned(self, x: FileTensor) -> FileTensor:
        """Return the tensor in int8 where it is int8 and the output will be, else in float32."""
        return x if self.q is not None and x.is_int8 else self.real(x)

    def quantized(self, x: Operand, q: QParams) -> FileTensor:
        """Return the operand in the int8 quantization given."""
        x = x if isinstance(x, FileTensor) else self.real(x)
        if x.is_int8 and x.value.type.q == q:
            return x
        return FileTensor(self.emit(ops.Requantize() if x.is_int8 else ops.Quantize(), x.value, q=q), x.layout)

    def reshape(self, x: FileTensor, shape: Shape) -> FileTensor:
        """Return the same elements, in the file's order, under another shape."""
        if math.prod(shape) != x.size or min(shape, default=1) < 1:
            raise ImportModelError(f"it reshapes {list(x.shape)} to {list(shape)}, which has another count of elements")
        layout = x.layout.reshaped(shape)
        if layout is not None:
            return FileTensor(x.value, layout)
        return FileTensor(self.in_order(x).value, TensorLayout.of(shape))

    def transpose(self, x: FileTensor, perm: Shape) -> FileTensor:
        if sorted(perm) != list(range(len(x.shape))):
            raise ImportModelError(f"it transposes {list(x.shape)} by {list(perm)}, which are not its dimensions")
        return FileTensor(x.value, x.layout.permuted(perm))

    def unary(self, op: Op, x: FileTensor) -> FileTensor:
        """Apply a function to each element."""
        x = self.int8_if_planned(x)
        return FileTensor(self.emit(op, x.value, q=self.q), x.layout)

    def add(self, a: Operand, b: Operand) -> FileTensor:
        return self.pair(ops.Add(), a, b)

    def multiply(self, a: Operand, b: Operand) -> FileTensor:
        return self.pair(ops.Mul(), a, b)

    def negative(self, x: FileTensor) -> FileTensor:
        """−x, in int8 in the mirrored quantization."""
        if not x.is_int8 or self.q is None:
            return self.multiply(x, Constant(np.array([-1], np.float32)))
        q = QParams.per_tensor(x.value.type.scale, min(-x.value.type.zero, INT8_MAX))
        minus = self.constant("minus", np.array([-1], np.int8), QParams.per_tensor(1.0))
        return FileTensor(self.builder.emit(ops.Mul(), x.value, minus, q=q, name=f"{x.value.name}.negative"), x.layout)

    def pair(self, op: Op, a: Operand, b: Operand) -> FileTensor:
        """Emit an op of two operands, of which the smaller repeats along the other."""
        if isinstance(a, Constant) or (isinstance(b, FileTensor) and a.size < b.size):
            a, b = b, a
        assert isinstance(a, FileTensor)
        shape = together(a.shape, b.shape)
        if math.prod(shape) != a.size:
            raise ImportModelError(
                f"{list(a.shape)} and {list(b.shape)} would both be repeated; one operand must have the result's shape"
            )
        a = self.reshape(self.int8_if_planned(a), shape)
        if isinstance(b, Constant):
            second = self._constant_operand(a, b)
        else:
            b = self.int8_if_planned(self.reshape(b, (1,) * (len(shape) - len(b.shape)) + b.shape))
            if a.value.type.dtype != b.value.type.dtype:
                a, b = self.real(a), self.real(b)
            a, second = self._aligned(a, b)
        first, count = a.value, second.type.size
        if count not in (1, a.size):
            first = first if first.type.shape[-1] == count else self.view(first, (a.size // count, count))
            second = second if second.type.shape[-1] == count else self.view(second, (count,))
        if isinstance(op, ops.Maximum) and self.q is not None and first.type.dtype == "int8":
            way, q = ops.Requantize(), self.q
            first, second = (v if v.type.q == q else self.builder.emit(way, v, q=q) for v in (first, second))
        return FileTensor(self.emit(op, first, second, q=self.q), a.layout)

    def _constant_operand(self, a: FileTensor, b: Constant) -> Value:
        """Return a constant operand in the order of a's memory, no larger than it has to be."""
        layout, q = a.layout, None
        data = b.data
        if a.is_int8 and b.steps is not None and len(b.scales) == 1:
            data, q = int8_steps(b.steps), QParams.per_tensor(b.scales[0], b.zero)
        data = data.reshape((1,) * (len(a.shape) - len(b.shape)) + b.shape)
        sizes = [f if n > 1 else 1 for n, dim in zip(data.shape, layout.dims, strict=True) for f in dim]
        ordered = data.reshape(sizes).transpose(layout.memory)
        while ordered.ndim and ordered.shape[0] == 1:
            ordered = ordered[0]
        if 1 in ordered.shape:
            self.budget.check("its constant, repeated,", a.size * ordered.itemsize)
            ordered = np.broadcast_to(ordered, layout.sizes[len(layout.sizes) - ordered.ndim :])
        ordered = ordered.reshape(a.value.type.shape if ordered.size == a.size else -1)
        if q is None and a.is_int8:
            return self.int8_constant(ordered.astype(np.float32))
        return self.constant("constant", ordered if q is not None else ordered.astype(np.float32), q)

    def int8_constant(self, data: Array) -> Value:
        """Return numbers as a constant in int8 with one scale and no zero point."""
        q = QParams.per_tensor((float(np.abs(data).max(initial=0)) or 1.0) / INT8_MAX)
        return self.constant("constant", np.rint(data / q.one).astype(np.int8), q)

    def _aligned(self, a: FileTensor, b: FileTensor) -> tuple[FileTensor, Value]:
        """Return two tensors of one rank in one order of memory, the second repeated along the first's slow factors."""
        pairs = [common_factors(x, y) if y else x for x, y in zip(a.layout.dims, b.layout.dims, strict=True)]
        finer = tuple(p for p in pairs if p is not None)
        one = a.layout.refined(finer) if len(finer) == len(pairs) else None
        dims = tuple(p if y else () for p, y in zip(finer, b.layout.dims, strict=False))
        two = b.layout.refined(dims) if one else None
        if one is None or two is None:
            a, b = self.in_order(a), self.in_order(b)
            one, two = TensorLayout.of(a.shape), TensorLayout.of(b.shape)
        shared = [one.places(i) if dim else () for i, dim in enumerate(two.dims)]
        place = {mine: theirs for theirs, mine in enumerate(p for places in shared for p in places)}
        a = self.arranged(FileTensor(a.value, one), one.with_last(place))
        b = self.arranged(FileTensor(b.value, two), tuple(place[i] for i in a.layout.memory if i in place))
        return a, b.value if b.size < a.size else self.view(b.value, a.value.type.shape)

    def graph(self, *outputs: FileTensor) -> Graph:
        return self.builder.graph(*(self.as_output(x) for x in outputs))

    def as_output(self, x: FileTensor) -> Value:
        """Return an output in the file's order or, where it is a map in memory, channels last."""
        rank = len(x.shape)
        whole = all(len(dim) <= 1 for dim in x.layout.dims)
        if rank in (3, 4) and whole and x.layout.memory == x.layout.order(channels_last(rank)):
            inner = tuple(x.shape[i] for i in channels_last(rank))
            return x.value if x.value.type.shape == (1, *inner) else self.view(x.value, inner)
        refuse(rank > MAX_RANK, f"an output {list(x.shape)} of {rank} dimensions; up to {MAX_RANK} are supported")
        return self.view(self.in_order(x).value, x.shape)


def together(*shapes: Shape) -> Shape:
    """Return the shape that operands of these shapes have together."""
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        given = " and ".join(str(list(shape)) for shape in shapes)
        raise ImportModelError(f"shapes {given} do not broadcast together") from None


def int8_steps(steps: Array) -> Array:
    """Return integers as int8; raise where they do not fit."""
    if steps.min(initial=0) < INT8_MIN or steps.max(initial=0) > INT8_MAX:
        raise ImportModelError("weights beyond int8 are not supported; quantize them symmetrically to int8")
    return steps.astype(np.int8)
