"""PyTorch → Graph: a module with an example of its input, or a saved `torch.export` archive."""

from __future__ import annotations

import difflib
import io
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from smidgen import ops
from smidgen.errors import GraphError, ImportModelError
from smidgen.frontends.channels import Constant, Operand, Spans, Tensor
from smidgen.frontends.layers import Layers
from smidgen.frontends.layout import Shape
from smidgen.frontends.pt2 import safe_archive
from smidgen.frontends.tidy import fewest_transposes, tidy
from smidgen.ir import MAX_BYTES, Graph, Op

# Functions that PyTorch would take apart, and Smidgen has whole.
KEPT = ("hardswish", "hardsigmoid", "silu", "mish", "softplus", "celu", "selu", "gelu", "elu", "leaky_relu", "hardtanh")
INSTEAD = {
    "_log_softmax": "end the module at its logits", "argmax": "end the module at its logits",
    "native_group_norm": "use BatchNorm", "native_layer_norm": "use BatchNorm",
    "_scaled_dot_product_flash_attention_for_cpu": "use convolutions", "upsample_nearest2d": "nothing enlarges a map",
}  # fmt: skip


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
        raise ImportModelError(f"{name} cannot be exported: {_first_line(error)}") from None
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
        raise ImportModelError(f"{path.name} cannot be read: {_first_line(error)}; save it again") from None
    return _read(program, path.stem, path.name)


def _read(program: ExportedProgram, name: str, where: str = "") -> Graph:
    try:
        with torch.no_grad(), _quiet():
            program = program.run_decompositions(_decompositions())
    except Exception as error:  # it runs PyTorch's own code on what the archive holds
        raise ImportModelError(f"{where or name} cannot be reduced to plain operators: {_first_line(error)}") from None
    try:
        last, own = (_graph(program, name, way) for way in (True, False))
        images = any(len(v.type.shape) == 4 and min(v.type.shape[1:3]) > 1 for v in last.inputs)
        return fewest_transposes(last, own, images)
    except (ImportModelError, GraphError) as error:
        raise ImportModelError(f"{where or name}: {error}") from None


def _decompositions() -> dict[Any, Callable[..., Any]]:
    table: Mapping[Any, Callable[..., Any]] = dict(torch.export.default_decompositions())
    return {op: rule for op, rule in table.items() if _name(op) not in KEPT}


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


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]


def _name(target: object) -> str:
    """An operator's name without its overload."""
    return str(getattr(target, "__name__", target)).split(".")[0]


def _graph(program: ExportedProgram, name: str, last: bool) -> Graph:
    c = Layers(name)
    values: dict[fx.Node, object] = {}
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    outputs: list[Tensor] = []
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
        raise ImportModelError(f"input '{node.name}' is {kind}; give float32 tensors alone")
    for place, size in enumerate(value.shape):
        if not isinstance(size, int):
            raise ImportModelError(f"input '{node.name}' leaves dimension {place} open; export it with fixed sizes")
    shape = tuple(value.shape)
    if len(shape) > 1 and shape[0] != 1:
        raise ImportModelError(f"input '{node.name}' is a batch of {shape[0]}, {list(shape)}; give a batch of 1")
    return c.input(node.name, shape, last)


def _output(values: Mapping[fx.Node, object], item: object) -> Tensor:
    value = values.get(item) if isinstance(item, fx.Node) else None
    if not isinstance(value, Tensor):
        raise ImportModelError("an output is not computed from the inputs; return tensors that are")
    return value


def _call(c: Layers, node: fx.Node, values: Mapping[fx.Node, object]) -> object:
    """Translate one call; what it says of itself stands before every complaint."""
    name = _name(node.target)
    known = all(not isinstance(values[n], Tensor) for n in node.all_input_nodes)
    try:
        if known and name != "getitem":
            return _folded(node, values)
        rule = RULES.get(name)
        if rule is None:
            raise ImportModelError(f"this operator is not supported; {_instead(name)}")
        return rule(Call(c, node, values))
    except (GraphError, ImportModelError, IndexError) as error:
        raise ImportModelError(f"'{node.name}' ({name}): {error}") from None


