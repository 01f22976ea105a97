"""PyTorch → Graph: a module with an example of its input, or a saved `torch.export` archive."""

from __future__ import annotations

import io
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from smidgen.data.files import first_line
from smidgen.errors import GraphError, ImportModelError
from smidgen.frontends.channels import Constant, FileTensor, Operand
from smidgen.frontends.layers import Layers
from smidgen.frontends.tidy import fewest_transposes, tidy
from smidgen.frontends.torch.archive import safe_archive
from smidgen.frontends.torch.operators import RULES, TorchCall, instead_of, name_of
from smidgen.ir import MAX_BYTES, Graph

# Functions that PyTorch would take apart, and Smidgen has whole.
KEPT = ("hardswish", "hardsigmoid", "silu", "mish", "softplus", "celu", "selu", "gelu", "elu", "leaky_relu", "hardtanh")


def from_torch(module: torch.nn.Module, example: torch.Tensor | tuple[torch.Tensor, ...]) -> Graph:
    """A module in evaluation mode as a float32 graph, channels last; `example` is an input, a batch of 1."""
    name = type(module).__name__
    examples = example if isinstance(example, tuple) else (example,)
    training = {part: part.training for part in module.modules()}
    try:
        module.eval()
        with torch.no_grad(), _quiet():
            program = torch.export.export(module, examples)
    except Exception as error:  # whatever the module's own code raises
        raise ImportModelError(f"{name} cannot be exported: {first_line(error)}") from None
    finally:
        for part, was in training.items():
            part.training = was
    return _read(program, name)


def read_pt2(path: Path) -> Graph:
    """The model in an archive that `torch.export.save` wrote."""
    data = safe_archive(path)
    try:
        with _quiet():
            program = torch.export.load(io.BytesIO(data))
    except Exception as error:  # a damaged archive shows in many ways
        raise ImportModelError(f"{path.name} cannot be read: {first_line(error)}; save it again") from None
    return _read(program, path.stem, path.name)


def _read(program: ExportedProgram, name: str, where: str = "") -> Graph:
    try:
        with torch.no_grad(), _quiet():
            program = program.run_decompositions(_decompositions())
    except Exception as error:  # it runs PyTorch's own code on what the archive holds
        raise ImportModelError(f"{where or name} cannot be reduced to plain operators: {first_line(error)}") from None
    try:
        last, own = (_graph(program, name, way) for way in (True, False))
        images = any(len(v.type.shape) == 4 and min(v.type.shape[1:3]) > 1 for v in last.inputs)
        return fewest_transposes(last, own, images)
    except (ImportModelError, GraphError) as error:
        raise ImportModelError(f"{where or name}: {error}") from None


def _decompositions() -> dict[Any, Callable[..., Any]]:
    table: Mapping[Any, Callable[..., Any]] = dict(torch.export.default_decompositions())
    return {op: rule for op, rule in table.items() if name_of(op) not in KEPT}


@contextmanager
def _quiet() -> Iterator[None]:
    """Without PyTorch's own complaints: what goes wrong is said in one sentence."""
    logger = logging.getLogger("torch.export")
    was, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch deprecates what it calls itself
            yield
    finally:
        logger.disabled = was


def _graph(program: ExportedProgram, name: str, last: bool) -> Graph:
    c = Layers(name)
    values: dict[fx.Node, object] = {}
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    outputs: list[FileTensor] = []
    for node in program.graph_module.graph.nodes:
        c.output = node.name
        if node.op == "placeholder":
            values[node] = _placeholder(c, program, specs[node.name], node, last)
        elif node.op == "call_function":
            values[node] = _call(c, node, values)
        elif node.op == "output":
            outputs = [_output(values, item) for item in node.args[0]]
        else:
            raise ImportModelError(f"'{node.name}' is {node.op}, which is not supported; export a plain module")
    return tidy(c.graph(*outputs))


def _placeholder(c: Layers, program: ExportedProgram, spec: Any, node: fx.Node, last: bool) -> Operand:
    if spec.kind != InputKind.USER_INPUT:
        held = {**program.constants, **program.state_dict}
        return Constant(held[spec.target].detach().cpu().numpy())
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        kind = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
        raise ImportModelError(f"input '{node.name}' is {kind}; give only float32 tensors")
    for place, size in enumerate(value.shape):
        if not isinstance(size, int):
            raise ImportModelError(f"input '{node.name}' leaves dimension {place} open; export it with fixed sizes")
    shape = tuple(value.shape)
    if len(shape) > 1 and shape[0] != 1:
        raise ImportModelError(f"input '{node.name}' is a batch of {shape[0]}, {list(shape)}; give a batch of 1")
    return c.input(node.name, shape, last)


def _output(values: Mapping[fx.Node, object], item: object) -> FileTensor:
    value = values.get(item) if isinstance(item, fx.Node) else None
    if not isinstance(value, FileTensor):
        raise ImportModelError("an output is not computed from the inputs; return tensors that are")
    return value


def _call(c: Layers, node: fx.Node, values: Mapping[fx.Node, object]) -> object:
    """Translate one call; what it says of itself stands before every complaint."""
    name = name_of(node.target)
    known = all(not isinstance(values[n], FileTensor) for n in node.all_input_nodes)
    try:
        if known and name != "getitem":
            return _fold_constant(node, values)
        rule = RULES.get(name)
        if rule is None:
            raise ImportModelError(f"this operator is not supported; {instead_of(name)}")
        return rule(TorchCall(c, node, values))
    except (GraphError, ImportModelError, IndexError) as error:
        raise ImportModelError(f"'{node.name}' ({name}): {error}") from None


def _fold_constant(node: fx.Node, values: Mapping[fx.Node, object]) -> Constant:
    """A call on constants alone, done here."""
    made = node.meta["val"]
    if not isinstance(made, torch.Tensor) or 8 * math.prod(int(n) for n in made.shape) > MAX_BYTES:
        raise ImportModelError("it makes constants that are not tensors, or that are too large")

    def given(item: fx.Node) -> Any:
        value = values[item]
        return torch.from_numpy(np.array(value.data)) if isinstance(value, Constant) else value

    args, kwargs = fx.node.map_arg((node.args, node.kwargs), given)
    result = node.target(*args, **kwargs)  # type: ignore[operator]
    return Constant(result.detach().cpu().numpy())
