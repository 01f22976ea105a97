"""ONNX → Graph: [batch, channels, rows, columns] becomes channels last, with as few transposes as possible."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import onnx

from smidgen.data.files import MEMORY, Budget
from smidgen.errors import ImportModelError, UnsupportedOperatorError, further, located, nearest, refuse, with_others
from smidgen.frontends.channels import Constant
from smidgen.frontends.onnx.read.decode import NO_SHAPES, OnnxModel, OnnxOperator, OnnxTensor, Shapes, decode
from smidgen.frontends.onnx.read.layers import RECURRENT_RULES, SPELLED_RULES, OnnxCall, OnnxImport
from smidgen.frontends.onnx.read.operators import OPERATOR_RULES
from smidgen.frontends.onnx.read.passes import fold, input_quantization, join_normalizations, planned_quantizations
from smidgen.frontends.tidy import class_note, fewest_transposes, tidy
from smidgen.ir import Graph, QParams, Value
from smidgen.ir.types import identifier
from smidgen.ir.verifying import fits_scores

FLOAT, UINT8, INT8 = onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8, onnx.TensorProto.INT8
CONVERTS = ("Cast", "DequantizeLinear", "Identity", "QuantizeLinear")  # operators that keep the order of elements
# Operators through which the class that ArgMax chose may pass on its way to the output.
CARRY_A_CLASS = ("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
AGAIN = "; fix the model or export it again"
WEIGHTED = ("Conv", "Gemm", "MatMul")  # layers for which a first dimension is a batch
# What to use instead of unsupported operators that people do export.
INSTEAD = {
    "LRN": "use BatchNormalization",
    "QLinearConv": "quantize the model in QDQ format", "QLinearMatMul": "quantize the model in QDQ format",
    "RNN": "use LSTM or GRU", "ReduceSum": "use ReduceMean",
    "TopK": "end the model at its logits",
}  # fmt: skip


def read_onnx(path: Path, memory: int = MEMORY, shapes: Shapes = NO_SHAPES) -> Graph:
    """Read an `.onnx` file as a graph: float32, or int8 where the file quantizes (QDQ).

    `shapes` has sizes for inputs that the file leaves open, by name.
    """
    budget = Budget(memory)
    with located(path.name, "; fix the model before exporting it", AGAIN):
        model = join_normalizations(decode(path, budget, shapes))
        plan = planned_quantizations(model)
        last, own = (_graph(model, path.stem, plan, way, budget.copy()) for way in (True, False))
        graph = fewest_transposes(last, own, _images(model))
        return replace(graph, classes=model.classes) if fits_scores(model.classes, graph.scores.type) else graph


def _images(model: OnnxModel) -> bool:
    """Return whether an input is an image, channels first: the file does not transpose it at once."""
    reached = {value.name for value in model.inputs}
    for operator in model.operators:
        if operator.code in CONVERTS and operator.inputs[:1] and operator.inputs[0] in reached:
            reached |= set(operator.outputs)
        elif operator.code == "Transpose" and reached & set(operator.inputs):
            return False
    return any(len(value.shape) == 4 for value in model.inputs)


def _graph(model: OnnxModel, name: str, plan: Mapping[str, QParams], last: bool, budget: Budget) -> Graph:
    c = OnnxImport(model, identifier(name) or "model", plan, budget)
    learns = any(operator.code in WEIGHTED for operator in model.operators)
    sequences = {o.inputs[0] for o in model.operators if o.code in RECURRENT_RULES and o.inputs}
    for value in model.inputs:
        steps_first = len(value.shape) == 3 and value.shape[1] == 1 and value.name in sequences
        if learns and len(value.shape) > 1 and value.shape[0] != 1 and not steps_first:
            raise ImportModelError(
                f"input '{value.name}' is a batch of {value.shape[0]}, {list(value.shape)}; export it with a batch of 1"
            )
        if value.kind not in (FLOAT, INT8, UINT8):
            raise ImportModelError(f"input '{value.name}' is of ONNX type {value.kind}; export it with float32 inputs")
        q = None if value.kind == FLOAT else input_quantization(model, value.name)
        c.values[value.name] = c.input(value.name, value.shape, last, q)
    for number, operator in enumerate(model.operators):
        try:
            _node(c, operator)
        except ImportModelError as error:
            computed = {name for name, value in c.values.items() if not isinstance(value, Constant)}
            behind = ((o.code, o.inputs, o.outputs) for o in model.operators[number + 1 :])
            others = further(behind, computed | {*c.chosen, *operator.outputs}, {*OPERATOR_RULES, "If"})
            raise with_others(error, others) from None
    outputs = [_output(c, value) for value in model.outputs]
    graph = tidy(c.builder.graph(*(dict.fromkeys(outputs) if c.chosen else outputs)))
    return replace(graph, notes=(class_note("ArgMax", graph),)) if c.chosen else graph


def _output(c: OnnxImport, declared: OnnxTensor) -> Value:
    if declared.name in c.chosen:
        scores = c.chosen[declared.name]
        return c.view(c.in_order(c.real(scores)).value, scores.shape)
    x = c.operand(declared.name)
    if isinstance(x, Constant):
        raise ImportModelError(f"its output '{declared.name}' is a constant")
    return c.as_output(c.real(x) if declared.kind == FLOAT else x)


def _node(c: OnnxImport, operator: OnnxOperator) -> None:
    """Translate one operator; errors begin with its name."""
    where, code = f"node '{operator.name}' ({operator.code})", operator.code
    rule = SPELLED_RULES.get(code) or OPERATOR_RULES.get(code)
    c.output = next(filter(None, operator.outputs), "")
    if code == "If":
        _branch(c, operator, where)
        return
    with located(where, again=AGAIN):
        refuse(not c.output or c.output in c.values, "it has no output, or one that another node writes")
        if code in CARRY_A_CLASS and operator.inputs[:1] and operator.inputs[0] in c.chosen:
            c.chosen[c.output] = c.chosen[operator.inputs[0]]
            return
        ins = [c.operand(name) if name else None for name in operator.inputs]
        known = all(x is None or (isinstance(x, Constant) and x.steps is None) for x in ins)
        if ins and known and code != "DequantizeLinear":
            arrays = tuple(x.data if isinstance(x, Constant) else None for x in ins)
            c.values[c.output] = Constant(fold(operator, c.model.opset, arrays, c.budget))
            return
        if rule is not None:
            made = rule(OnnxCall(c, operator))
            parts = made if isinstance(made, tuple) else (made,)
            c.values.update(zip(operator.outputs, parts, strict=False))  # most operators give only their first output
            return
    raise UnsupportedOperatorError(where, code, INSTEAD.get(code) or nearest(code, OPERATOR_RULES, 0.5))


def _branch(c: OnnxImport, operator: OnnxOperator, where: str) -> None:
    """Translate the branch of an If whose condition is known while the file is read."""
    with located(where):
        condition = c.operand(operator.inputs[0]) if operator.inputs else None
        if not isinstance(condition, Constant) or condition.data.size != 1:
            raise ImportModelError(
                "its condition is computed from the input; export the model for one fixed input, without it"
            )
    branch = operator.branches[bool(condition.data.reshape(()))]
    c.values |= {name: Constant(data) for name, data in branch.constants.items()}
    for inner in branch.operators:
        _node(c, inner)