def _folded(node: fx.Node, values: Mapping[fx.Node, object]) -> Constant:
    """A call on constants alone, done here."""
    made = node.meta["val"]
    if not isinstance(made, torch.Tensor) or 8 * math.prod(int(n) for n in made.shape) > MAX_BYTES:
        raise ImportModelError("it makes constants that are no tensor, or too large a one")

    def given(item: fx.Node) -> Any:
        value = values[item]
        return torch.from_numpy(np.array(value.data)) if isinstance(value, Constant) else value

    args, kwargs = fx.node.map_arg((node.args, node.kwargs), given)
    result = node.target(*args, **kwargs)  # type: ignore[operator]
    return Constant(result.detach().cpu().numpy())


def _instead(name: str) -> str:
    if name in INSTEAD:
        return INSTEAD[name]
    near = difflib.get_close_matches(name, RULES, 1, 0.6)
    return f"nearest is {near[0]}" if near else f"supported are {', '.join(RULES)}"


@dataclass(frozen=True, eq=False)
class Call:
    """One call about to be translated, its arguments by place or by name."""

    c: Layers
    node: fx.Node
    values: Mapping[fx.Node, object]

    def raw(self, place: int, default: object = None) -> Any:
        args = self.node.args
        if place < len(args):
            return args[place]
        schema = getattr(self.node.target, "_schema", None)
        if schema is not None and place < len(schema.arguments):
            argument = schema.arguments[place]
            given = self.node.kwargs.get(argument.name, argument.default_value)
            return default if given is None else given
        return default

    def operand(self, place: int) -> Operand:
        item = self.raw(place)
        if isinstance(item, fx.Node):
            value = self.values[item]
            if isinstance(value, Tensor | Constant):
                return value
        if isinstance(item, int | float):
            return Constant(np.array(item, np.float32))
        raise ImportModelError(f"its argument {place} is no tensor and no number")

    def tensor(self, place: int) -> Tensor:
        x = self.operand(place)
        return x if isinstance(x, Tensor) else self.c.real(x)

    def constant(self, place: int) -> Constant:
        x = self.operand(place)
        if isinstance(x, Tensor):
            raise ImportModelError(f"its argument {place} is computed; it has to be a constant")
        return x

    def optional(self, place: int) -> Constant | None:
        return None if self.raw(place) is None else self.constant(place)

    def number(self, place: int, default: float) -> float:
        value = self.raw(place, default)
        if not isinstance(value, int | float):
            raise ImportModelError(f"its argument {place} should be a number")
        return float(value)

    def integers(self, place: int, default: Sequence[int] = ()) -> Shape:
        """One integer or several; sizes must be fixed."""
        value = self.raw(place, default)
        numbers = [value] if isinstance(value, int) else list(value)
        if not all(isinstance(n, int) for n in numbers):
            raise ImportModelError(f"its argument {place} depends on the input's size; export it with fixed sizes")
        return tuple(numbers)

    def spread(self, place: int, count: int, default: Sequence[int]) -> Shape:
        """One number for each dimension of a map, given once or for each."""
        numbers = self.integers(place, default) or tuple(default)
        return numbers * count if len(numbers) == 1 else numbers


def _spans(pads: Shape) -> Spans:
    return tuple((p, p) for p in pads)


def _convolution(call: Call) -> Tensor:
    x, w = call.tensor(0), call.constant(1)
    count = len(x.shape) - 2
    if call.raw(6):
        raise ImportModelError("transposed convolutions are not supported; nothing here enlarges a map")
    stride, pads, dilation = (call.spread(i, count, (d,)) for i, d in ((3, 1), (4, 0), (5, 1)))
    return call.c.conv(x, w, call.optional(2), stride, _spans(pads), dilation, int(call.number(8, 1)))


def _batch_norm(call: Call) -> Tensor:
    x = call.tensor(0)
    mean, variance = (call.constant(i).data.astype(np.float64) for i in (3, 4))
    scale = np.ones_like(mean) if call.raw(1) is None else call.constant(1).data
    shift = np.zeros_like(mean) if call.raw(2) is None else call.constant(2).data
    factor = scale / np.sqrt(variance + call.number(6, 1e-5))
    return call.c.batch_norm(x, factor, shift - mean * factor)


