"""The graph: types, values, ops, nodes in order; building, verifying and evaluating them.

Node order is the schedule. There is no second representation: passes filter or permute `nodes`,
planning reads them, code generation prints one call for each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from smidgen.errors import GraphError, InputError
from smidgen.preprocessing import Preprocessing

Array = NDArray[Any]
Params = Mapping[str, "int | float | Array"]

DTYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(name) for name in ("int8", "uint8", "int16", "int32", "uint32", "float32")
}
MAX_RANK = 4
MAX_BYTES = 2**28  # of one tensor: far above any microcontroller, far below what would exhaust a laptop
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


@dataclass(frozen=True)
class QParams:
    """real = scale · (q − zero); several scales run along `axis`, then `zero` is 0."""

    scale: tuple[float, ...]
    zero: int = 0
    axis: int | None = None

    @staticmethod
    def per_tensor(scale: float, zero: int = 0) -> QParams:
        return QParams((float(np.float32(scale)),), int(zero))

    @staticmethod
    def per_channel(scales: Iterable[float], axis: int) -> QParams:
        return QParams(tuple(float(np.float32(s)) for s in scales), 0, axis)

    @property
    def one(self) -> float:
        """The scale of a tensor quantized as a whole."""
        if len(self.scale) != 1:
            raise GraphError(f"one scale was expected, the tensor has {len(self.scale)} along axis {self.axis}")
        return self.scale[0]


@dataclass(frozen=True)
class Type:
    """Shape, dtype and, for quantized tensors, what the integers mean."""

    shape: tuple[int, ...]
    dtype: str = "int8"
    q: QParams | None = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * DTYPES[self.dtype].itemsize

    @property
    def zero(self) -> int:
        """The integer that stands for 0.0 (0 where the tensor is not quantized)."""
        return self.q.zero if self.q else 0

    @property
    def scale(self) -> float:
        """The one scale of a quantized tensor."""
        if self.q is None:
            raise GraphError(f"a quantized tensor was expected, {self.dtype}{list(self.shape)} carries no scale")
        return self.q.one


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor by name: an input, a constant, or what a node produces."""

    name: str
    type: Type

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Value) and self.name == other.name and self.type == other.type

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True)
class Op:
    """What a node does. Subclasses are frozen dataclasses: fields are attributes of the operation.

    `infer(*types)` gives the output type, or a tuple of them; `ref(node, *arrays)` computes it in
    numpy, exactly; `params(node)` gives the fields of the C kernel's parameter struct.
    """

    infer: ClassVar[Callable[..., Type | tuple[Type, ...]]]
    ref: ClassVar[Callable[..., Array | tuple[Array, ...]]]

    kernel: ClassVar[str] = ""  # C symbol
    takes: ClassVar[str] = "int8"  # dtype of the kernel's first input
    requantizes: ClassVar[bool] = False  # the output's quantization is chosen where the op is emitted
    spatial: ClassVar[bool] = False  # the kernel computes a range of output rows and finds its input by rows
    elementwise: ClassVar[bool] = False  # the kernel takes the number of elements to compute
    variadic: ClassVar[bool] = False  # the kernel takes its inputs as an array of pointers
    inplace: ClassVar[int | None] = None  # this input's memory may become the output's, where it is as large
    virtual: ClassVar[bool] = False  # no memory and no code: kernels that read the output are handed its inputs
    layered: ClassVar[int | None] = None  # the input that may be such an output
    view: ClassVar[bool] = False  # the output is the first input's memory under another type: no code runs

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        """Emit the gradient with respect to each input (None where there is none), given that of the first output."""
        raise GraphError(f"{type(self).__name__}, which gives %{node.outs[0].name}, has no gradient")

    def symbol(self, node: Node) -> str:
        """The C function that computes this node; none where the kernel takes another dtype."""
        return self.kernel if node.ins[0].type.dtype == self.takes else ""

    def arguments(self, node: Node) -> tuple[Value | None, ...]:
        """What the C function is handed after its parameters, in order; None becomes NULL."""
        return (*node.ins, *node.outs)

    def params(self, node: Node) -> Params:
        return {}

    def scratch(self, node: Node) -> int:
        """Bytes of working memory the kernel needs; kernels of ops that define this take a pointer to it."""
        return 0

    def donor(self, node: Node) -> int | None:
        """The input whose memory the first output may take, where nobody reads it later."""
        if self.inplace is None or node.ins[self.inplace].type.bytes != node.outs[0].type.bytes:
            return None
        return self.inplace

    def row_scratch(self, node: Node) -> int:
        """Bytes of working memory where the kernel computes one output row a call."""
        return self.scratch(node)

    def macs(self, node: Node) -> int:
        """Multiply-accumulates, for `info` and profiles."""
        return 0


