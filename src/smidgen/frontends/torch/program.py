"""The description in an archive of `torch.export` → calls of PyTorch's operators, every part of it checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from smidgen.errors import ImportModelError
from smidgen.frontends.release.fields import Record
from smidgen.frontends.torch.archive import Archive, element_type, sizes
from smidgen.ir import Array

MAX_CALLS = 1 << 14  # hundreds of times what a microcontroller runs
TARGET = re.compile(r"torch\.ops\.aten\.([A-Za-z0-9_]+)\.([A-Za-z0-9_]+)")
# Types of arguments that an operator may have, and arguments that may be text: none of these names a file.
TYPES = re.compile(
    r"(Optional\[|List\[|\])*(Tensor|Scalar|number|int|float|bool|SymInt|SymFloat|SymBool|ScalarType|Layout|Device|"
    r"MemoryFormat|Generator)\]*"
)
TEXTS = ("padding", "approximate", "rounding_mode", "equation", "mode", "indexing")
PRIVATE = ("_unsafe_view",)  # operators that begin with "_" and stand in exported files beside PyTorch's core ones
ASSERTIONS = ("_assert_tensor_metadata", "_assert_async", "_assert_scalar", "sym_constrain_range_for_size")
_ELEMENTS: Mapping[int, torch.dtype] = {
    1: torch.uint8, 2: torch.int8, 3: torch.int16, 4: torch.int32, 5: torch.int64, 6: torch.float16,
    7: torch.float32, 8: torch.float64, 12: torch.bool,
}  # fmt: skip
_MEMORY_FORMATS: Mapping[int, torch.memory_format] = {
    1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d, 4: torch.preserve_format,
}  # fmt: skip
_FLOATS = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}
POSITIONAL, KEYWORD = 1, 2


@dataclass(frozen=True)
class Named:
    """A tensor that an argument stands for."""

    name: str


@dataclass(frozen=True, eq=False)
class Call:
    """A call of an operator; a name among the outputs stands for a tensor, a tuple of names for a list of them."""

    operator: torch._ops.OpOverload
    positional: tuple[object, ...]
    keywords: Mapping[str, object]
    outputs: tuple[str | tuple[str, ...] | None, ...]


@dataclass(frozen=True, eq=False)
class Program:
    """What a file computes: its inputs as example tensors by name, the tensors it holds, calls in order, outputs."""

    inputs: Mapping[str, tuple[tuple[int, ...], torch.dtype]]
    held: Mapping[str, Array]
    calls: tuple[Call, ...]
    outputs: tuple[str, ...]


def parse(archive: Archive) -> Program:
    """The calls, inputs and outputs that the description names."""
    module = archive.model.record("graph_module")
    graph, signature = module.record("graph"), module.record("signature")
    values = graph.record("tensor_values")
    inputs: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
    held: dict[str, Array] = {}
    for spec in signature.records("input_specs"):
        kind, inner = _only(spec)
        if kind == "user_input":
            name = _tensor_name(Record.of(inner, spec.where).record("arg"))
            meta = values.record(name)
            inputs[name] = sizes(meta), torch.from_numpy(np.empty(0, element_type(meta))).dtype
        else:
            name, held[name] = _held(kind, Record.of(inner, spec.where), archive.tensors)
    nodes = graph.records("nodes")
    if len(nodes) > MAX_CALLS:
        raise ImportModelError(f"it makes {len(nodes):,} calls; up to {MAX_CALLS:,} are read")
    calls = tuple(_call(node) for node in nodes if not _asserts(node))
    return Program(inputs, held, calls, tuple(_output(spec) for spec in signature.records("output_specs")))


def _only(union: Record) -> tuple[str, object]:
    """The one entry of a mapping that says which of several things it is."""
    if len(union.values) != 1:
        raise ImportModelError(f"{union.where} should say one thing, says {len(union.values)}; save it again")
    ((kind, value),) = union.values.items()
    return str(kind), value


def _text(record: Record, key: str) -> str:
    value = record.entry(key)
    if not isinstance(value, str):
        raise ImportModelError(f"{record.where}, {key} should be text, is {type(value).__name__}; save it again")
    return value


def _tensor_name(argument: Record) -> str:
    kind, inner = _only(argument)
    if kind != "as_tensor":
        raise ImportModelError(f"{argument.where} is no tensor; export a module of tensors with fixed sizes")
    return _text(Record.of(inner, argument.where), "name")


def _held(kind: str, spec: Record, tensors: Mapping[str, Array]) -> tuple[str, Array]:
    """The name of a parameter, buffer or constant in the graph, and its tensor."""
    key = {"parameter": "parameter_name", "buffer": "buffer_name", "tensor_constant": "tensor_constant_name"}.get(kind)
    if key is None:
        raise ImportModelError(f"{spec.where} is {kind[:40]!a}; export a module of tensors alone")
    source = _text(spec, key)
    if source not in tensors:
        raise ImportModelError(f"{spec.where} is {source[:80]!a}, which the archive does not hold; save it again")
    return _text(spec.record("arg"), "name"), tensors[source]


def _output(spec: Record) -> str:
    kind, inner = _only(spec)
    if kind != "user_output":
        raise ImportModelError(f"{spec.where} is {kind[:40]!a}; export the module in evaluation mode, changing nothing")
    return _tensor_name(Record.of(inner, spec.where).record("arg"))


def _asserts(node: Record) -> bool:
    """Whether the node only checks what is known when the file is read."""
    return _text(node, "target").removeprefix("torch.ops.aten.").partition(".")[0] in ASSERTIONS


def _call(node: Record) -> Call:
    target = _text(node, "target")
    operator = find_operator(target)
    node = Record(node.values, f"{node.where} ({target})")
    positional: list[object] = []
    keywords: dict[str, object] = {}
    given = {_text(item, "name"): item for item in node.records("inputs")}
    for argument in operator._schema.arguments:
        if argument.name in given:
            item = given.pop(argument.name)
            value = _argument(item.record("arg"), argument.name)
            plain = item.values.get("kind") == POSITIONAL or not (argument.kwarg_only or argument.has_default_value())
            if plain and not keywords:
                positional.append(value)
            else:
                keywords[argument.name] = value
    if given:
        raise ImportModelError(f"{node.where} has no argument {next(iter(given))[:40]!a}; save it again")
    return Call(operator, tuple(positional), keywords, tuple(_result(item) for item in node.records("outputs")))


def find_operator(target: str) -> torch._ops.OpOverload:
    """PyTorch's operator of that name, which must be one that takes tensors and numbers and gives tensors."""
    found = TARGET.fullmatch(target)
    packet = getattr(torch.ops.aten, found[1], None) if found else None
    operator = getattr(packet, found[2], None) if found and isinstance(packet, torch._ops.OpOverloadPacket) else None
    if found is None or not isinstance(operator, torch._ops.OpOverload) or not _computes(operator, found[1]):
        raise ImportModelError(
            f"it calls {target[:80]!a}, which is not one of PyTorch's own operators that compute tensors; "
            "use only those"
        )
    return operator


