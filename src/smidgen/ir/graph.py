"""Values, ops, nodes in order, and the graph they make."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, dataclass_transform

import numpy as np

from smidgen.errors import GraphError, InputError
from smidgen.ir.log_mel import LogMel
from smidgen.ir.preprocessing import Preprocessing
from smidgen.ir.types import Array, Params, Type
from smidgen.tables import Brief, Table, bars, counted, rows_of

if TYPE_CHECKING:
    from smidgen.ir.building import Builder


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
class RowWindow:
    """Output row y of a spatial kernel reads input rows [y · stride − pad, y · stride − pad + reach), where there."""

    stride: int
    pad: int
    reach: int


@dataclass(frozen=True)
class Op:
    """The operation of a node. Subclasses are frozen dataclasses: fields are attributes of the operation.

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
    overlay_input: ClassVar[int | None] = None  # the input that may be such an output
    working_memory: ClassVar[bool] = False  # the kernel takes a pointer to working memory, of its target's size
    saved: ClassVar[bool] = False  # the output is what the backward pass keeps of the forward pass: taken early
    view: ClassVar[bool] = False  # the output is the first input's memory under another type: no code runs
    carries: ClassVar[bool] = False  # what it gives replaces state in every run, predictions too: a variable

    def grad(self, g: Builder, node: Node, dy: Value) -> tuple[Value | None, ...]:
        """Emit the gradient with respect to each input (None where there is none), given that of the first output."""
        raise GraphError(
            f"{type(self).__name__}, which gives %{node.outs[0].name}, has no gradient; train only layers behind it"
        )

    @property
    def title(self) -> str:
        """Return the name in profiles and pictures."""
        return type(self).__name__

    def symbol(self, node: Node) -> str:
        """Return the C function that computes this node; none where the kernel takes another dtype."""
        return self.kernel if node.ins[0].type.dtype == self.takes else ""

    def arguments(self, node: Node) -> tuple[Value | None, ...]:
        """Return the arguments of the C function after its parameters, in order; None becomes NULL."""
        return (*node.ins, *node.outs)

    def params(self, node: Node) -> Params:
        return {}

    def donor(self, node: Node) -> int | None:
        """Return the input whose memory the first output may take, where nobody reads it later."""
        if self.inplace is None or node.ins[self.inplace].type.bytes != node.outs[0].type.bytes:
            return None
        return self.inplace

    def moved(self, node: Node) -> int:
        """Return how many inputs, from the first, its kernel changes where they lie: the outputs are their memory."""
        return 0

    def row_window(self, node: Node) -> RowWindow:
        """Return the rows of its first input that a spatial op reads for each output row."""
        raise GraphError(f"{type(self).__name__}, which gives %{node.outs[0].name}, has no window of rows")

    def macs(self, node: Node) -> int:
        """Return the number of multiply-accumulates, for `info` and profiles."""
        return 0


LabelKind = Literal["classes", "vectors", "maps", "nothing"]  # of a sample
OPS: dict[str, type[Op]] = {}
ATTRIBUTES: dict[str, type[Any]] = {}  # frozen dataclasses that an op may have as attributes
OpType = TypeVar("OpType", bound=Op)
Class = TypeVar("Class")


@dataclass_transform(frozen_default=True)
def op(cls: type[OpType]) -> type[OpType]:
    """Make an op class a frozen dataclass and enter it into the table by its name."""
    OPS[cls.__name__] = made = dataclass(frozen=True)(cls)
    return made


def attribute(cls: type[Class]) -> type[Class]:
    """Enter a class of attributes into the table by its name."""
    ATTRIBUTES[cls.__name__] = cls
    return cls


@dataclass(frozen=True)
class Node:
    op: Op
    ins: tuple[Value, ...]
    outs: tuple[Value, ...]

    @property
    def out(self) -> Value:
        """Return the only output."""
        (value,) = self.outs
        return value


@dataclass(frozen=True)
class Roles:
    """The roles that values have in a training step."""

    image: Value  # inputs
    label: Value | None  # None where the image itself is what the network should give
    rate: Value
    loss: Value  # outputs
    logits: Value
    step_state: Value  # state: the step's number, the seed of random bits, and the gradients' exponents
    skip_below: float = 0.0  # of float32: a step of a smaller loss ends there, and nothing is learned

    @property
    def label_kind(self) -> LabelKind:
        """Return the kind of label that a step takes, which its type shows."""
        if self.label is None:
            return "nothing"
        kinds: dict[str, LabelKind] = {"float32": "vectors", "uint8": "maps"}
        return kinds.get(self.label.type.dtype, "classes")

    def skips(self, loss: float | np.float32) -> bool:
        """Return whether a step of this loss learns nothing."""
        return bool(np.float32(loss) < np.float32(self.skip_below))

    def after(self, became: Mapping[Value, Value]) -> Roles:
        """Return the same roles where some values have become others."""
        return Roles(**{f.name: became.get(v := getattr(self, f.name), v) for f in fields(self)})


@dataclass(frozen=True, eq=False)
class OnePass:
    """The graphs by which a training step also learns in one pass, and the state that they add to it.

    While samples are observed the network is the frozen one, and the step's state but for the head is not needed: the
    sums lie in its memory. `phase` is 1 then, and 0 from the first step on.
    """

    collect: Graph  # image and sample → logits, features, a code and a distance; its updates are the sums'
    solve: Graph  # sums → the head, the limit of distances, and a code
    sums: tuple[Value, ...]  # state: counts, sums of features, sums of their products
    phase: Value  # state
    sample: Value  # input: a class, and 1 or −1

    @property
    def lasting(self) -> tuple[Value, ...]:
        """The state that keeps its memory in both phases: the head's, and which phase it is."""
        return (*(v for v in self.solve.state if v not in self.sums), self.phase)