OPS: dict[str, type[Op]] = {}
OpType = TypeVar("OpType", bound=Op)


def op(cls: type[OpType]) -> type[OpType]:
    """Enter an op class into the table by its name."""
    OPS[cls.__name__] = cls
    return cls


@dataclass(frozen=True)
class Node:
    op: Op
    ins: tuple[Value, ...]
    outs: tuple[Value, ...]

    @property
    def out(self) -> Value:
        """The only output."""
        (value,) = self.outs
        return value


@dataclass(frozen=True, eq=False)
class Graph:
    """Inputs, constants, nodes in execution order, outputs.

    `state` holds what outlives a run (trained weights, say) with its initial data; `updates` maps a
    state value to the value that takes its place, in its memory, once the run is over. `preprocessing` says how
    images become the first input, where that is known.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Value, Array] = field(default_factory=dict)
    name: str = "model"
    state: Mapping[Value, Array] = field(default_factory=dict)
    updates: Mapping[Value, Value] = field(default_factory=dict)
    preprocessing: Preprocessing | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        same = (self.name, self.inputs, self.outputs, self.nodes, self.updates, self.preprocessing) == (
            other.name,
            other.inputs,
            other.outputs,
            other.nodes,
            other.updates,
            other.preprocessing,
        )
        return same and _same_data(self.constants, other.constants) and _same_data(self.state, other.state)

    __hash__ = None  # type: ignore[assignment]


def _same_data(a: Mapping[Value, Array], b: Mapping[Value, Array]) -> bool:
    return set(a) == set(b) and all(
        np.array_equal(data, b[value], equal_nan=data.dtype.kind == "f") for value, data in a.items()
    )


class Builder:
    """Grows a graph node by node; names it does not get are v0, v1, …"""

    def __init__(self, name: str = "model", preprocessing: Preprocessing | None = None) -> None:
        self.name, self.preprocessing = name, preprocessing
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}
        self.state: dict[Value, Array] = {}
        self.updates: dict[Value, Value] = {}
        self._names: set[str] = set()

    @staticmethod
    def upon(graph: Graph) -> Builder:
        """A builder that goes on where a graph ends."""
        g = Builder(graph.name, graph.preprocessing)
        g.inputs, g.nodes = list(graph.inputs), list(graph.nodes)
        g.constants, g.state, g.updates = dict(graph.constants), dict(graph.state), dict(graph.updates)
        g._names = {v.name for v in (*g.inputs, *g.constants, *g.state)}
        g._names |= {v.name for node in g.nodes for v in node.outs}
        return g

    def fresh(self, stem: str) -> str:
        """`stem`, or `stem_1`, `stem_2`, … where it is taken."""
        name, count = stem, 0
        while name in self._names:
            count += 1
            name = f"{stem}_{count}"
        self._names.add(name)
        return name

    def input(self, name: str, type: Type) -> Value:
        value = Value(self.fresh(name), type)
        self.inputs.append(value)
        return value

    def constant(self, name: str, data: Array, q: QParams | None = None) -> Value:
        data = np.ascontiguousarray(data)
        data.setflags(write=False)
        value = Value(self.fresh(name), Type(data.shape, data.dtype.name, q))
        self.constants[value] = data
        return value

    def persistent(self, name: str, data: Array, q: QParams | None = None) -> Value:
        """A state value with its initial data."""
        value = self.constant(name, data, q)
        self.state[value] = self.constants.pop(value)
        return value

    def emit(self, op: Op, *ins: Value, q: QParams | None = None, name: str | None = None) -> Value:
        """Append a node with one output; `q` is that output's quantization where the op leaves it open."""
        (value,) = self.emit_all(op, *ins, q=q, name=name)
        return value

    def emit_all(self, op: Op, *ins: Value, q: QParams | None = None, name: str | None = None) -> tuple[Value, ...]:
        stem = name or f"v{len(self.nodes)}"
        types = infer(op, tuple(v.type for v in ins))
        if op.requantizes and types[0].dtype == "int8":
            if q is None:
                raise GraphError(f"{type(op).__name__} needs the quantization of its output, %{stem}")
            types = (Type(types[0].shape, types[0].dtype, q), *types[1:])
        outs = tuple(Value(self.fresh(stem), t) for t in types)
        self.nodes.append(Node(op, ins, outs))
        return outs

    def graph(self, *outputs: Value) -> Graph:
        """The graph so far, verified; constants nobody reads are left out."""
        read = {v for node in self.nodes for v in node.ins} | set(outputs)
        constants = {v: data for v, data in self.constants.items() if v in read}
        graph = Graph(
            tuple(self.inputs),
            outputs,
            tuple(self.nodes),
            constants,
            self.name,
            dict(self.state),
            dict(self.updates),
            self.preprocessing,
        )
        verify(graph)
        return graph


