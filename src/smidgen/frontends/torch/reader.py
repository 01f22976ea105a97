"""PyTorch → Graph: a module with an example of its input, or a saved `torch.export` archive."""

import logging
import math
import sys
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

from smidgen.data.files import MEMORY, Budget, first_line
from smidgen.errors import ImportModelError, UnsupportedOperatorError, further, located, nearest, refuse, with_others
from smidgen.frontends.channels import Constant, FileTensor, Operand
from smidgen.frontends.sequences import Sequences
from smidgen.frontends.tidy import fewest_transposes, tidy
from smidgen.frontends.torch.archive import read_archive
from smidgen.frontends.torch.operators import INSTEAD, RECURRENT, RULES, TorchCall, name_of
from smidgen.frontends.torch.program import ReplayModule, examples, parse
from smidgen.ir import Graph

# Functions that PyTorch would decompose, and Smidgen has whole.
KEPT = (
    "hardswish", "hardsigmoid", "silu", "mish", "softplus", "celu", "selu", "gelu", "elu", "leaky_relu", "hardtanh",
    "scaled_dot_product_attention",
)  # fmt: skip

# Operators other than PyTorch's core ones that are computed if all they read is constant.
PLAIN = (*KEPT, "lift_fresh_copy", "detach")


def from_torch(module: torch.nn.Module, example: torch.Tensor | tuple[torch.Tensor, ...]) -> Graph:
    """Read a module in evaluation mode as a float32 graph, channels last; `example` is an input, a batch of 1."""
    name = type(module).__name__
    examples = example if isinstance(example, tuple) else (example,)
    training = {part: part.training for part in module.modules()}
    try:
        module.eval()
        with torch.no_grad(), _quiet():
            program = torch.export.export(module, examples)
    except Exception as error:  # the module's code may raise anything
        raise ImportModelError(f"{name} cannot be exported: {first_line(error)}") from None
    finally:
        for part, was in training.items():
            part.training = was
    return _read(program, name, name, (), Budget(sys.maxsize))  # the user's module is in memory already


def read_pt2(path: Path, memory: int = MEMORY) -> Graph:
    """Read the model in an archive that `torch.export.save` wrote."""
    budget = Budget(memory)
    held = read_archive(path, budget)
    try:
        described = parse(held)
        inputs = examples(described, budget)
        with torch.no_grad(), _quiet():
            program = torch.export.export(ReplayModule(described, budget), inputs)
    except ImportModelError as error:
        raise ImportModelError(f"{path.name}: {error}") from None
    except Exception as error:  # operators that do not go together show in many ways
        raise ImportModelError(f"{path.name} cannot be read: {first_line(error)}; save it again") from None
    return _read(program, path.stem, path.name, tuple(described.inputs), budget)


def _read(program: ExportedProgram, name: str, where: str, inputs: tuple[str, ...], budget: Budget) -> Graph:
    """Translate the exported program; `inputs` are the names that a file gives its inputs."""
    try:
        with torch.no_grad(), _quiet():
            rules: Mapping[Any, Callable[..., Any]] = dict(torch.export.default_decompositions())
            kept = {op: rule for op, rule in rules.items() if name_of(op) not in (*KEPT, *RECURRENT)}
            program = program.run_decompositions(kept)
    except Exception as error:  # it runs PyTorch's own code on what the archive holds
        raise ImportModelError(f"{where} cannot be reduced to plain operators: {first_line(error)}") from None
    with located(where, again="; fix the model or export it again"):
        last, own = (_graph(program, name, way, inputs, budget.copy()) for way in (True, False))
    images = any(len(v.type.shape) == 4 and min(v.type.shape[1:3]) > 1 for v in last.inputs)
    return fewest_transposes(last, own, images)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence PyTorch's warnings: an error is reported in one sentence."""
    logger = logging.getLogger("torch.export")
    was, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch deprecates what it calls itself
            yield
    finally:
        logger.disabled = was


