"""The graph as text, one line a value, and back: for tests, for eyes, and inside `.smg` files.

    graph mcunet
    preprocessing mean=(0.485, 0.456, 0.406) std=(0.229, 0.224, 0.225)
    classes ('cat', 'dog')
    input %x: int8[1,128,128,3] q(0.007843138; 0)
    const %c0.w: int8[16,3,3,3] q(0.01, 0.02, …; 0; axis 0)
    %v0: int8[1,64,64,16] q(0.02352941; -128) = Conv2D(%x, %c0.w, %c0.b) stride=(2, 2) pad=(1, 1, 1, 1)
    output %v0

Attributes equal to their defaults are left out; one that is an object, or an op, is written as a call:
`rule=Momentum(momentum=0.9,accumulate=4)`. The data of constants stays beside the text. A fingerprint is a number of
the text and that data: state saved under it means the same in every program that has it.
"""

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from typing import Any, get_args, get_type_hints

import numpy as np

from smidgen.errors import GraphError
from smidgen.ir import ATTRIBUTES, DTYPES, NAME, OPS, Array, Graph, Node, Op, QParams, Roles, Type, Value, verify
from smidgen.ir.log_mel import LogMel
from smidgen.ir.preprocessing import Preprocessing

_NAME = NAME.pattern
_DECLARED = re.compile(rf"%({_NAME}): ([a-z0-9]+)\[([0-9,]*)\](?: q\(([^)]*)\))?")
_CALL = re.compile(r" = ([A-Za-z0-9]+)\(([^)]*)\)((?: [a-z_0-9]+=.*)?)")
_LARGEST = {bool: 1, int: 2**32 - 1, float: float(np.finfo(np.float32).max)}
_ATTRIBUTE = re.compile(r" ([a-z_0-9]+)=(.*?)(?= [a-z_0-9]+=|$)")


def print_graph(graph: Graph) -> str:
    """Return the graph's text; `parse_graph(print_graph(g), g.constants | g.state)` gives g back."""
    lines = [f"graph {graph.name}"]
    if graph.preprocessing is not None:
        word = "sound" if isinstance(graph.preprocessing, LogMel) else "preprocessing"
        lines.append(f"{word}{_attributes(graph.preprocessing)}")
    if graph.classes:
        lines.append(f"classes {graph.classes!a}")
    lines += [f"input {_declare(v)}" for v in graph.inputs]
    lines += [f"const {_declare(v)}" for v in graph.constants]
    lines += [f"state {_declare(v)}" for v in graph.state]
    for node in graph.nodes:
        outs = ", ".join(_declare(v) for v in node.outs)
        ins = ", ".join(f"%{v.name}" for v in node.ins)
        lines.append(f"{outs} = {type(node.op).__name__}({ins}){_attributes(node.op)}")
    lines += [f"update %{old.name}: %{new.name}" for old, new in graph.updates.items()]
    if graph.roles is not None:
        lines.append("roles " + " ".join(_held(graph.roles)))
    lines.append("output " + ", ".join(f"%{v.name}" for v in graph.outputs))
    return "\n".join(lines) + "\n"


def _held(roles: Roles) -> Iterator[str]:
    """Yield each role with its value, and the loss below which a step learns nothing, where there is one."""
    for f in fields(roles):
        held = getattr(roles, f.name)
        if isinstance(held, Value):
            yield f"{f.name}=%{held.name}"
    if roles.skip_below:
        yield f"skip_below={roles.skip_below!r}"


def _declare(value: Value) -> str:
    type_ = value.type
    text = f"%{value.name}: {type_.dtype}[{','.join(map(str, type_.shape))}]"
    if type_.q is not None:
        scales = ", ".join(str(np.float32(s)) for s in type_.q.scale)
        axis = "" if type_.q.axis is None else f"; axis {type_.q.axis}"
        text += f" q({scales}; {type_.q.zero}{axis})"
    return text


def _attributes(held: Op | Preprocessing | LogMel) -> str:
    return "".join(f" {text}" for text in _stated(held))


def _stated(held: Any) -> Iterator[str]:
    """Yield the fields of an object that differ from their defaults."""
    for f in fields(held):
        value = getattr(held, f.name)
        if f.default is MISSING or value != f.default:
            yield f"{f.name}={_spelled(value)}"


def _spelled(value: object) -> str:
    """Write a literal, or a call without spaces between its arguments: spaces separate a node's attributes."""
    return f"{type(value).__name__}({','.join(_stated(value))})" if is_dataclass(value) else repr(value)