def infer(op: Op, types: tuple[Type, ...]) -> tuple[Type, ...]:
    """The types of an op's outputs, always as a tuple."""
    try:
        outs = op.infer(*types)
    except TypeError as error:
        if "positional argument" not in str(error):
            raise
        raise GraphError(f"{type(op).__name__} does not take {len(types)} inputs") from None
    return outs if isinstance(outs, tuple) else (outs,)


def verify(graph: Graph) -> None:
    """Raise GraphError unless every name is unique, every value defined before use and every type right."""
    defined: set[Value] = set()
    names: set[str] = set()

    def define(value: Value) -> None:
        if value.name in names:
            raise GraphError(f"%{value.name} is defined twice; give each value its own name")
        _verify_type(value)
        names.add(value.name)
        defined.add(value)

    for value in graph.inputs:
        define(value)
    for value, data in (*graph.constants.items(), *graph.state.items()):
        define(value)
        if data.shape != value.type.shape or data.dtype.name != value.type.dtype:
            raise GraphError(
                f"%{value.name} is declared {value.type.dtype}{list(value.type.shape)} "
                f"but holds {data.dtype.name}{list(data.shape)}"
            )
    for node in graph.nodes:
        for value in node.ins:
            if value not in defined:
                raise GraphError(f"%{value.name}, read by {type(node.op).__name__}, is not defined before its use")
        _verify_outputs(node)
        for value in node.outs:
            define(value)
    for value in graph.outputs:
        if value not in defined:
            raise GraphError(f"the output %{value.name} is not defined by any node")
    if not graph.outputs:
        raise GraphError(f"the graph {graph.name} has no outputs")
    _verify_updates(graph)
    _verify_preprocessing(graph)


def _verify_preprocessing(graph: Graph) -> None:
    """Images become maps of pixels, and each channel has its numbers."""
    if graph.preprocessing is None:
        return
    shape = graph.inputs[0].type.shape if graph.inputs else ()
    if len(shape) != 4:
        raise GraphError(f"{graph.name} has preprocessing for images, its first input is {list(shape)}")
    try:
        graph.preprocessing.check(shape[3])
    except InputError as error:
        raise GraphError(f"{graph.name}: {error}") from None


def _verify_updates(graph: Graph) -> None:
    """A state value's successor lies in its memory: same type, produced from it, and nobody reads the old one after."""
    replaced: dict[Value, Value] = {new: old for old, new in graph.updates.items()}
    if not set(graph.updates) <= set(graph.state) or len(replaced) != len(graph.updates):
        raise GraphError(f"the updates of {graph.name} must each replace one state value by a value of its own")
    gone: set[Value] = set()
    sources = virtual_sources(graph)
    for node in graph.nodes:
        for value in memory_read(node, sources):
            if value in gone:
                raise GraphError(f"%{value.name} is read by {type(node.op).__name__} after its update took its place")
        for value in node.outs:
            if value in replaced:
                old = replaced.pop(value)
                if old not in node.ins or old.type != value.type:
                    raise GraphError(
                        f"%{value.name} cannot take the place of %{old.name}: made from it and alike, please"
                    )
                gone.add(old)
    if replaced:
        raise GraphError(f"%{next(iter(replaced)).name} should replace a state value, but no node produces it")


def _verify_outputs(node: Node) -> None:
    expected = infer(node.op, tuple(v.type for v in node.ins))
    if len(expected) != len(node.outs):
        raise GraphError(f"{type(node.op).__name__} has {len(expected)} outputs, the node lists {len(node.outs)}")
    for index, (value, type_) in enumerate(zip(node.outs, expected, strict=True)):
        open_q = node.op.requantizes and index == 0 and type_.dtype == "int8"
        same = value.type.shape == type_.shape and value.type.dtype == type_.dtype
        if not same or not (open_q or value.type.q == type_.q):
            raise GraphError(f"%{value.name} is declared {value.type}, {type(node.op).__name__} gives {type_}")
        if open_q and value.type.q is None:
            raise GraphError(f"%{value.name}, an output of {type(node.op).__name__}, carries no quantization")