def _matrix(call: Call) -> Tensor:
    """mm(x, w), and addmm(b, x, w) with factors beta and alpha."""
    at = 1 if _name(call.node.target) == "addmm" else 0
    x, w = call.tensor(at), call.constant(at + 1).transposed((1, 0))
    if not at:
        return call.c.dense(x, w)
    beta, alpha = (float(call.node.kwargs.get(k, 1)) for k in ("beta", "alpha"))  # type: ignore[arg-type]
    if (beta, alpha) != (1.0, 1.0):
        raise ImportModelError(f"factors {beta} and {alpha} in a matrix product are not supported; use 1")
    return call.c.dense(x, w, call.constant(0))


def _pool(call: Call) -> Tensor:
    x = call.tensor(0)
    count = len(x.shape) - 2
    size = call.spread(1, count, ())
    stride, pads = call.spread(2, count, size) or size, call.spread(3, count, (0,))
    if _name(call.node.target).startswith("max"):
        if set(call.spread(4, count, (1,))) != {1}:
            raise ImportModelError("pools that are dilated are not supported; use plain ones")
        return call.c.pool(ops.MaxPool, x, size, stride, _spans(pads), bool(call.raw(5)))
    if call.raw(6) is not None:
        raise ImportModelError("an average with a divisor of its own is not supported; leave it out")
    return call.c.pool(ops.AvgPool, x, size, stride, _spans(pads), bool(call.raw(4)), bool(call.raw(5)))


