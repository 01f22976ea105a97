"""Graph and plan → C: one readable call a node, its parameters, its constants.

Kernels are files of the runtime; what is written here only calls them.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

import numpy as np

from smidgen.data.pixels import intake, pixel_rule
from smidgen.errors import InputError, TargetError
from smidgen.ir import Array, Graph, Node, Op, Type, Value
from smidgen.plan import Plan, state_bytes, state_offsets
from smidgen.schedule import WHOLE, Group, Schedule

RUNTIME = Path(__file__).parent / "runtime"
PORTABLE = ("kernels",)  # folders of the runtime: C99 for any machine
C_TYPES: Mapping[str, str] = {
    "int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "int32": "int32_t", "uint32": "uint32_t",
    "float32": "float", "float64": "double",
}  # fmt: skip
_PREFIX = re.compile(r"[a-z][a-z0-9_]*")
_DEFINED = re.compile(r"^void (smg_\w+)\(", re.MULTILINE)
_INCLUDED = re.compile(r'^#include "([\w.]+)"', re.MULTILINE)
_SYMBOL = re.compile(r"\bsmg_\w+\b")


@dataclass(frozen=True)
class Sources:
    """A program in C: generated files by name, and the files of the runtime they need."""

    prefix: str
    files: Mapping[str, str]
    runtime: tuple[Path, ...]
    constant_bytes: int
    state_bytes: int
    learns: bool
    streamed_input: bool  # input 0 comes row by row from a source, not from memory
    calls: tuple[int, ...]  # the node behind each kernel call of a step, in order; a prediction makes the first ones


def generate(
    graph: Graph,
    plan: Plan,
    prefix: str = "model",
    *,
    training: bool = False,
    schedule: Schedule = WHOLE,
    folders: tuple[str, ...] = PORTABLE,
) -> Sources:
    """The C of a graph whose tensors lie where the plan says.

    A training graph's inputs are image, label and learning rate, its outputs loss and logits: its nodes up to
    the first that reads the label are what a prediction runs. Kernels come from `folders` of the runtime.
    """
    if not _PREFIX.fullmatch(prefix):
        raise InputError(f"{prefix!r} is no prefix for C names; use lower-case letters, digits and '_', a letter first")
    _check_kernels(graph)
    writer = _Writer(graph, plan, prefix, training, schedule)
    return Sources(
        prefix=prefix,
        files=writer.files(),
        runtime=runtime_files(_symbols(graph), folders),
        constant_bytes=writer.constant_bytes,
        state_bytes=state_bytes(graph),
        learns=training,
        streamed_input=schedule.streamed_input,
        calls=tuple(_calls(graph, schedule)),
    )


def _symbols(graph: Graph) -> set[str]:
    return {node.op.symbol(node) for node in graph.nodes if _runs(node)}


def _runs(node: Node) -> bool:
    """Whether a node is a call in C."""
    return not (node.op.view or node.op.virtual)


def _check_kernels(graph: Graph) -> None:
    for node in graph.nodes:
        op, what = node.op, f"{type(node.op).__name__}, which gives %{node.outs[0].name},"
        if not _runs(node):
            continue
        if not op.symbol(node):
            found = node.ins[0].type.dtype
            raise TargetError(f"{what} has no C kernel for {found}; quantize the model first")


def _calls(graph: Graph, schedule: Schedule) -> Iterator[int]:
    """The nodes whose kernels one step calls, call after call."""
    index = 0
    while index < len(graph.nodes):
        first, end = schedule.span(index)
        group = next((g for g in schedule.groups if g.first == first), None)
        if group is not None:
            yield from (first + i for i in group.order if i >= 0)
        elif _runs(graph.nodes[index]):
            yield index
        index = end


def runtime_files(symbols: Iterable[str], folders: tuple[str, ...] = PORTABLE) -> tuple[Path, ...]:
    """The kernel files that define the symbols, those these call in turn, and every header they include.

    A file of a later folder takes the place of the one of its name in an earlier.
    """
    places = (RUNTIME, *(RUNTIME / folder for folder in folders))
    chosen = {path.name: path for place in places for path in sorted(place.glob("*.[ch]"))}
    texts = {path: path.read_text() for path in chosen.values()}
    home = {symbol: path for path, text in texts.items() if path.suffix == ".c" for symbol in _DEFINED.findall(text)}
    headers = {path.name: path for path in texts if path.suffix == ".h"}
    needed: set[Path] = set()
    pending = [headers["smidgen.h"], *(home[symbol] for symbol in symbols)]
    while pending:
        path = pending.pop()
        if path in needed:
            continue
        needed.add(path)
        pending += [headers[name] for name in _INCLUDED.findall(texts[path])]
        if path.suffix == ".c":
            pending += [home[symbol] for symbol in _SYMBOL.findall(texts[path]) if symbol in home]
    return tuple(sorted(needed))


def render(template: str, **fields: object) -> str:
    """A file of the project templates with its fields filled in."""
    text = (RUNTIME / "project" / f"{template}.in").read_text()
    return Template(text).substitute({name: str(value) for name, value in fields.items()})


def interface(graph: Graph, sources: Sources) -> dict[str, object]:
    """What a main has to know of a program, as fields of templates."""
    image = graph.inputs[0].type if sources.streamed_input else None
    return {
        "prefix": sources.prefix, "PREFIX": sources.prefix.upper(), "learns": int(sources.learns),
        "streamed": int(sources.streamed_input), "row_bytes": image.bytes // image.shape[1] if image else 0,
        "pixels": f"- {rule}\n" if (rule := pixel_rule(intake(graph))) else "",
    }  # fmt: skip


class _Writer:
    """Names every value once, then writes the four files."""

    def __init__(self, graph: Graph, plan: Plan, prefix: str, training: bool, schedule: Schedule) -> None:
        self.graph, self.plan, self.prefix, self.training, self.schedule = graph, plan, prefix, training, schedule
        label = graph.inputs[1] if training else None
        reads_label = (i for i, node in enumerate(graph.nodes) if label in node.ins)
        self.forward = next(reads_label, len(graph.nodes))
        self.offsets, self.scratch = plan.values(), plan.scratch()
        self.names = _identifiers(graph)
        self.roots = _roots(graph)
        self.layers = {node.out: node for node in graph.nodes if node.op.virtual}
        self.named: set[Value] = set()  # whose address the code asked for
        self.state = state_offsets(graph)
        self.data = dict(self._data())
        self.constant_bytes = sum(array.nbytes for array in self.data.values())

    def files(self) -> dict[str, str]:
        common = {
            "prefix": self.prefix, "PREFIX": self.prefix.upper(),
            "name": re.sub(r"[^\w.-]", "_", self.graph.name),
        }  # fmt: skip
        extra = {
            "state_header": render("state.h", **common) if self.state else "",
            "state_body": render("state.c", **common) if self.state else "",
            "train_header": render("train.h", **common) if self.training else "",
            "train_body": render("train.c", **common, **self._step()) if self.training else "",
            "source_header": render("source.h", **common) if self.schedule.streamed_input else "",
            "source_body": render("source.c", **common) if self.schedule.streamed_input else "",
        }
        return {
            f"{self.prefix}.h": render("model.h", **common, **self._header(), **extra),
            f"{self.prefix}.c": render("model.c", **common, **self._body(), **extra),
            f"{self.prefix}_weights.h": render("weights.h", **common, declarations="\n".join(self._declarations())),
            f"{self.prefix}_weights.c": render("weights.c", **common, definitions="\n\n".join(self._definitions())),
        }

    def _data(self) -> Iterator[tuple[str, Array]]:
        """Everything in flash by its C name: constants, initial state, and the arrays of parameter structs."""
        for value, array in (*self.graph.constants.items(), *self.graph.state.items()):
            yield self._constant(value), array
        for node in self.graph.nodes:
            for field, item in node.op.params(node).items():
                if isinstance(item, np.ndarray):
                    yield self._array(node, field), item
        for group in self.schedule.groups:
            yield self._order(group), np.array(group.order, np.int16).astype(np.uint8)

    def _order(self, group: Group) -> str:
        return f"{self.prefix}_order_{group.first}"

    def _constant(self, value: Value) -> str:
        return f"{self.prefix}_const_{self.names[value]}"

    def _array(self, node: Node, field: str) -> str:
        return f"{self.prefix}_{field}_{self.names[node.outs[0]]}"

    def _place(self, value: Value) -> str:
        """The C expression for a value's address."""
        root = self.roots.get(value, value)
        if root in self.graph.constants:
            return self._constant(root)
        self.named.add(root)
        return f"at_{self.names[root]}"

    def _header(self) -> dict[str, object]:
        tensors = [("INPUT", i, v.type) for i, v in enumerate(self.graph.inputs)]
        tensors += [("OUTPUT", i, v.type) for i, v in enumerate(self.graph.outputs)]
        lines = [line for role, i, t in tensors for line in _defines(f"{self.prefix.upper()}_{role}_{i}", t)]
        return {
            "arena_bytes": max(self.plan.peak, 1), "constant_bytes": self.constant_bytes,
            "state_bytes": state_bytes(self.graph),
            "pixels": f"\n/* {rule} */" if (rule := pixel_rule(intake(self.graph))) else "",
            "inputs": len(self.graph.inputs), "outputs": len(self.graph.outputs), "tensors": "\n".join(lines),
        }  # fmt: skip

    def _body(self) -> dict[str, object]:
        scores = self.graph.outputs[1 if self.training else 0]
        inputs = ["0" if self.schedule.rows(v) else self._place(v) for v in self.graph.inputs]
        body: dict[str, object] = {
            "state_block": f"static SMG_ALIGNED uint8_t state[{state_bytes(self.graph)}];\n" if self.state else "",
            "score_count": scores.type.size,
            "params": "\n".join(self._params()),
            "loads": "".join(self._loads()),
            "calls": "".join(self._calls(0, self.forward)),
            "score_type": C_TYPES[scores.type.dtype],
            "scores": self._place(scores),
            "input_places": ", ".join(inputs) or "0",
            "output_places": ", ".join(self._place(v) for v in self.graph.outputs),
        }
        return {**body, "places": "\n".join(self._places())}  # last: it declares what the rest named

    def _step(self) -> dict[str, object]:
        _, label, rate = self.graph.inputs
        return {
            "label": self._place(label), "rate": self._place(rate), "loss": self._place(self.graph.outputs[0]),
            "backward": "".join(self._calls(self.forward, len(self.graph.nodes))),
            "fingerprint": f"0x{_fingerprint(self.graph):08x}u",
        }  # fmt: skip

    def _places(self) -> Iterator[str]:
        for block, offsets in (("state", self.state), ("arena", self.offsets)):
            for value, offset in offsets.items():
                if value in self.named:
                    kind = C_TYPES[value.type.dtype]
                    yield f"static {kind} *const at_{self.names[value]} = ({kind} *)({block} + {offset});"

    def _loads(self) -> Iterator[str]:
        """Initial state, from flash into its block."""
        for value in self.graph.state:
            to, count = self._place(value), value.type.size
            yield f"    for (int32_t i = 0; i < {count}; i++) {to}[i] = {self._constant(value)}[i];\n"

    def _params(self) -> Iterator[str]:
        for node in self.graph.nodes:
            if not _runs(node):
                continue
            fields = [f".{field} = {self._field(node, field, item)}" for field, item in node.op.params(node).items()]
            head = f"static const {node.op.symbol(node)}_params p_{self.names[node.outs[0]]} = {{"
            yield "\n    ".join(_wrapped(head, fields)) + "};"

    def _field(self, node: Node, field: str, item: int | float | Array) -> str:
        if isinstance(item, np.ndarray):
            return self._array(node, field)
        return _literal(item, "float32" if isinstance(item, float) else "int32")

    def _calls(self, first: int, end: int) -> Iterator[str]:
        groups = {group.first: group for group in self.schedule.groups}
        index = first
        while index < end:
            if index in groups:
                yield from self._stream(groups[index])
                index = groups[index].end
                continue
            node = self.graph.nodes[index]
            yield f"    {_comment(node, self.graph)}\n"
            if _runs(node):
                yield f"    {node.op.symbol(node)}({', '.join(self._arguments(index, node))});\n"
            index += 1

    def _stream(self, group: Group) -> Iterator[str]:
        """A loop over the group's order: each turn one node computes its next row."""
        order, row = self._order(group), f"row_{group.first}"
        yield "    /* Row by row: of each map only the rows still to be read are kept. */\n"
        yield f"    int32_t {row}[{group.end - group.first + 1}] = {{0}};\n"
        yield f"    for (int32_t i = 0; i < {len(group.order)}; i++) switch ({order}[i]) {{\n"
        if -1 in group.order:
            at = f"{row}[{group.end - group.first}]"
            place = self._row(self.graph.inputs[0], at)
            yield f"        case 255: source(source_context, {place}, {at}); {at}++; break;\n"
        for i, node in enumerate(self.graph.nodes[group.first : group.end]):
            at = f"{row}[{i}]"
            call = f"{node.op.symbol(node)}({', '.join(self._arguments(group.first + i, node, at))})"
            yield f"        case {i}: {_comment(node, self.graph)}\n            {call}; {at}++; break;\n"
        yield "    }\n"

    def _row(self, value: Value, row: str) -> str:
        """The address of a row of a map, whole or ring."""
        rows, size = self.schedule.rows(value), value.type.size // value.type.shape[1]
        at = row if rows is None else f"({row} % {rows})"
        return f"{self._place(value)} + {at} * {size}"

    def _arguments(self, index: int, node: Node, row: str | None = None) -> Iterator[str]:
        """What a kernel is handed; `row` is the one output row it is to compute, where it runs row by row."""
        op, shape = node.op, node.outs[0].type
        yield f"&p_{self.names[node.outs[0]]}"
        if op.variadic:
            yield f"(const {C_TYPES[op.takes]} *const[]){{{', '.join(self._place(v) for v in node.ins)}}}"
        for value in op.arguments(node):
            if value is None:
                yield "0"
            elif op.layered is not None and value is node.ins[op.layered]:
                yield self._weights(value)
            elif op.spatial and value in (node.ins[0], node.outs[0]):
                yield self._map(value)
            elif row and value.type.shape == shape.shape:
                yield self._row(value, row)
            elif not (op.variadic and value in node.ins):
                yield self._place(value)
        if op.spatial:
            yield from (row, f"{row} + 1") if row else ("0", str(shape.shape[1]))
        if op.elementwise:
            yield str(shape.size // shape.shape[1] if row else shape.size)
        if type(op).scratch is not Op.scratch:
            yield f"arena + {self.scratch[index]}" if index in self.scratch else "0"

    def _weights(self, value: Value) -> str:
        """Weights as a whole, or frozen ones with trained channels laid over them."""
        if value not in self.layers:
            return f"(smg_weights){{{self._place(value)}, 0, 0, 0}}"
        node = self.layers[value]
        frozen, trained = (self._place(v) for v in node.ins)
        return f"(smg_weights){{{frozen}, {trained}, {self._array(node, 'channel')}, {node.ins[1].type.shape[-1]}}}"

    def _map(self, value: Value) -> str:
        """A map, whole or ring; kernels only read the one that is their input, constant or not."""
        place, rows = self._place(value), self.schedule.rows(value) or value.type.shape[1]
        return f"(smg_map){{{place if value in self.offsets else f'(int8_t *){place}'}, {rows}}}"

    def _declarations(self) -> Iterator[str]:
        for name, array in self.data.items():
            yield f"extern const {C_TYPES[array.dtype.name]} {name}[{array.size}];"

    def _definitions(self) -> Iterator[str]:
        for name, array in self.data.items():
            dtype, numbers = array.dtype.name, array.ravel().tolist()
            items = [_literal(x, dtype) for x in numbers] if array.dtype.kind == "f" else list(map(str, numbers))
            rows = [",".join(items[i : i + 32]) for i in range(0, len(items), 32)]
            yield f"const {C_TYPES[dtype]} {name}[{array.size}] = {{\n" + ",\n".join(rows) + "};"


def _identifiers(graph: Graph) -> dict[Value, str]:
    """A C name for each value: dots become '_', and what would then meet is numbered."""
    names: dict[Value, str] = {}
    values = (*graph.inputs, *graph.constants, *graph.state, *(v for node in graph.nodes for v in node.outs))
    taken: set[str] = set()
    for value in values:
        stem = name = value.name.replace(".", "_")
        count = 0
        while name in taken:
            count += 1
            name = f"{stem}_{count}"
        taken.add(name)
        names[value] = name
    return names


def _roots(graph: Graph) -> dict[Value, Value]:
    """For a view of a constant or of state, and for what replaces state, the value whose memory it is."""
    roots: dict[Value, Value] = {new: old for old, new in graph.updates.items()}
    for node in graph.nodes:
        if node.op.view:
            source = roots.get(node.ins[0], node.ins[0])
            if source in graph.constants or source in graph.state:
                roots[node.out] = source
    return roots


def _fingerprint(graph: Graph) -> int:
    """A number for what the state means: a checkpoint of another program has another."""
    described = [f"{v.name} {v.type.dtype} {v.type.shape}" for v in graph.state]
    return zlib.crc32("\n".join([graph.name, *described]).encode())


def _defines(stem: str, type: Type) -> Iterator[str]:
    yield f"#define {stem}_SHAPE {{{', '.join(map(str, type.shape))}}}"
    yield f"#define {stem}_SIZE {type.size}"
    yield f"#define {stem}_BYTES {type.bytes}"
    if type.q is not None and type.q.axis is None:
        yield f"#define {stem}_SCALE {_literal(type.scale, 'float32')}"
        yield f"#define {stem}_ZERO ({type.zero})"


def _literal(x: float, dtype: str) -> str:
    """A number as C spells it: nine digits bring a float32 back exactly, seventeen a float64."""
    if not dtype.startswith("float"):
        return str(x)
    if not np.isfinite(x):
        raise TargetError(f"a constant holds {x}, which C has no literal for; replace it by a finite number")
    text = f"{x:.9g}" if dtype == "float32" else f"{x:.17g}"
    whole = text if "." in text or "e" in text else f"{text}.0"
    return f"{whole}f" if dtype == "float32" else whole


def _wrapped(head: str, fields: list[str]) -> list[str]:
    """Fields in lines of at most about a hundred columns."""
    lines = [head]
    for field in fields:
        if len(lines) == 1 or len(lines[-1]) + len(field) > 100:
            lines.append("")
        lines[-1] += f"{field}, " if field is not fields[-1] else field
    return [line.rstrip() for line in lines]


def _comment(node: Node, graph: Graph) -> str:
    inputs = [v for v in node.ins if v not in graph.constants]
    source = " and ".join(dict.fromkeys(_dimensions(v.type) for v in inputs))
    names = ", ".join(v.name for v in inputs)
    outs = ", ".join(v.name for v in node.outs)
    return f"/* {outs} = {type(node.op).__name__}({names}): {source} -> {_dimensions(node.outs[0].type)} */"


def _dimensions(type: Type) -> str:
    """The shape in words, without the batch of one."""
    shape = type.shape[1:] if len(type.shape) > 1 and type.shape[0] == 1 else type.shape
    return "x".join(map(str, shape)) or "1"
