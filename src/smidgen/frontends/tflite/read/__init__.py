"""TFLite → Graph: each operator becomes one node, reshapes aside; SAME and VALID become explicit padding.

Variables, tensors that outlive a run, are initialized by a subgraph that runs once, read and assigned later. They
become state of the graph. After an assignment a run reads the assigned value; the next run begins with the last.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from smidgen.data.files import MEMORY, Budget, read_whole
from smidgen.errors import CUT, ImportModelError, UnsupportedOperatorError, located, refuse, with_others
from smidgen.frontends.tflite.codec import decode
from smidgen.frontends.tflite.flatbuffer import CUSTOM, TfliteModel, TfliteOperator
from smidgen.frontends.tflite.metadata import stated_preprocessing
from smidgen.frontends.tflite.read.arithmetic import ARITHMETIC_RULES
from smidgen.frontends.tflite.read.context import TfliteImport, TfliteRule, Variable
from smidgen.frontends.tflite.read.layers import LAYER_RULES
from smidgen.frontends.tflite.read.moves import FOLDED_ONLY, MOVE_RULES, SEVERAL_OUTPUTS, fold
from smidgen.frontends.tflite.read.unsigned import as_signed
from smidgen.frontends.tidy import cancel_transposes, class_note
from smidgen.ir import Graph, QParams, Type, Value
from smidgen.ir.types import identifier
from smidgen.ir.verifying import fits_scores
from smidgen.ops import Assign
from smidgen.ops.fusion import keep_last_states, merge_pads
from smidgen.ops.lstm import Lstm

AGAIN = "; fix the model or convert it again"
# What to use instead of unsupported operators that people do convert.
INSTEAD = {"SVDF": "convert the model before its layers became SVDF, or use a convolution over time or an LSTM"}
# Operators through which the class that ARG_MAX chose may pass on its way to the output.
CARRY_A_CLASS = ("CAST", "EXPAND_DIMS", "RESHAPE", "SQUEEZE")
SILENT = frozenset({"ASSIGN_VARIABLE", "CALL_ONCE"})  # operators without outputs


def read_tflite(path: Path, memory: int = MEMORY) -> Graph:
    """Read the model in a `.tflite` file as a graph."""
    data = read_whole(path, memory)
    with located(path.name, "; fix the model before converting it", AGAIN):
        return _graph(decode(data), identifier(path.stem) or "model", Budget(memory))


def _graph(model: TfliteModel, name: str, budget: Budget) -> Graph:
    if any(operator.code == "WHILE" for operator in model.operators):
        raise ImportModelError(
            "it has a loop (WHILE), as recurrent layers in Keras become; for one LSTM operator convert a saved model "
            "with a batch of 1 and a fixed length, for a GRU give the layer unroll=True"
        )
    model, notes = as_signed(model)
    c, reached = TfliteImport(model, name, budget), 0
    try:
        begin_variables(c)
        for index in model.inputs:
            again = index in c.values or c.tensor(index).data is not None
            refuse(again, f"input '{c.tensor(index).name}' is listed twice or is a constant")
            c.values[index] = c.builder.input(c.name(index), c.type(index))
        for number, operator in enumerate(model.operators):
            reached = number + 1
            _node(c, number, operator)
        assign_variables(c)
    except ImportModelError as error:
        known = FOLDED_ONLY.union(OPERATOR_RULES)
        others = Counter(o.code for o in model.operators[reached:] if o.code not in known)
        raise with_others(error, others) from None
    outputs = [c.chosen.get(index) or c.value(index) for index in model.outputs]
    graph = c.builder.graph(*(dict.fromkeys(outputs) if c.chosen else outputs))
    for one in FEWER:
        graph = one(graph)
    classes = model.classes if fits_scores(model.classes, graph.scores.type) else ()
    image, stated = graph.inputs[0].type if graph.inputs else None, None
    if image is not None and image.dtype == "float32" and len(image.shape) == 4:  # the scale of an int8 image states it
        stated = stated_preprocessing(model.metadata, image.shape[3])
    return replace(graph, preprocessing=stated, classes=classes, notes=(*notes, *_notes(c, graph)))


def _notes(c: TfliteImport, graph: Graph) -> Iterator[str]:
    """Describe a class that is not chosen, weights that became float32, and layers whose state TFLite keeps."""
    if c.chosen:
        yield class_note("ARG_MAX", graph)
    if c.widened:
        yield f"the weights of {len(c.widened)} layers are int8 and were read as float32, as their inputs are: quantize"
    count = sum(isinstance(node.op, Lstm) for node in graph.nodes)
    if count:
        layers = "the LSTM layer" if count == 1 else f"all {count} LSTM layers"
        yield f"the state of {layers} begins at zero in every run, as after LiteRT's reset_all_variables"


def _node(c: TfliteImport, number: int, operator: TfliteOperator) -> None:
    """Translate one operator and compare the result with what the file declares."""
    where = f"operator {number} ({operator.code})"
    if operator.code.startswith(CUSTOM):
        raise UnsupportedOperatorError(where, operator.code, "its code is not in the file, cut the model before it")
    if operator.code not in OPERATOR_RULES and operator.code not in FOLDED_ONLY:
        raise UnsupportedOperatorError(where, operator.code, INSTEAD.get(operator.code, CUT))
    count, expected = len(operator.outputs), "none" if operator.code in SILENT else "one"
    if count != (operator.code not in SILENT) and (operator.code not in SEVERAL_OUTPUTS or not count):
        raise ImportModelError(f"{where} has {count} outputs instead of {expected}")
    with located(where):
        where += "".join(f" of '{c.tensor(out).name}'" for out in operator.outputs[:1])
    with located(where, again=AGAIN):
        if any(out in c.values or c.tensor(out).data is not None for out in operator.outputs):
            raise ImportModelError("it writes a tensor that has a value already")
        if operator.code in CARRY_A_CLASS and operator.inputs[:1] and operator.inputs[0] in c.chosen:
            c.chosen[operator.outputs[0]] = c.chosen[operator.inputs[0]]
            return
        constant = fold(c, operator)
        if constant is not None:
            c.folded[operator.outputs[0]] = constant
            return
        if operator.code not in OPERATOR_RULES:
            raise ImportModelError("it is supported only where all it reads is constant; convert with fixed shapes")
        made = OPERATOR_RULES[operator.code](c, operator)
        for out, value in zip(operator.outputs, made if isinstance(made, tuple) else (made,), strict=True):
            if value is not None:  # else it is folded into the operator that reads it
                _check(c, value, out)
                c.values[out] = value


def _check(c: TfliteImport, value: Value, out: int) -> None:
    """Raise unless the operator gives the declared type and its scales fit the arithmetic."""
    declared = Type(value.type.shape, c.tensor(out).dtype, c.q(out)) if c.is_open(out) else c.type(out)
    if value.type != declared:
        raise ImportModelError(
            f"the file declares {_describe(declared)}, the operator gives {_describe(value.type)}; "
            "convert the model again, with one quantization on both sides of an operator that only moves data"
        )
    if value.type.dtype == "int8" and value not in c.values.values():  # else an earlier node made it
        c.builder.last.op.params(c.builder.last)


def _describe(type_: Type) -> str:
    q, what = type_.q, f"{type_.dtype}{list(type_.shape)}"
    if q is None:
        return what
    return f"{what} × {q.scale[0]:.6g} from {q.zero}" if len(q.scale) == 1 else f"{what} × {len(q.scale)} scales"


def begin_variables(c: TfliteImport) -> None:
    """Record the first value of each variable, which the subgraphs that run once assign."""
    called = [o.options.init_subgraph_index for o in c.model.operators if o.code == "CALL_ONCE"]
    if set(called) != set(range(1, len(c.model.others) + 1)):
        raise ImportModelError(
            f"the model has {len(c.model.others) + 1} subgraphs, one is supported and those that CALL_ONCE runs to "
            "begin its variables; convert it without control flow"
        )
    for index in sorted(set(called)):
        once = TfliteImport(as_signed(c.model.others[index - 1])[0], "once", c.budget)
        for operator in once.model.operators:
            if operator.code == "VAR_HANDLE":
                _handle(once, operator)
                continue
            code = operator.code
            refuse(code != "ASSIGN_VARIABLE", f"CALL_ONCE runs {code}; begin variables with constants")
            handle, value = operator.reads(2, 2)
            c.first[_variable(once, handle)] = once.data(value)


def _handle(c: TfliteImport, operator: TfliteOperator) -> None:
    operator.reads(0, 0)
    refuse(len(operator.outputs) != 1, f"VAR_HANDLE has {len(operator.outputs)} outputs instead of 1")
    (out,) = operator.outputs
    c.handles[out] = operator.options.container, operator.options.shared_name


def _variable(c: TfliteImport, index: int) -> Variable:
    refuse(index not in c.handles, f"tensor '{c.tensor(index).name}' is not a variable")
    return c.handles[index]


def _read(c: TfliteImport, operator: TfliteOperator) -> None:
    """Read a variable's current value, which needs no node."""
    (handle,), (out,) = operator.reads(1, 1), operator.outputs
    variable, type_ = _variable(c, handle), c.type(out)
    value = c.assigned.get(variable) or c.begun.get(variable) or _begun(c, variable, type_.q)
    if value.type != type_:
        raise ImportModelError(
            f"the variable '{variable[1][:80]}' holds {value.type.dtype}{list(value.type.shape)}, the file declares "
            f"{type_.dtype}{list(type_.shape)} or another quantization"
        )
    c.values[out] = value


