"""The description in a `torch.export` archive → calls of PyTorch's operators, and a module that makes them.

Every part of the description is checked.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from smidgen.data.files import Budget
from smidgen.errors import ImportModelError, refuse
from smidgen.frontends.fields import Record
from smidgen.frontends.torch.archive import DTYPES, STRIDED, Archive, element_type, sizes
from smidgen.ir import Array

MAX_CALLS = 1 << 14  # hundreds of times what a microcontroller runs
MAX_PIECES = 1 << 12  # tensors that one call may cut another into
TARGET = re.compile(r"torch\.ops\.aten\.([A-Za-z0-9_]+)\.([A-Za-z0-9_]+)")
# Types of arguments that an operator may have, and arguments that may be text: none of these names a file.
TYPES = re.compile(
    r"(Optional\[|List\[|\])*(Tensor|Scalar|number|int|float|bool|SymInt|SymFloat|SymBool|ScalarType|Layout|Device|"
    r"MemoryFormat|Generator)\]*"
)
TEXTS = ("padding", "approximate", "rounding_mode", "equation", "mode", "indexing")
PRIVATE = ("_unsafe_view",)  # operators that begin with "_" and occur in exported files, though not core ones
# Operators that only assert what is known when the file is read.
ASSERTIONS = ("_assert_tensor_metadata", "_assert_async", "_assert_scalar", "sym_constrain_range_for_size")
_MEMORY_FORMATS: Mapping[int, torch.memory_format] = {
    1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d, 4: torch.preserve_format,
}  # fmt: skip
FLOATS = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}
POSITIONAL = 1  # the kind of an argument given by place


@dataclass(frozen=True)
class Named:
    """A reference to a tensor, as an argument."""

    name: str


@dataclass(frozen=True, eq=False)
class AtenCall:
    """A call of an operator; each output is the name of a tensor, or a tuple of names for a list of them."""

    operator: torch._ops.OpOverload
    positional: tuple[object, ...]
    keywords: Mapping[str, object]
    outputs: tuple[str | tuple[str, ...] | None, ...]


@dataclass(frozen=True, eq=False)
class TorchProgram:
    """A file's computation: the types of its inputs by name, the tensors it holds, its calls in order, its outputs."""

    inputs: Mapping[str, tuple[tuple[int, ...], torch.dtype]]
    held: Mapping[str, Array]
    calls: tuple[AtenCall, ...]
    outputs: tuple[str, ...]


def parse(archive: Archive) -> TorchProgram:
    """Return the calls, inputs and outputs that the description names."""
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
            inputs[name] = sizes(meta), _torch_type(element_type(meta))
        else:
            name, held[name] = _held(kind, Record.of(inner, spec.where), archive.tensors)
    nodes = graph.records("nodes")
    refuse(len(nodes) > MAX_CALLS, f"it makes {len(nodes):,} calls; up to {MAX_CALLS:,} are read")
    names = [node.text("target").removeprefix("torch.ops.aten.").partition(".")[0] for node in nodes]
    calls = tuple(_call(node) for node, name in zip(nodes, names, strict=True) if name not in ASSERTIONS)
    return TorchProgram(inputs, held, calls, tuple(_output(spec) for spec in signature.records("output_specs")))