@dataclass(frozen=True, eq=False, repr=False)
class Graph(Brief):
    """Inputs, constants, nodes in execution order, outputs.

    `state` holds what outlives a run (such as trained weights) with its initial data; `updates` maps a
    state value to the value that takes its place, in its memory, once the run is over. `preprocessing` holds how
    images or audio become the first input, where that is known. A training step has `roles`, other graphs have none.
    `classes` are the names of what is scored, in order, where they are known; they change nothing that is computed.
    `notes` are sentences on what a file's reader could not take over unchanged; no part of the graph's identity.
    `one_pass` is what a training step has in addition where it can learn in one pass.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Value, Array] = field(default_factory=dict)
    name: str = "model"
    state: Mapping[Value, Array] = field(default_factory=dict)
    updates: Mapping[Value, Value] = field(default_factory=dict)
    preprocessing: Preprocessing | LogMel | None = None
    roles: Roles | None = None
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    one_pass: OnePass | None = None

    def __str__(self) -> str:
        ends = (" and ".join(f"{v.type.dtype}{list(v.type.shape)}" for v in vs) for vs in (self.inputs, self.outputs))
        held = sum(value.type.size for value in (*self.constants, *self.state))
        macs = sum(node.op.macs(node) for node in self.nodes)
        size = f"{len(self.nodes)} nodes, {macs:,} MACs, {held:,} parameters"
        return f"{self.name}: {size}, {' to '.join(ends)}"

    def picture(self) -> str:
        """Draw the multiply-accumulates of each node."""
        macs = [node.op.macs(node) for node in self.nodes]
        names = [f"{node.outs[0].name}: {count:,}" for node, count in zip(self.nodes, macs, strict=True)]
        return bars("multiply-accumulates of each node", macs, names)

    def tables(self) -> tuple[Table, ...]:
        rows = rows_of(
            (node.outs[0].name, type(node.op).__name__, "×".join(map(str, node.outs[0].type.shape)),
             counted(node.op.macs(node) or None))
            for node in self.nodes
        )  # fmt: skip
        return (Table("", ("layer", "op", "output", "MACs"), rows),)

    @property
    def image(self) -> Value:
        """Return the input for the image: the first, unless a training step has roles."""
        return self.roles.image if self.roles else self.inputs[0]

    @property
    def prediction_inputs(self) -> tuple[Value, ...]:
        """Return the inputs of a prediction: all, or of a training step the image alone."""
        return (self.roles.image,) if self.roles else self.inputs

    @property
    def prediction_end(self) -> int:
        """Return how many nodes a prediction runs: those before the first that reads the label or gives the loss."""
        if self.roles is None:
            return len(self.nodes)
        label, loss = self.roles.label, self.roles.loss
        behind = (i for i, node in enumerate(self.nodes) if label in node.ins or loss in node.outs)
        return next(behind, len(self.nodes))

    @property
    def variables(self) -> tuple[Value, ...]:
        """Return the state that every run goes on from and replaces, a mere prediction as well."""
        carried = {v for node in self.nodes if node.op.carries for v in node.outs}
        return tuple(old for old, new in self.updates.items() if new in carried)

    @property
    def scores(self) -> Value:
        """Return the output whose largest element is the prediction: the first one, of a training step the logits."""
        return self.roles.logits if self.roles else self.outputs[0]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        names = ("name", "inputs", "outputs", "nodes", "updates", "preprocessing", "roles", "classes")
        same = all(getattr(self, name) == getattr(other, name) for name in names)
        return same and _same_data(self.constants, other.constants) and _same_data(self.state, other.state)

    __hash__ = None  # type: ignore[assignment]


def _same_data(a: Mapping[Value, Array], b: Mapping[Value, Array]) -> bool:
    return set(a) == set(b) and all(
        np.array_equal(data, b[value], equal_nan=data.dtype.kind == "f") for value, data in a.items()
    )


def roles_of(graph: Graph) -> Roles:
    """Return the roles in a training step; GraphError for another graph."""
    if graph.roles is None:
        raise GraphError(f"{graph.name} is not a training step; build one with build_training")
    return graph.roles


def refuse_variables(graph: Graph, what: str) -> None:
    """Raise InputError for a streaming network where samples are not shown one after the other."""
    if graph.variables:
        raise InputError(
            f"{graph.name} carries {len(graph.variables)} variables from run to run, and {what} shows samples in any "
            "order; give a learning rate and a scheme, and train it on one stream"
        )


def infer(op: Op, types: tuple[Type, ...]) -> tuple[Type, ...]:
    """Return the types of an op's outputs, always as a tuple; GraphError where it does not take such inputs."""
    try:
        outs = op.infer(*types)
    except (TypeError, ValueError, IndexError, ArithmeticError) as error:
        if "positional argument" in str(error):
            raise GraphError(f"{type(op).__name__} does not take {len(types)} inputs") from error
        # A rule looks at the dimensions it needs, and finds fewer of them, or sizes that its attributes do not divide.
        given = ", ".join(f"{type_.dtype}{list(type_.shape)}" for type_ in types)
        raise GraphError(f"{str(op)[:120]} cannot be computed from {given}") from error
    return outs if isinstance(outs, tuple) else (outs,)


def virtual_sources(graph: Graph) -> dict[Value, tuple[Value, ...]]:
    """Return the sources of each value that has no memory: the values in whose memory it is found."""
    return {node.out: node.ins for node in graph.nodes if node.op.virtual}


def memory_read(node: Node, sources: Mapping[Value, tuple[Value, ...]]) -> Iterator[Value]:
    """Yield the values whose memory a node reads; those of a value that has none stand for it."""
    for value in () if node.op.virtual else node.ins:
        yield from sources.get(value, (value,))