def _begun(c: TfliteImport, variable: Variable, q: QParams | None) -> Value:
    """Return a variable with its first value."""
    if variable not in c.first:
        raise ImportModelError(f"nothing gives the variable '{variable[1][:80]}' its first value; initialize it")
    name = c.free(identifier(variable[1]) or "variable")
    value = c.builder.persistent(name, c.first[variable], q)
    c.begun[variable] = value
    return value


def _assign(c: TfliteImport, operator: TfliteOperator) -> tuple[()]:
    handle, value = operator.reads(2, 2)
    c.assigned[_variable(c, handle)] = c.value(value)
    return ()


def assign_variables(c: TfliteImport) -> None:
    """Replace each variable that a run reads by the value assigned last; variables nobody reads are dropped."""
    waiting = {old: c.assigned[v] for v, old in c.begun.items() if c.assigned.get(v, old) != old}
    while waiting:
        # A variable whose old value replaces another one has to wait for that.
        ready = [old for old in waiting if old not in waiting.values()]
        refuse(not ready, f"the variables {', '.join(v.name for v in waiting)} take each other's places")
        after = c.builder.emit(Assign(), ready[0], waiting.pop(ready[0]), name=c.free(f"{ready[0].name}.after"))
        c.builder.update(ready[:1], (after,))


def assign_early(graph: Graph) -> Graph:
    """Replace variables as soon as their next value exists and nothing reads the old one any more."""
    order, old_of = list(graph.nodes), {new: old for old, new in graph.updates.items()}
    for node in (node for node in graph.nodes if isinstance(node.op, Assign)):
        order.remove(node)
        reads = (
            i
            for i, other in enumerate(order)
            if not {*node.ins}.isdisjoint(other.outs) or old_of[node.out] in other.ins
        )
        order.insert(max(reads, default=-1) + 1, node)
    return replace(graph, nodes=tuple(order))


OPERATOR_RULES: Mapping[str, TfliteRule] = {
    **ARITHMETIC_RULES, **LAYER_RULES, **MOVE_RULES, "ASSIGN_VARIABLE": _assign,
    "CALL_ONCE": lambda c, operator: (), "READ_VARIABLE": _read, "VAR_HANDLE": _handle,
}  # fmt: skip
# Passes that need fewer nodes and less memory than the file, without another byte.
FEWER: tuple[Callable[[Graph], Graph], ...] = (merge_pads, cancel_transposes, keep_last_states, assign_early)
