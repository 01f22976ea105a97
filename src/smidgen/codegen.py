"""Graph and plan → C: one readable call a node, its parameters, its constants.

Kernels are files of the runtime; what is written here only calls them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

import numpy as np

from smidgen.errors import InputError, TargetError
from smidgen.ir import Array, Graph, Node, Op, Type, Value
from smidgen.plan import Plan

RUNTIME = Path(__file__).parent / "runtime"
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


def generate(graph: Graph, plan: Plan, prefix: str = "model") -> Sources:
    """The C of a graph whose tensors lie where the plan says."""
    if not _PREFIX.fullmatch(prefix):
        raise InputError(f"{prefix!r} is no prefix for C names; use lower-case letters, digits and '_', a letter first")
    _check_kernels(graph)
    writer = _Writer(graph, plan, prefix)
    return Sources(prefix, writer.files(), runtime_files(_symbols(graph)), writer.constant_bytes)


def _symbols(graph: Graph) -> set[str]:
    return {node.op.symbol(node) for node in graph.nodes if not node.op.view}


def _check_kernels(graph: Graph) -> None:
    for node in graph.nodes:
        op, what = node.op, f"{type(node.op).__name__}, which gives %{node.outs[0].name},"
        if op.view:
            continue
        if not op.symbol(node):
            raise TargetError(f"{what} has no C kernel")
        if (found := node.ins[0].type.dtype) != op.takes:
            raise TargetError(f"{what} computes on {op.takes} in C, its input is {found}; quantize the model first")


def runtime_files(symbols: Iterable[str]) -> tuple[Path, ...]:
    """The kernel files that define the symbols, those these call in turn, and every header they include."""
    texts = {path: path.read_text() for path in sorted(RUNTIME.rglob("*.[ch]"))}
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


class _Writer:
    """Names every value once, then writes the four files."""

    def __init__(self, graph: Graph, plan: Plan, prefix: str) -> None:
        self.graph, self.plan, self.prefix = graph, plan, prefix
        self.offsets, self.scratch = plan.values(), plan.scratch()
        self.names = _identifiers(graph)
        self.roots = _roots(graph)
        self.named: set[Value] = set()  # whose address the code asked for
        self.data = dict(self._data())
        self.constant_bytes = sum(array.nbytes for array in self.data.values())

    def files(self) -> dict[str, str]:
        common = {
            "prefix": self.prefix, "PREFIX": self.prefix.upper(),
            "name": re.sub(r"[^\w.-]", "_", self.graph.name),
        }  # fmt: skip
        return {
            f"{self.prefix}.h": render("model.h", **common, **self._header()),
            f"{self.prefix}.c": render("model.c", **common, **self._body()),
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

    def _constant(self, value: Value) -> str:
        return f"{self.prefix}_const_{self.names[value]}"

    def _array(self, node: Node, field: str) -> str:
        return f"{self.prefix}_{field}_{self.names[node.outs[0]]}"

    def _place(self, value: Value) -> str:
        """The C expression for a value's address."""
        root = self.roots.get(value, value)
        if root in self.graph.constants:
            return self._constant(root)
        self.named.add(value)
        return f"at_{self.names[value]}"

    def _header(self) -> dict[str, object]:
        tensors = [("INPUT", i, v.type) for i, v in enumerate(self.graph.inputs)]
        tensors += [("OUTPUT", i, v.type) for i, v in enumerate(self.graph.outputs)]
        lines = [line for role, i, t in tensors for line in _defines(f"{self.prefix.upper()}_{role}_{i}", t)]
        return {
            "arena_bytes": max(self.plan.peak, 1), "constant_bytes": self.constant_bytes,
            "inputs": len(self.graph.inputs), "outputs": len(self.graph.outputs), "tensors": "\n".join(lines),
        }  # fmt: skip

    def _body(self) -> dict[str, object]:
        first = self.graph.outputs[0]
        body: dict[str, object] = {
            "params": "\n".join(self._params()),
            "loads": "".join(self._loads()),
            "calls": "".join(self._calls()),
            "score_type": C_TYPES[first.type.dtype],
            "scores": self._place(first),
            "input_places": ", ".join(self._place(v) for v in self.graph.inputs) or "0",
            "output_places": ", ".join(self._place(v) for v in self.graph.outputs),
        }
        return {**body, "places": "\n".join(self._places())}  # last: it declares what the rest named

    def _places(self) -> Iterator[str]:
        for value, offset in self.offsets.items():
            if value not in self.named:
                continue
            kind = C_TYPES[value.type.dtype]
            yield f"static {kind} *const at_{self.names[value]} = ({kind} *)(arena + {offset});"

    def _loads(self) -> Iterator[str]:
        """Initial state, from flash into the arena."""
        for value in self.graph.state:
            to, count = self._place(value), value.type.size
            yield f"    for (int32_t i = 0; i < {count}; i++) {to}[i] = {self._constant(value)}[i];\n"

    def _params(self) -> Iterator[str]:
        for node in self.graph.nodes:
            if node.op.view:
                continue
            fields = [f".{field} = {self._field(node, field, item)}" for field, item in node.op.params(node).items()]
            head = f"static const {node.op.symbol(node)}_params p_{self.names[node.outs[0]]} = {{"
            yield "\n    ".join(_wrapped(head, fields)) + "};"

    def _field(self, node: Node, field: str, item: int | float | Array) -> str:
        if isinstance(item, np.ndarray):
            return self._array(node, field)
        return _literal(item, "float32" if isinstance(item, float) else "int32")

    def _calls(self) -> Iterator[str]:
        for index, node in enumerate(self.graph.nodes):
            yield f"    {_comment(node, self.graph)}\n"
            if not node.op.view:
                yield f"    {node.op.symbol(node)}({', '.join(self._arguments(index, node))});\n"

    def _arguments(self, index: int, node: Node) -> Iterator[str]:
        op, shape = node.op, node.outs[0].type
        yield f"&p_{self.names[node.outs[0]]}"
        if op.variadic:
            yield f"(const {C_TYPES[op.takes]} *const[]){{{', '.join(self._place(v) for v in node.ins)}}}"
        for value in op.arguments(node):
            if value is None:
                yield "0"
            elif op.spatial and value in (node.ins[0], node.outs[0]):
                yield self._map(value)
            elif not (op.variadic and value in node.ins):
                yield self._place(value)
        if op.spatial:
            yield from ("0", str(shape.shape[1]))
        if op.elementwise:
            yield str(shape.size)
        if type(op).scratch is not Op.scratch:
            yield f"arena + {self.scratch[index]}" if index in self.scratch else "0"

    def _map(self, value: Value) -> str:
        """A map held as a whole; kernels only read the one that is their input, constant or not."""
        place = self._place(value)
        return f"(smg_map){{{place if value in self.offsets else f'(int8_t *){place}'}, {value.type.shape[1]}}}"

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
    """For each view the value whose memory it is."""
    roots: dict[Value, Value] = {}
    for node in graph.nodes:
        if node.op.view:
            roots[node.out] = roots.get(node.ins[0], node.ins[0])
    return roots


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