def _adaptive_pool(call: Call) -> Tensor:
    """To a map of a given size: windows of one size where it divides the map's."""
    x = call.tensor(0)
    maps, wanted = x.shape[2:], call.spread(1, len(x.shape) - 2, ())
    average = "avg" in _name(call.node.target)
    if average and set(wanted) == {1}:
        return call.c.mean(x, range(2, len(x.shape)), keep=True)
    if any(n % k for n, k in zip(maps, wanted, strict=True)):
        raise ImportModelError(f"a map of {list(maps)} does not divide into {list(wanted)}; use a size that divides it")
    size = tuple(n // k for n, k in zip(maps, wanted, strict=True))
    return call.c.pool(ops.AvgPool if average else ops.MaxPool, x, size, size, ((0, 0),) * len(size))


def _mean(call: Call) -> Tensor:
    x = call.tensor(0)
    return call.c.mean(x, call.integers(1) or range(len(x.shape)), bool(call.raw(2)))


def _sum(call: Call, sign: float = 1.0) -> Tensor:
    a, b = call.operand(0), call.operand(1)
    factor = sign * float(call.node.kwargs.get("alpha", 1))  # type: ignore[arg-type]
    if isinstance(b, Constant):
        return call.c.add(a, Constant(b.data * factor))
    return call.c.add(a, b if factor == 1 else call.c.multiply(b, Constant(np.array([factor], np.float32))))


def _div(call: Call) -> Tensor:
    divisor = call.constant(1).data.astype(np.float64)
    if not divisor.all() or call.node.kwargs.get("rounding_mode") is not None:
        raise ImportModelError("it divides by zero or rounds; divide by a constant")
    return call.c.multiply(call.operand(0), Constant(1 / divisor))


def _view(call: Call) -> Tensor:
    x, shape = call.tensor(0), list(call.integers(1))
    if shape.count(-1) == 1:
        shape[shape.index(-1)] = x.size // max(1, math.prod(n for n in shape if n != -1))
    return call.c.reshape(x, tuple(shape))


def _sized(call: Call) -> Tensor:
    """Squeezes, unsqueezes and the like: the shape is what PyTorch says it is."""
    return call.c.reshape(call.tensor(0), tuple(int(n) for n in call.node.meta["val"].shape))


def _expand(call: Call) -> Tensor:
    x = call.tensor(0)
    if tuple(call.node.meta["val"].shape) != x.shape:
        raise ImportModelError(f"{list(x.shape)} would be repeated; let the operator that reads it repeat it")
    return x


def _permute(call: Call) -> Tensor:
    x = call.tensor(0)
    return call.c.transpose(x, tuple(n % len(x.shape) for n in call.integers(1)))


def _cat(call: Call) -> Tensor:
    parts = [call.values[item] for item in call.raw(0)]
    return call.c.concat([p for p in parts if isinstance(p, Tensor | Constant)], int(call.number(1, 0)))


def _pad(call: Call) -> Tensor:
    x, pads = call.tensor(0), call.integers(1)
    if call.number(2, 0.0) != 0.0:
        raise ImportModelError(f"padding with {call.number(2, 0.0)} is not supported; pad with zeros")
    pairs = tuple(zip(pads[::2], pads[1::2], strict=True))
    return call.c.pad(x, ((0, 0),) * (len(x.shape) - len(pairs)) + tuple(reversed(pairs)))


def _softmax(call: Call) -> Tensor:
    return call.c.softmax(call.tensor(0), int(call.number(1, -1)))


def _clamp(call: Call) -> Tensor:
    return call.c.clip(call.tensor(0), call.number(1, -math.inf), call.number(2, math.inf))


def _pow(call: Call) -> Tensor:
    x = call.tensor(0)
    if call.number(1, 0) != 2:
        raise ImportModelError(f"the power {call.number(1, 0)} is not supported; squares are")
    return call.c.multiply(x, x)


def _getitem(call: Call) -> object:
    """The first of several results: the others are not computed."""
    if call.raw(1) != 0:
        raise ImportModelError("only the first result of an operator is supported; do not use the others")
    return call.values[call.raw(0)]


def _elu(call: Call) -> Op:
    alpha, scale = call.number(1, 1.0), call.number(2, 1.0)
    if call.number(3, 1.0) != 1.0:
        raise ImportModelError("an ELU that scales its input is not supported; use 1")
    return ops.Lookup("elu", alpha) if scale == 1.0 else ops.Lookup("selu", alpha, scale)


def _softplus(call: Call) -> Op:
    if call.number(1, 1.0) != 1.0:
        raise ImportModelError("a Softplus with a beta of its own is not supported; use 1")
    return ops.Lookup("softplus")


def _unary(op: Callable[[Call], Op]) -> Callable[[Call], Tensor]:
    return lambda call: call.c.unary(op(call), call.tensor(0))


def _named(name: str, alpha: float = 0.0, beta: float = 0.0) -> Callable[[Call], Tensor]:
    return _unary(lambda call: ops.Lookup(name, alpha, beta))


def _gelu(call: Call) -> Op:
    return ops.Lookup("gelu_tanh" if call.node.kwargs.get("approximate", call.raw(1)) == "tanh" else "gelu")


RULES: Mapping[str, Callable[[Call], object]] = {
    "_adaptive_avg_pool2d": _adaptive_pool, "_native_batch_norm_legit_no_training": _batch_norm,
    "_softmax": _softmax, "_to_copy": lambda call: call.tensor(0), "abs": _named("abs"),
    "adaptive_avg_pool1d": _adaptive_pool, "adaptive_max_pool2d": _adaptive_pool, "add": _sum, "addmm": _matrix,
    "alias": lambda call: call.tensor(0), "avg_pool1d": _pool, "avg_pool2d": _pool, "cat": _cat,
    "celu": _unary(lambda call: ops.Lookup("celu", call.number(1, 1.0))), "clamp": _clamp,
    "clone": lambda call: call.tensor(0), "constant_pad_nd": _pad, "convolution": _convolution, "div": _div,
    "elu": _unary(_elu), "erf": _named("erf"), "exp": _named("exp"), "expand": _expand, "gelu": _unary(_gelu),
    "getitem": _getitem, "hardsigmoid": _named("hard_sigmoid", 1 / 6, 0.5), "hardswish": _named("hard_swish"),
    "hardtanh": lambda call: call.c.clip(call.tensor(0), call.number(1, -1.0), call.number(2, 1.0)),
    "leaky_relu": _unary(lambda call: ops.Lookup("leaky_relu", call.number(1, 0.01))),
    "max_pool2d_with_indices": _pool, "mean": _mean, "mish": _named("mish"), "mm": _matrix,
    "mul": lambda call: call.c.multiply(call.operand(0), call.operand(1)),
    "neg": lambda call: call.c.negative(call.tensor(0)), "permute": _permute, "pow": _pow,
    "relu": _unary(lambda call: ops.Activate("relu")),
    "selu": _named("selu", 1.6732632423543772, 1.0507009873554805), "sigmoid": _named("sigmoid"),
    "silu": _named("silu"), "softplus": _unary(_softplus), "squeeze": _sized,
    "sub": lambda call: _sum(call, -1.0), "tanh": _named("tanh"), "unsqueeze": _sized, "view": _view,
}  # fmt: skip
