"""ONNX files as plain records; every size is checked before memory is allocated for it."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper, version_converter

from smidgen.data.files import Budget, read_whole
from smidgen.errors import ImportModelError, located, refuse
from smidgen.frontends.onnx.write import CLASSES
from smidgen.frontends.onnx.write.functions import DOMAIN, IDENTITIES, LAYERS, WEIGHTED
from smidgen.ir import MAX_BYTES, Array

FIRST_WITH_OPSETS = 3  # IR version; earlier files state no opset, theirs is 1
OLDEST = 13  # opset that has rules; older files are converted to it
MAX_ITEMS = 1 << 14  # nodes or constants in one model: hundreds of times what a microcontroller runs
LARGEST_CONVERTED = 64  # elements of a constant that the version converter may read: shapes, scales, axes
LARGEST_CLASSES = 2**22  # characters of all class names
LARGEST_RANK = 8
Shapes = Mapping[str, tuple[int, ...]]
NO_SHAPES: Shapes = {}
NAMES = "names"  # the metadata key of YOLO's class names, a dict in Python's syntax: {0: 'person', 1: 'bicycle'}
PARTS = 7  # inputs of a layer with weights that do not define its rounding
LOOPS = ("Loop", "Scan", "SequenceMap")
BRANCHES = {"then_branch": True, "else_branch": False}  # attributes of an If, by the condition they are for
_SINGLE = (onnx.AttributeProto.FLOAT, onnx.AttributeProto.INT, onnx.AttributeProto.STRING, onnx.AttributeProto.TENSOR)
_LISTS = (onnx.AttributeProto.FLOATS, onnx.AttributeProto.INTS, onnx.AttributeProto.STRINGS)
ELEMENT_TYPES: Mapping[int, np.dtype[np.generic]] = {
    onnx.TensorProto.FLOAT: np.dtype(np.float32), onnx.TensorProto.FLOAT16: np.dtype(np.float16),
    onnx.TensorProto.DOUBLE: np.dtype(np.float64), onnx.TensorProto.INT8: np.dtype(np.int8),
    onnx.TensorProto.UINT8: np.dtype(np.uint8), onnx.TensorProto.INT32: np.dtype(np.int32),
    onnx.TensorProto.INT64: np.dtype(np.int64), onnx.TensorProto.BOOL: np.dtype(np.bool_),
}  # fmt: skip


@dataclass(frozen=True)
class OnnxTensor:
    """An input or output: its name, ONNX's number of its element type, and the shape of an input."""

    name: str
    kind: int
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class OnnxOperator:
    """One node of the file."""

    code: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, object]
    branches: Mapping[bool, OnnxBranch] = field(default_factory=dict)  # of an If, by its condition


@dataclass(frozen=True, eq=False)
class OnnxBranch:
    """The operators of an If under one condition; names of their results begin with that of the node."""

    constants: Mapping[str, Array]
    operators: tuple[OnnxOperator, ...]


@dataclass(frozen=True, eq=False)
class OnnxModel:
    opset: int
    inputs: tuple[OnnxTensor, ...]
    outputs: tuple[OnnxTensor, ...]
    constants: Mapping[str, Array]
    operators: tuple[OnnxOperator, ...]
    classes: tuple[str, ...] = ()  # by name


def decode(path: Path, budget: Budget, shapes: Shapes = NO_SHAPES) -> OnnxModel:
    """Read the model in a file and in the files of weights next to it; `shapes` are those of open inputs, by name."""
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(read_whole(path, budget.limit))
    except DecodeError:
        raise ImportModelError("it is not a complete ONNX file") from None
    graph = proto.graph
    names = (*_names(graph), *(function.name for function in proto.functions))
    refuse(not all(isinstance(name, str) for name in names), "it holds names that are not text")
    opset = _opset(proto)
    _fix_shapes(graph, shapes)
    refuse(graph.sparse_initializer, "it holds sparse weights; export them dense")
    nodes, held = _check_nodes(graph), len(graph.initializer)
    refuse(max(nodes, held) > MAX_ITEMS, f"it has {nodes:,} nodes and {held:,} constants; up to {MAX_ITEMS:,} are read")
    if opset < OLDEST:
        opset, graph = OLDEST, _converted(proto, opset).graph
    constants = {tensor.name: array(tensor, path.parent, budget) for tensor in graph.initializer}
    inputs = tuple(_input(v) for v in graph.input if v.name not in constants)
    outputs = tuple(OnnxTensor(v.name, v.type.tensor_type.elem_type) for v in graph.output)
    operators = tuple(_operators(graph, path.parent, budget))
    refuse(not outputs or not operators, "it computes nothing")
    return OnnxModel(opset, inputs, outputs, constants, operators, _classes(proto))