def _graph(program: ExportedProgram, name: str, last: bool, inputs: tuple[str, ...], budget: Budget) -> Graph:
    c = Sequences(name, budget=budget)
    given = iter(inputs)
    values: dict[fx.Node, object] = {}
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    outputs: list[FileTensor] = []
    for node in program.graph_module.graph.nodes:
        c.output = node.name
        if node.op == "placeholder":
            values[node] = _placeholder(c, program, specs[node.name], node, last, given)
        elif node.op == "call_function":
            try:
                values[node] = _call(c, node, values)
            except ImportModelError as error:
                calls = [n for n in program.graph_module.graph.nodes if n.op == "call_function" and n not in values]
                behind = ((name_of(n.target), n.all_input_nodes, (n,)) for n in calls if n != node)
                computed = {n for n, value in values.items() if isinstance(value, FileTensor)} | {node}
                raise with_others(error, further(behind, computed, RULES)) from None
        elif node.op == "output":
            outputs = [_output(values, item) for item in node.args[0]]
        else:
            raise ImportModelError(f"'{node.name}' is {node.op}, which is not supported; export a plain module")
    return tidy(c.graph(*outputs))


def _placeholder(
    c: Sequences, program: ExportedProgram, spec: Any, node: fx.Node, last: bool, names: Iterator[str]
) -> Operand:
    if spec.kind != InputKind.USER_INPUT:
        held = {**program.constants, **program.state_dict}
        return Constant(held[spec.target].detach().cpu().numpy())
    value, name = node.meta["val"], next(names, node.name)
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        kind = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
        raise ImportModelError(f"input '{name}' is {kind}; give only float32 tensors")
    for place, size in enumerate(value.shape):
        refuse(not isinstance(size, int), f"input '{name}' leaves dimension {place} open; export it with fixed sizes")
    shape = tuple(value.shape)
    recurs = any(name_of(user.target) in RECURRENT for user in node.users)
    steps_first = recurs and (len(shape) == 2 or shape[1:2] == (1,))
    if len(shape) > 1 and shape[0] != 1 and not steps_first:
        raise ImportModelError(f"input '{name}' is a batch of {shape[0]}, {list(shape)}; give a batch of 1")
    return c.input(name, shape, last)


def _output(values: Mapping[fx.Node, object], item: object) -> FileTensor:
    value = values.get(item) if isinstance(item, fx.Node) else None
    if not isinstance(value, FileTensor):
        raise ImportModelError("an output is not computed from the inputs; return tensors that are")
    return value


def _call(c: Sequences, node: fx.Node, values: Mapping[fx.Node, object]) -> object:
    """Translate one call; its name begins every error."""
    name = name_of(node.target)
    known = all(not isinstance(values[n], FileTensor) for n in node.all_input_nodes)
    where = f"'{node.name}' ({name})"
    if name not in RULES and not known:
        raise UnsupportedOperatorError(where, name, INSTEAD.get(name) or nearest(name, RULES, 0.6))
    with located(where, again="; fix the model or export it again"):
        try:
            folds = known and name != "getitem"
            return _fold_constant(c, node, values) if folds else RULES[name](TorchCall(c, node, values))
        except IndexError as error:
            raise ImportModelError(str(error)) from None


def _fold_constant(c: Sequences, node: fx.Node, values: Mapping[fx.Node, object]) -> Constant:
    """Compute a call on constants alone."""
    made, target = node.meta["val"], node.target
    if not isinstance(target, torch._ops.OpOverload) or not (torch.Tag.core in target.tags or name_of(target) in PLAIN):
        raise ImportModelError("it computes constants in a way that is not folded; register the result as a buffer")
    refuse(not isinstance(made, torch.Tensor), "it makes constants that are not tensors")
    c.budget.take("its result", made.element_size() * math.prod(int(n) for n in made.shape))

    def given(item: fx.Node) -> Any:
        value = values[item]
        return torch.from_numpy(np.array(value.data)) if isinstance(value, Constant) else value

    args, kwargs = fx.node.map_arg((node.args, node.kwargs), given)
    try:
        result = target(*args, **kwargs)
    except Exception as error:  # what it was given does not go together
        raise ImportModelError(f"its constants do not go together: {first_line(error)}") from None
    return Constant(result.detach().cpu().numpy())