def _computes(operator: torch._ops.OpOverload, name: str) -> bool:
    schema = operator._schema
    public = not name.startswith("_") or torch.Tag.core in operator.tags or name in PRIVATE
    tensors = schema.returns and all("Tensor" in str(result.type) for result in schema.returns)
    plain = all(
        TYPES.fullmatch(str(a.type)) or (a.name in TEXTS and str(a.type) in ("str", "Optional[str]"))
        for a in schema.arguments
    )
    return bool(public and tensors and plain)


def _result(item: Record) -> str | tuple[str, ...] | None:
    kind, inner = _only(item)
    if kind == "as_none":
        return None
    if kind == "as_tensors":
        return tuple(_text(tensor, "name") for tensor in item.records("as_tensors"))
    return _tensor_name(Record({kind: inner}, item.where))


def _argument(argument: Record, name: str) -> object:
    """An argument's value: tensors by name, numbers, and what describes a tensor."""
    kind, value = _only(argument)
    if kind == "as_string" and isinstance(value, str) and name in TEXTS:
        return value
    if kind == "as_device":
        return torch.device("cpu")  # wherever it ran: here it only takes shape
    if kind in _LISTS:
        items = argument.entry(kind)
        if not isinstance(items, list):
            raise ImportModelError(f"{argument.where} should be a list; save it again")
        return [_LISTS[kind](item, argument.where) for item in items]
    if kind not in _SINGLE:
        raise ImportModelError(f"{argument.where} is {kind[:40]!a}, which is not read; export with fixed sizes")
    return _SINGLE[kind](value, argument.where)


def _whole(value: object, where: str) -> int:
    if not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise ImportModelError(f"{where} should be a whole number; save it again")
    return int(value)


def _real(value: object, where: str) -> float:
    if isinstance(value, str) and value in _FLOATS:
        return _FLOATS[value]
    if not isinstance(value, int | float) or abs(value) > 1e308:
        raise ImportModelError(f"{where} should be a number; save it again")
    return float(value)


def _truth(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise ImportModelError(f"{where} should be true or false; save it again")
    return value


def _numbered(table: Mapping[int, object], what: str) -> Callable[[object, str], object]:
    def find(value: object, where: str) -> object:
        if not isinstance(value, int) or value not in table:
            raise ImportModelError(f"{where} is {what} {str(value)[:20]}, which is not supported")
        return table[value]

    return find


def _known(key: str, read: Callable[[object, str], object]) -> Callable[[object, str], object]:
    """What may be an expression and has to be a number."""

    def find(value: object, where: str) -> object:
        kind, inner = _only(Record.of(value, where))
        if kind != key:
            raise ImportModelError(f"{where} leaves a dimension open; export it with fixed sizes, no dynamic_shapes")
        return read(inner, where)

    return find


def _tensor(value: object, where: str) -> Named | None:
    """A tensor, plainly by its name or as one that may be missing."""
    record = Record.of(value, where)
    if "as_none" in record.values:
        return None
    return Named(_text(record if "name" in record.values else record.record("as_tensor"), "name"))


_SINGLE: Mapping[str, Callable[[object, str], object]] = {
    "as_none": lambda value, where: None, "as_int": _whole, "as_float": _real, "as_bool": _truth,
    "as_tensor": _tensor, "as_optional_tensor": _tensor,
    "as_sym_int": _known("as_int", _whole), "as_sym_float": _known("as_float", _real),
    "as_sym_bool": _known("as_bool", _truth),
    "as_scalar_type": _numbered(_ELEMENTS, "element type"),
    "as_memory_format": _numbered(_MEMORY_FORMATS, "memory format"),
    "as_layout": _numbered({7: torch.strided}, "layout"),
}  # fmt: skip
_LISTS: Mapping[str, Callable[[object, str], object]] = {
    "as_ints": _whole, "as_floats": _real, "as_bools": _truth, "as_tensors": _tensor, "as_optional_tensors": _tensor,
    "as_sym_ints": _known("as_int", _whole), "as_sym_floats": _known("as_float", _real),
    "as_sym_bools": _known("as_bool", _truth),
}  # fmt: skip