def _classes(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Return the class names in a model's metadata, for which ONNX has no standard; none where they are not sound."""
    held = {entry.key: entry.value for entry in proto.metadata_props}
    text: object = held.get(CLASSES) or held.get(NAMES)
    for parse in (json.loads, ast.literal_eval):
        if not isinstance(text, str) or len(text) > LARGEST_CLASSES:  # protobuf returns bytes for what is not text
            return ()
        try:
            found: object = parse(text)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(found, dict) and set(found) == set(range(len(found))):
            found = [found[place] for place in range(len(found))]
        return tuple(found) if isinstance(found, list) and all(isinstance(name, str) for name in found) else ()
    return ()


def _converted(proto: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Return the model in opset 13 by ONNX's version converter, which does not get to see the weights."""
    small = onnx.ModelProto()
    small.CopyFrom(proto)
    del small.opset_import[:]  # a file may state none
    small.opset_import.append(onnx.helper.make_opsetid("", opset))
    small.ir_version = max(small.ir_version, FIRST_WITH_OPSETS)
    graph = small.graph
    kept = [t for t in graph.initializer if math.prod(t.dims) > LARGEST_CONVERTED or t.external_data]
    declared = {value.name for value in graph.input}
    for tensor in kept:
        graph.initializer.remove(tensor)
        if tensor.name not in declared:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    try:
        result = version_converter.convert_version(small, OLDEST)
    except Exception as error:  # each part of the converter raises another exception
        reason = " ".join(str(error).split())[:160]
        raise ImportModelError(
            f"it uses opset {opset}, which ONNX's converter cannot bring to {OLDEST}: {reason}; export it with opset "
            f"{OLDEST} or later"
        ) from None
    result.graph.initializer.extend(kept)
    return result


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield every name in a graph."""
    yield from (graph.name, *(named.name for named in (*graph.initializer, *graph.input, *graph.output)))
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
    for inner in _inner_graphs(graph):
        yield from _names(inner)


def _inner_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield the branches of a graph's conditions."""
    yield from (a.g for node in graph.node for a in node.attribute if a.HasField("g"))


def _opset(proto: onnx.ModelProto) -> int:
    versions = {entry.domain: entry.version for entry in proto.opset_import}
    opset = versions.get("", 0) or versions.get("ai.onnx", 0) or _implied_opset(proto)
    newest = onnx.defs.onnx_opset_version()
    refuse(not 1 <= opset <= newest, f"it uses opset {opset}; export it with one from {OLDEST} to {newest}")
    names = sorted(function.name for function in proto.functions if function.domain != DOMAIN)[:3]
    refuse(names, f"it defines functions ({', '.join(names)}); inline them with onnx.inliner first")
    return int(opset)


def _implied_opset(proto: onnx.ModelProto) -> int:
    """Return the opset of a file that states none: the newest one of its IR version in which every node is valid."""
    context = onnx.checker.C.CheckerContext()
    context.ir_version = proto.ir_version
    stated = (opset for _, ir, opset, *_ in onnx.helper.VERSION_TABLE if ir == proto.ir_version)
    for opset in sorted(stated, reverse=True):
        context.opset_imports = {"": opset}
        try:
            for node in proto.graph.node:
                onnx.checker.check_node(node, context)
        except onnx.checker.ValidationError:
            continue
        return opset
    if proto.ir_version >= FIRST_WITH_OPSETS:
        raise ImportModelError(
            f"it states no opset, and no opset of its IR version {proto.ir_version} has all its nodes; export it with "
            f"opset {OLDEST} or later"
        )
    return 1


def _fix_shapes(graph: onnx.GraphProto, shapes: Shapes) -> None:
    """Set open dimensions of inputs to the sizes given, and an open batch to 1."""
    held = {tensor.name for tensor in graph.initializer}
    inputs = {v.name: v.type.tensor_type.shape.dim for v in graph.input if v.name not in held}
    for name, shape in shapes.items():
        refuse(name not in inputs, f"it has no input '{name}' to give a shape to; its inputs are {', '.join(inputs)}")
        given = [d.dim_value if d.HasField("dim_value") else None for d in inputs[name]]
        if len(given) != len(shape) or any(g not in (None, n) for g, n in zip(given, shape, strict=True)):
            stated = ", ".join("?" if g is None else str(g) for g in given)
            raise ImportModelError(f"input '{name}' is [{stated}], which the shape {list(shape)} does not fit")
        for dim, size in zip(inputs[name], shape, strict=True):
            dim.dim_value = size
    for dims in inputs.values():
        if dims and not dims[0].HasField("dim_value"):
            dims[0].dim_value = 1


def _input(value: onnx.ValueInfoProto) -> OnnxTensor:
    """Return an input, which must have a fixed shape."""
    tensor = value.type.tensor_type
    what = f"input '{value.name}'"
    if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
        raise ImportModelError(f"{what} is not a tensor with a shape; export the model with example inputs")
    shape = []
    for place, dim in enumerate(tensor.shape.dim):
        if not dim.HasField("dim_value") or dim.dim_value < 1:
            name = f" ('{dim.dim_param}')" if dim.dim_param else ""
            sizes = ",".join(str(d.dim_value) if d.dim_value else "N" for d in tensor.shape.dim)
            way_out = f"give its sizes as in --shape {value.name}={sizes} with numbers for N"
            raise ImportModelError(
                f"{what} leaves dimension {place}{name} open; {way_out}, or export it with fixed sizes"
            )
        shape.append(dim.dim_value)
    if len(shape) > LARGEST_RANK or 4 * math.prod(shape) > MAX_BYTES:
        raise ImportModelError(f"{what} has shape {shape[:LARGEST_RANK]}, over {MAX_BYTES:,} bytes; use a smaller one")
    return OnnxTensor(value.name, tensor.elem_type, tuple(shape))


def _where(number: int, node: onnx.NodeProto) -> str:
    return f"node '{node.name or number}' ({node.op_type})"


def _check_nodes(graph: onnx.GraphProto) -> int:
    """Return how many nodes a graph and its branches have; raise where one is a loop, or of another domain."""
    for number, node in enumerate(graph.node):
        where, domain = _where(number, node), node.domain
        inner = any((a.HasField("g") or a.graphs) and a.name not in BRANCHES for a in node.attribute)
        if node.op_type in LOOPS or inner:
            raise ImportModelError(f"{where} is control flow; export the model for one fixed input, without it")
        if domain not in ("", "ai.onnx", DOMAIN):
            raise ImportModelError(f"{where} is of the domain '{domain}'; export the model with ONNX's own operators")
    return len(graph.node) + sum(_check_nodes(inner) for inner in _inner_graphs(graph))


def _operators(graph: onnx.GraphProto, folder: Path, budget: Budget) -> Iterator[OnnxOperator]:
    for number, node in enumerate(graph.node):
        name = node.name or str(number)
        with located(_where(number, node)):
            if node.op_type == "If":
                yield _condition(node, name, folder, budget)
                continue
            attributes = {a.name: _attribute(a, folder, budget) for a in node.attribute}
        operator = OnnxOperator(node.op_type, name, tuple(node.input), tuple(node.output), attributes)
        yield from _without_rounding(operator) if node.domain == DOMAIN else (operator,)


def _condition(node: onnx.NodeProto, name: str, folder: Path, budget: Budget) -> OnnxOperator:
    """Return an If; what its branches read from outside counts among its inputs."""
    graphs = {a.name: a.g for a in node.attribute if a.HasField("g")}
    if set(graphs) != set(BRANCHES) or any(len(g.output) != len(node.output) for g in graphs.values()):
        raise ImportModelError("it lacks a branch, or a branch has other outputs than it")
    branches, outside = {}, dict[str, None]()
    for which, graph in graphs.items():
        constants = {t.name: array(t, folder, budget) for t in graph.initializer}
        operators = tuple(_operators(graph, folder, budget))
        made = {*constants, *(out for operator in operators for out in operator.outputs)}
        outside |= dict.fromkeys(n for o in operators for n in o.inputs if n and n not in made)
        own = {inner: f"{name}:{which}:{inner}" for inner in made}
        ends = zip(graph.output, node.output, strict=True)
        operators += tuple(OnnxOperator("Identity", name, (end.name,), (out,), {}) for end, out in ends if out)
        outside |= dict.fromkeys(end.name for end in graph.output if end.name not in made)
        renamed = {own[inner]: data for inner, data in constants.items()}
        branches[BRANCHES[which]] = OnnxBranch(renamed, tuple(_renamed(o, own) for o in operators))
    return OnnxOperator("If", name, (*node.input, *outside), tuple(node.output), {}, branches)


def _renamed(operator: OnnxOperator, names: Mapping[str, str]) -> OnnxOperator:
    """Return an operator whose tensors have these names instead, and so those of the branches inside it."""
    inputs, outputs = (tuple(names.get(n, n) for n in part) for part in (operator.inputs, operator.outputs))
    branches = {
        condition: replace(branch, operators=tuple(_renamed(o, names) for o in branch.operators))
        for condition, branch in operator.branches.items()
    }
    return replace(operator, inputs=inputs, outputs=outputs, branches=branches)


def _without_rounding(operator: OnnxOperator) -> Iterator[OnnxOperator]:
    """Yield the operators that one of our functions stands for; int8 graphs round as it does."""
    code, inputs = operator.code, operator.inputs
    if code in WEIGHTED:
        x, w, b, w_step, w_zero, b_step, b_zero, *_ = (*inputs, *("" for _ in range(PARTS)))
        real = tuple(f"{operator.name}:{name}" for name in "wb")
        for steps, name in (((w, w_step, w_zero), real[0]), ((b, b_step, b_zero), real[1])):
            yield OnnxOperator("DequantizeLinear", operator.name, steps, (name,), {"axis": 0})
        yield replace(operator, code=WEIGHTED[code], inputs=(x, *real))
    else:
        where = f"node '{operator.name}' ({code})"
        refuse(code not in LAYERS, f"{where} is a table that no operator of ONNX gives; import the .smg")
        yield replace(operator, code="Identity" if code in IDENTITIES else code, inputs=inputs[: LAYERS[code]])


def _attribute(attribute: onnx.AttributeProto, folder: Path, budget: Budget) -> object:
    """Return an attribute's value of the type that it declares."""
    kind = attribute.type
    if attribute.ref_attr_name or kind not in (*_SINGLE, *_LISTS):
        raise ImportModelError(f"its attribute '{attribute.name}' has an unsupported type")
    value = onnx.helper.get_attribute_value(attribute)
    if kind == onnx.AttributeProto.TENSOR:
        return array(value, folder, budget)
    if kind == onnx.AttributeProto.STRING:
        return value.decode("utf-8", "replace")
    return tuple(value) if kind in _LISTS else value


def array(tensor: onnx.TensorProto, folder: Path, budget: Budget) -> Array:
    """Return a tensor's elements, which must have the size that it declares."""
    what, shape = f"constant '{tensor.name}'", tuple(tensor.dims)
    dtype = ELEMENT_TYPES.get(tensor.data_type)
    if dtype is None:
        kinds = ", ".join(str(d) for d in ELEMENT_TYPES.values())
        raise ImportModelError(f"{what} is of ONNX type {tensor.data_type}; export the model with {kinds}")
    size = math.prod(shape) * dtype.itemsize
    if len(shape) > LARGEST_RANK or min(shape, default=0) < 0:
        raise ImportModelError(f"{what} has shape {list(shape[:8])}; up to {LARGEST_RANK} sizes from 0 on are read")
    budget.take(f"{what}, {dtype}{list(shape)},", size)
    try:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            return numpy_helper.to_array(tensor)
        flat = np.frombuffer(_external(tensor, folder, size), dtype.newbyteorder("<"))
        return flat.reshape(shape).astype(dtype, copy=False)
    except (ValueError, TypeError) as error:
        raise ImportModelError(f"{what} does not hold its {size:,} bytes ({str(error)[:80]})") from None


def _external(tensor: onnx.TensorProto, folder: Path, size: int) -> bytes:
    """Read the bytes of a constant from a file in the model's folder."""
    entries = {str(entry.key): str(entry.value) for entry in tensor.external_data}
    location, what = entries.get("location", ""), f"constant '{tensor.name}'"
    try:
        path = (folder / location).resolve()
        path.exists()
    except (OSError, ValueError, RuntimeError):  # too long a name, a zero byte, links in a circle
        raise ImportModelError(f"{what} is in {location[:80]!a}, which is no name of a file") from None
    if not location or folder.resolve() not in path.parents:
        raise ImportModelError(f"{what} is in '{location[:80]}', outside the model's folder; export the model whole")
    try:
        start, length = int(entries.get("offset", 0)), int(entries.get("length", size))
    except ValueError:
        start = length = -1
    refuse(not path.is_file(), f"{what} is in '{location[:80]}', which is not next to the model; copy that file too")
    if length != size or start < 0 or start + size > path.stat().st_size:
        raise ImportModelError(
            f"{what} should be {size:,} bytes of '{location[:80]}' from {start:,}, which has {path.stat().st_size:,}"
        )
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(size)
    except OSError as error:
        raise ImportModelError(f"{what} is in '{location[:80]}', which cannot be read: {error.strerror}") from None