def _torch_type(dtype: np.dtype[np.generic]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


def _only(union: Record) -> tuple[str, object]:
    """Return the single entry of a mapping that stands for one of several kinds."""
    refuse(len(union.values) != 1, f"{union.where} should have one entry, has {len(union.values)}; save it again")
    ((kind, value),) = union.values.items()
    return str(kind), value


def _tensor_name(argument: Record) -> str:
    kind, inner = _only(argument)
    refuse(kind != "as_tensor", f"{argument.where} is no tensor; export a module of tensors with fixed sizes")
    return Record.of(inner, argument.where).text("name")


def _held(kind: str, spec: Record, tensors: Mapping[str, Array]) -> tuple[str, Array]:
    """Return the name of a parameter, buffer or constant in the graph, and its tensor."""
    key = {"parameter": "parameter_name", "buffer": "buffer_name", "tensor_constant": "tensor_constant_name"}.get(kind)
    if key is None:
        raise ImportModelError(f"{spec.where} is {kind[:40]!a}; export a module of tensors alone")
    source = spec.text(key)
    refuse(source not in tensors, f"{spec.where} is {source[:80]!a}, which the archive does not hold; save it again")
    return spec.record("arg").text("name"), tensors[source]


def _output(spec: Record) -> str:
    kind, inner = _only(spec)
    if kind != "user_output":
        raise ImportModelError(f"{spec.where} is {kind[:40]!a}; export the module in evaluation mode, changing nothing")
    return _tensor_name(Record.of(inner, spec.where).record("arg"))


def _call(node: Record) -> AtenCall:
    target = node.text("target")
    operator = find_operator(target)
    node = Record(node.values, f"{node.where} ({target})")
    positional, keywords = list[object](), dict[str, object]()
    given = {item.text("name"): item for item in node.records("inputs")}
    for argument in operator._schema.arguments:
        if argument.name in given:
            item = given.pop(argument.name)
            value = _argument(item.record("arg"), argument.name)
            plain = item.values.get("kind") == POSITIONAL or not (argument.kwarg_only or argument.has_default_value())
            if plain and not keywords:
                positional.append(value)
            else:
                keywords[argument.name] = value
    refuse(given, f"{node.where} has no argument {next(iter(given), '')[:40]!a}; save it again")
    return AtenCall(operator, tuple(positional), keywords, tuple(_result(item) for item in node.records("outputs")))


def find_operator(target: str) -> torch._ops.OpOverload:
    """Return PyTorch's operator of that name, which must take tensors and numbers and give tensors."""
    found = TARGET.fullmatch(target)
    packet = getattr(torch.ops.aten, found[1], None) if found else None
    operator = getattr(packet, found[2], None) if found and isinstance(packet, torch._ops.OpOverloadPacket) else None
    if found is not None and isinstance(operator, torch._ops.OpOverload):
        name, schema = found[1], operator._schema
        public = not name.startswith("_") or torch.Tag.core in operator.tags or name in PRIVATE
        tensors = schema.returns and all("Tensor" in str(result.type) for result in schema.returns)
        given = ((a.name, str(a.type)) for a in schema.arguments)
        plain = all(TYPES.fullmatch(t) or (n in TEXTS and t in ("str", "Optional[str]")) for n, t in given)
        if public and tensors and plain:
            return operator
    raise ImportModelError(f"it calls {target[:80]!a}, which is not one of PyTorch's own operators of tensors")


def _result(item: Record) -> str | tuple[str, ...] | None:
    kind, _ = _only(item)
    if kind == "as_tensors":
        return tuple(tensor.text("name") for tensor in item.records("as_tensors"))
    return None if kind == "as_none" else _tensor_name(item)


def _argument(argument: Record, name: str) -> object:
    """Return an argument's value: a tensor by name, a number, or a property of a tensor."""
    kind, value = _only(argument)
    if kind == "as_string" and isinstance(value, str) and name in TEXTS:
        return value
    if kind == "as_device":
        return torch.device("cpu")  # wherever it ran: here only its shape is computed
    if kind.endswith("s") and kind[:-1] in _LISTED:
        if not isinstance(value, list):
            raise ImportModelError(f"{argument.where} should be a list; save it again")
        return [_LISTED[kind[:-1]](item, argument.where) for item in value]
    refuse(kind not in _SINGLE, f"{argument.where} is {kind[:40]!a}, which is not read; export with fixed sizes")
    return _SINGLE[kind](value, argument.where)


def _checked(kind: type, what: str, most: float = math.inf) -> Callable[[object, str], object]:
    """Return a reader of values of a kind, which errors call `what`."""

    kinds = (int, float) if kind is float else (kind,)

    def find(value: Any, where: str) -> object:
        if kind is float and isinstance(value, str) and value in FLOATS:
            return FLOATS[value]
        fits = isinstance(value, kinds)
        refuse(not fits or value < -most or value >= most, f"{where} should be {what}; save it again")
        return kind(value)

    return find


def _numbered(table: Mapping[int, object], what: str) -> Callable[[object, str], object]:
    def find(value: object, where: str) -> object:
        if not isinstance(value, int) or value not in table:
            raise ImportModelError(f"{where} is {what} {str(value)[:20]}, which is not supported")
        return table[value]

    return find


def _known(key: str, read: Callable[[object, str], object]) -> Callable[[object, str], object]:
    """Return a reader of values that may be expressions and have to be numbers."""

    def find(value: object, where: str) -> object:
        kind, inner = _only(Record.of(value, where))
        refuse(kind != key, f"{where} leaves a dimension open; export it with fixed sizes, no dynamic_shapes")
        return read(inner, where)

    return find


def _tensor(value: object, where: str) -> Named | None:
    """Return a reference to a tensor, or None for one that is missing."""
    record = Record.of(value, where)
    if "as_none" in record.values:
        return None
    return Named((record if "name" in record.values else record.record("as_tensor")).text("name"))


_PLAIN: Mapping[str, Callable[[object, str], object]] = {
    "int": _checked(int, "a whole number", 2**63), "float": _checked(float, "a number", 1e308),
    "bool": _checked(bool, "true or false"),
}  # fmt: skip
# Readers of arguments by kind; those of the first table may come in lists, whose kinds end in "s".
_LISTED: Mapping[str, Callable[[object, str], object]] = {
    **{f"as_{kind}": read for kind, read in _PLAIN.items()}, "as_tensor": _tensor, "as_optional_tensor": _tensor,
    **{f"as_sym_{kind}": _known(f"as_{kind}", read) for kind, read in _PLAIN.items()},
}  # fmt: skip
_SINGLE: Mapping[str, Callable[[object, str], object]] = {
    **_LISTED,
    "as_none": lambda value, where: None,
    "as_scalar_type": _numbered({n: _torch_type(np.dtype(kind)) for n, kind in DTYPES.items()}, "element type"),
    "as_memory_format": _numbered(_MEMORY_FORMATS, "memory format"),
    "as_layout": _numbered({STRIDED: torch.strided}, "layout"),
}


class ReplayModule(torch.nn.Module):
    """A program's calls in order, for PyTorch to export again; meanwhile tensors have shapes and no elements."""

    def __init__(self, program: TorchProgram, budget: Budget) -> None:
        super().__init__()
        self.program, self.budget = program, budget
        for number, data in enumerate(program.held.values()):
            self.register_buffer(f"held_{number}", torch.from_numpy(data))

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        program = self.program
        values: dict[str, torch.Tensor] = dict(zip(program.inputs, inputs, strict=True))
        for number, name in enumerate(program.held):
            values[name] = self.get_buffer(f"held_{number}")
        for place, call in enumerate(program.calls):
            self._make(call, values, f"call {place} ({call.operator})")
        return tuple(_given(values, Named(name)) for name in program.outputs)

    def _make(self, call: AtenCall, values: dict[str, torch.Tensor], where: str) -> None:
        positional = [_given(values, item) for item in call.positional]
        keywords = {name: _given(values, item) for name, item in call.keywords.items()}
        _check_pieces(call, [*positional, *keywords.values()], where)
        made = call.operator(*positional, **keywords)
        several, wanted = isinstance(made, tuple) or (isinstance(made, list) and len(call.outputs) != 1), call.outputs
        results: Sequence[object] = made if several else (made,)
        refuse(len(results) != len(wanted), f"{where} gives {len(results)} results, the file names {len(wanted)}")
        for output, result in zip(wanted, results, strict=True):
            names = output if isinstance(output, tuple) else (output,)
            parts = result if isinstance(result, list | tuple) else (result,)
            refuse(len(names) != len(parts), f"{where} gives {len(parts)} tensors, the file names {len(names)}")
            for name, part in zip(names, parts, strict=True):
                if name is not None and isinstance(part, torch.Tensor):
                    self.budget.check(where, part.element_size() * math.prod(part.shape))
                    values[name] = part


def examples(program: TorchProgram, budget: Budget) -> tuple[torch.Tensor, ...]:
    """Return inputs of the program's shapes, all zero."""
    for name, (shape, dtype) in program.inputs.items():
        budget.take(f"input {name[:80]!a}", math.prod(shape) * dtype.itemsize)
    return tuple(torch.zeros(shape, dtype=dtype) for shape, dtype in program.inputs.values())


def _given(values: Mapping[str, torch.Tensor], item: object) -> Any:
    if isinstance(item, Named):
        refuse(item.name not in values, f"{item.name[:80]!a} is read before anything writes it; save the model again")
        return values[item.name]
    return [_given(values, part) for part in item] if isinstance(item, list) else item


def _check_pieces(call: AtenCall, given: list[object], where: str) -> None:
    """Raise if a call would cut a tensor into too many pieces: each takes memory."""
    if not any(str(result.type).startswith("List") for result in call.operator._schema.returns):
        return
    longest = max((max(x.shape, default=0) for x in given if isinstance(x, torch.Tensor)), default=0)
    number = next((x for x in given if isinstance(x, int)), 1)  # of pieces, or of elements in each
    name = call.operator._schema.name
    pieces = {"unbind": longest, "split": longest // max(number, 1)}.get(name.rpartition(":")[2], min(number, longest))
    refuse(pieces > MAX_PIECES, f"{where} cuts a tensor into {pieces:,} pieces; up to {MAX_PIECES:,} are read")