def _verify_type(value: Value) -> None:
    type_, where = value.type, f"%{value.name}"
    if not NAME.fullmatch(value.name):
        raise GraphError(f"{where} is no name: letters, digits, '_' and '.' only, no digit first")
    if type_.dtype not in DTYPES:
        raise GraphError(f"{where} is {type_.dtype}; supported are {', '.join(DTYPES)}")
    if len(type_.shape) > MAX_RANK or any(d < 1 for d in type_.shape):
        raise GraphError(f"{where} has shape {list(type_.shape)}; up to {MAX_RANK} positive dimensions are supported")
    if type_.bytes > MAX_BYTES:
        raise GraphError(f"{where} would take {type_.bytes:,} bytes; the limit for one tensor is {MAX_BYTES:,}")
    q = type_.q
    if q is None:
        return
    if q.axis is None and len(q.scale) != 1:
        raise GraphError(f"{where} has {len(q.scale)} scales and no axis they run along")
    if q.axis is not None and not (0 <= q.axis < len(type_.shape) and type_.shape[q.axis] == len(q.scale)):
        raise GraphError(f"{where} has {len(q.scale)} scales along axis {q.axis} of shape {list(type_.shape)}")
    if not all(math.isfinite(s) and s > 0 for s in q.scale):
        raise GraphError(f"{where} has a scale that is not a positive number")
    low, high = (-128, 127) if type_.dtype == "int8" else (0, 255) if type_.dtype == "uint8" else (0, 0)
    if not low <= q.zero <= high:
        raise GraphError(f"{where} has zero point {q.zero}, outside {low}…{high} for {type_.dtype}")
    if q.axis is not None and q.zero != 0:
        raise GraphError(f"{where} has several scales and zero point {q.zero}; per-channel tensors are symmetric")


def virtual_sources(graph: Graph) -> dict[Value, tuple[Value, ...]]:
    """For each value that has no memory of its own, those in whose memory it lies."""
    return {node.out: node.ins for node in graph.nodes if node.op.virtual}


def memory_read(node: Node, sources: Mapping[Value, tuple[Value, ...]]) -> Iterator[Value]:
    """The values whose memory a node reads; those of a value that has none stand for it."""
    for value in () if node.op.virtual else node.ins:
        yield from sources.get(value, (value,))


def check_inputs(graph: Graph, arrays: tuple[Array, ...]) -> None:
    """Raise InputError unless the arrays fit the graph's inputs."""
    if len(arrays) != len(graph.inputs):
        raise InputError(f"{graph.name} takes {len(graph.inputs)} input tensors, {len(arrays)} were given")
    for value, array in zip(graph.inputs, arrays, strict=True):
        if array.shape != value.type.shape or array.dtype.name != value.type.dtype:
            raise InputError(
                f"input %{value.name} of {graph.name} is {value.type.dtype}{list(value.type.shape)}, "
                f"the tensor given is {array.dtype.name}{list(array.shape)}"
            )


def evaluate(graph: Graph, *arrays: Array) -> tuple[Array, ...]:
    """Run the graph in numpy from its initial state: the definition of what it computes."""
    values = evaluate_all(graph, graph.state, *arrays)
    return tuple(values[v] for v in graph.outputs)


def evaluate_step(
    graph: Graph, state: Mapping[Value, Array], *arrays: Array
) -> tuple[tuple[Array, ...], dict[Value, Array]]:
    """Run the graph from `state`; returns its outputs and the state after."""
    values = evaluate_all(graph, state, *arrays)
    after = {v: values[graph.updates.get(v, v)] for v in graph.state}
    return tuple(values[v] for v in graph.outputs), after


def evaluate_all(graph: Graph, state: Mapping[Value, Array], *arrays: Array) -> dict[Value, Array]:
    """Every value of one run."""
    check_inputs(graph, arrays)
    values: dict[Value, Array] = dict(zip(graph.inputs, arrays, strict=True)) | dict(graph.constants) | dict(state)
    for node in graph.nodes:
        outs = node.op.ref(node, *(values[v] for v in node.ins))
        values.update(zip(node.outs, outs if isinstance(outs, tuple) else (outs,), strict=True))
    return values