def parse_graph(text: str, constants: Mapping[str, Array] | Mapping[Value, Array]) -> Graph:
    """Read a graph back; `constants` holds the data of its const and state lines, by name or by value."""
    data = {key.name if isinstance(key, Value) else key: array for key, array in constants.items()}
    reader = _TextReader(data)
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            reader.line(line)
        except GraphError as error:
            raise GraphError(f"line {number} of the graph's text: {error}") from None
    inputs, outputs, nodes = tuple(reader.inputs), tuple(reader.outputs), tuple(reader.nodes)
    graph = Graph(
        inputs, outputs, nodes, reader.constants, reader.name, reader.state, reader.updates, reader.preprocessing,
        reader.roles, reader.classes,
    )  # fmt: skip
    verify(graph)
    return graph


class _TextReader:
    def __init__(self, data: Mapping[str, Array]) -> None:
        self.data = data
        self.name = "model"
        self.preprocessing: Preprocessing | LogMel | None = None
        self.roles: Roles | None = None
        self.classes: tuple[str, ...] = ()
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}
        self.state: dict[Value, Array] = {}
        self.updates: dict[Value, Value] = {}
        self.values: dict[str, Value] = {}

    def line(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if not line.strip():
            return
        if word == "graph":
            self.name = rest
        elif word in ("preprocessing", "sound"):
            if rest and not _ATTRIBUTE.match(f" {rest}"):
                raise GraphError(f"'{line[:80]}' is not a preprocessing")
            stated = LogMel if word == "sound" else Preprocessing
            self.preprocessing = stated(**_values(stated, f" {rest}"))
        elif word == "classes":
            self.classes = _names(rest)
        elif word == "input":
            self.inputs.append(self.declare(rest))
        elif word in ("const", "state"):
            value = self.declare(rest)
            if value.name not in self.data:
                raise GraphError(f"no data for %{value.name}")
            (self.constants if word == "const" else self.state)[value] = self.data[value.name]
        elif word == "update":
            pair = self.read(rest.replace(":", ","))
            if len(pair) != 2:
                raise GraphError(f"'{line[:80]}' does not name a state value and its successor")
            self.updates[pair[0]] = pair[1]
        elif word == "roles":
            self.roles = self.assigned(rest)
        elif word == "output":
            self.outputs += self.read(rest)
        else:
            self.node(line)

    def declare(self, text: str) -> Value:
        match = _DECLARED.fullmatch(text)
        if match is None:
            raise GraphError(f"'{text[:80]}' does not declare a value")
        return self.declared(match)

    def declared(self, match: re.Match[str]) -> Value:
        name, dtype, shape, q = match.groups()
        if dtype not in DTYPES:
            raise GraphError(f"%{name} is {dtype}; supported are {', '.join(DTYPES)}")
        dims = tuple(_integer(d) for d in shape.split(",")) if shape else ()
        value = Value(name, Type(dims, dtype, None if q is None else _qparams(q)))
        self.values[name] = value
        return value

    def assigned(self, text: str) -> Roles:
        named = dict(part.partition("=")[::2] for part in text.split())
        below = _values(Roles, f" skip_below={named.pop('skip_below', '0.0')}")
        roles = [f.name for f in fields(Roles) if f.name != "skip_below"]
        if set(named) | {"label"} != set(roles):
            raise GraphError(f"'{text[:80]}' does not name {', '.join(roles)}")
        (*values,) = self.read(", ".join(named.values()))
        if len(values) != len(named):
            raise GraphError(f"'{text[:80]}' leaves a role without a value")
        held: dict[str, Any] = dict(zip(named, values, strict=True))
        return Roles(label=held.pop("label", None), **held, **below)

    def read(self, text: str) -> list[Value]:
        names = [part.strip().removeprefix("%") for part in text.split(",") if part.strip()]
        for name in names:
            if name not in self.values:
                raise GraphError(f"%{name[:80]} is read before it is defined")
        return [self.values[name] for name in names]

    def node(self, line: str) -> None:
        declared, at = [], 0
        while match := _DECLARED.match(line, at):
            declared.append(match)
            at = match.end() + 2 if line.startswith(", ", match.end()) else match.end()
        call = _CALL.fullmatch(line, at)
        if not declared or call is None:
            raise GraphError(f"'{line[:80]}' is not a line of a graph")
        name, ins, attributes = call.groups()
        read = tuple(self.read(ins))
        outs = tuple(self.declared(match) for match in declared)
        self.nodes.append(Node(_op(name, attributes), read, outs))


def _names(text: str) -> tuple[str, ...]:
    """Read the names of classes, written as a Python tuple of strings."""
    try:
        names = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        names = None
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        raise GraphError(f"'{text[:80]}' does not name classes")
    return names


def _op(name: str, attributes: str) -> Op:
    if name not in OPS:
        raise GraphError(f"there is no op {name[:40]}; known are {', '.join(sorted(OPS))}")
    made: Op = _made(OPS[name], _values(OPS[name], attributes))
    return made


def _made(cls: type[Any], values: dict[str, Any]) -> Any:
    missing = [f.name for f in fields(cls) if f.default is MISSING and f.name not in values]
    if missing:
        raise GraphError(f"{cls.__name__} lacks its attribute {missing[0]}")
    return cls(**values)


def _values(cls: type[Op] | type[Preprocessing] | type[LogMel] | type[Roles], attributes: str) -> dict[str, Any]:
    """Read the fields that ` name=value` pairs set."""
    values = {}
    for key, text in _ATTRIBUTE.findall(attributes):
        try:
            values[key] = _value(cls, key, ast.parse(text.lstrip(), mode="eval").body)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise GraphError(f"{cls.__name__}'s {key} is '{text[:40]}', which is not a literal") from None
    return values


def _value(cls: Any, key: str, parsed: ast.expr) -> object:
    """Return the value of a field: an object, given as a call, or a literal."""
    if key not in (f.name for f in fields(cls)):
        raise GraphError(f"{cls.__name__} has no attribute {key}")
    kind, what = _types_of(cls)[key], f"{cls.__name__}'s {key}"
    return _object(parsed, what, kind) if isinstance(parsed, ast.Call) else _literal(parsed, what, kind)


@cache
def _types_of(cls: Any) -> dict[str, Any]:
    """Return the type of each field."""
    return get_type_hints(cls)


def _object(call: ast.Call, what: str, kind: type[Any]) -> object:
    """Read an attribute, or an op, of the class that a field has, or of a subclass."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    cls = {**OPS, **ATTRIBUTES}.get(name)
    if cls is None or not (isinstance(kind, type) and issubclass(cls, kind)):
        raise GraphError(f"{what} is {name[:40] or 'a call'}, expected {_named(kind)}")
    if call.args or any(keyword.arg is None for keyword in call.keywords):
        raise GraphError(f"{what} is {name} with attributes that are not named")
    return _made(cls, {str(k.arg): _value(cls, str(k.arg), k.value) for k in call.keywords})


def _literal(parsed: ast.expr, what: str, kind: Any) -> object:
    """Read a Python literal of a field's type: a number, text, or a tuple of numbers."""
    value: object = ast.literal_eval(parsed)
    kinds = get_args(kind)
    items = value if isinstance(value, tuple) else (value,)
    wanted = (kind,) if not kinds else kinds[:1] * len(items) if kinds[-1] is Ellipsis else kinds
    if isinstance(value, tuple) != bool(kinds) or tuple(map(type, items)) != wanted:
        raise GraphError(f"{what} is {ast.unparse(parsed)[:40]}, expected {_named(kind)}")
    if not all(isinstance(n, str) or abs(n) <= _LARGEST[type(n)] for n in items):
        raise GraphError(f"{what} is {ast.unparse(parsed)[:40]}, a number beyond those of C: 32 bits, or float32")
    return value


def _named(kind: Any) -> str:
    """Return a type as errors name it."""
    return str(kind) if get_args(kind) else str(kind.__name__)


def _qparams(text: str) -> QParams:
    parts = text.split(";")
    try:
        with np.errstate(over="ignore"):  # a scale too large for float32 is infinite, which `verify` refuses
            scales = tuple(float(np.float32(s)) for s in parts[0].split(","))
        axis = int(parts[2].strip().removeprefix("axis ")) if len(parts) > 2 else None
        return QParams(scales, int(parts[1]), axis)
    except (ValueError, IndexError):
        raise GraphError(f"'q({text[:60]})' is not a quantization") from None


def _integer(text: str) -> int:
    if not text.isdigit() or len(text) > 9:
        raise GraphError(f"'{text[:40]}' is not a dimension")
    return int(text)


FORMAT = "1"  # raised where the same graph comes to compute other bytes


def fingerprint(graph: Graph) -> str:
    """Return the SHA-256 of all that gives the bytes of its state their meaning, in hexadecimal.

    That is every node with its attributes and types, the constants with their bytes, the names, types and order of
    state, the updates, the roles and the preprocessing. What a checkpoint replaces is left out: the state a program
    starts from, and with it the seed. So is what changes no byte computed: the order of nodes, which memory plans
    choose, the target, the name, and the names of classes.
    """
    lines = print_graph(replace(graph, classes=())).splitlines()[1:]
    state = [line for line in lines if line.startswith("state ")]
    rest = sorted(line for line in lines if not line.startswith("state "))
    hashed = hashlib.sha256("\n".join((FORMAT, *state, *rest)).encode())
    for value in sorted(graph.constants, key=lambda v: v.name):
        hashed.update(np.ascontiguousarray(graph.constants[value]).tobytes())
    return hashed.hexdigest()
