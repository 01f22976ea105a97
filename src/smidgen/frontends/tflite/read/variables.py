"""TFLite's variables: tensors that outlive a run, initialized by a subgraph that runs once, read and assigned later.

They become state of the graph. After an assignment a run reads the assigned value; the next run begins with the last.
"""

from collections.abc import Mapping
from dataclasses import replace

from smidgen.errors import ImportModelError
from smidgen.frontends.tflite.flatbuffer import TfliteModel, TfliteOperator
from smidgen.frontends.tflite.read.context import TfliteImport, TfliteRule, Variable
from smidgen.frontends.tflite.read.unsigned import as_signed
from smidgen.ir import Graph, QParams, Value
from smidgen.ir.types import identifier
from smidgen.ops import Assign

SILENT = frozenset({"ASSIGN_VARIABLE", "CALL_ONCE"})  # operators without outputs


def begin_variables(c: TfliteImport) -> None:
    """Record the first value of each variable, which the subgraphs that run once assign."""
    called = [o.options.init_subgraph_index for o in c.model.operators if o.code == "CALL_ONCE"]
    if set(called) != set(range(1, len(c.model.others) + 1)):
        raise ImportModelError(
            f"the model has {len(c.model.others) + 1} subgraphs, one is supported and those that CALL_ONCE runs to "
            "begin its variables; convert it without control flow"
        )
    for index in sorted(set(called)):
        _run_once(c, as_signed(c.model.others[index - 1])[0])


def _run_once(c: TfliteImport, model: TfliteModel) -> None:
    once = TfliteImport(model, "once", c.budget)
    for operator in model.operators:
        if operator.code == "VAR_HANDLE":
            _handle(once, operator)
        elif operator.code == "ASSIGN_VARIABLE":
            handle, value = operator.reads(2, 2)
            c.variables.first[_variable(once, handle)] = once.data(value)
        else:
            raise ImportModelError(f"CALL_ONCE runs {operator.code}; begin variables with constants")


def _handle(c: TfliteImport, operator: TfliteOperator) -> None:
    operator.reads(0, 0)
    if len(operator.outputs) != 1:
        raise ImportModelError(f"VAR_HANDLE has {len(operator.outputs)} outputs instead of 1; convert the model again")
    (out,) = operator.outputs
    c.variables.handles[out] = operator.options.container, operator.options.shared_name


def _variable(c: TfliteImport, index: int) -> Variable:
    if index not in c.variables.handles:
        raise ImportModelError(f"tensor '{c.tensor(index).name}' is not a variable; convert the model again")
    return c.variables.handles[index]


def _read(c: TfliteImport, operator: TfliteOperator) -> None:
    """Read a variable's current value, which needs no node."""
    (handle,), (out,) = operator.reads(1, 1), operator.outputs
    variable, type_ = _variable(c, handle), c.type(out)
    value = c.variables.assigned.get(variable) or c.variables.read.get(variable) or _begun(c, variable, type_.q)
    if value.type != type_:
        raise ImportModelError(
            f"the variable '{variable[1][:80]}' holds {value.type.dtype}{list(value.type.shape)}, the file declares "
            f"{type_.dtype}{list(type_.shape)} or another quantization; convert the model again"
        )
    c.values[out] = value


def _begun(c: TfliteImport, variable: Variable, q: QParams | None) -> Value:
    """Return a variable with its first value."""
    if variable not in c.variables.first:
        raise ImportModelError(f"nothing gives the variable '{variable[1][:80]}' its first value; initialize it")
    name = c.free(identifier(variable[1]) or "variable")
    value = c.builder.persistent(name, c.variables.first[variable], q)
    c.variables.read[variable] = value
    return value


def _assign(c: TfliteImport, operator: TfliteOperator) -> tuple[()]:
    handle, value = operator.reads(2, 2)
    c.variables.assigned[_variable(c, handle)] = c.value(value)
    return ()


VARIABLE_RULES: Mapping[str, TfliteRule] = {
    "ASSIGN_VARIABLE": _assign, "CALL_ONCE": lambda c, operator: (), "READ_VARIABLE": _read, "VAR_HANDLE": _handle,
}  # fmt: skip


def assign_variables(c: TfliteImport) -> None:
    """Replace each variable that a run reads by the value assigned last; variables nobody reads are dropped."""
    known = c.variables
    waiting = {old: known.assigned[v] for v, old in known.read.items() if known.assigned.get(v, old) != old}
    while waiting:
        # A variable whose old value replaces another one has to wait for that.
        ready = [old for old in waiting if old not in waiting.values()]
        if not ready:
            raise ImportModelError(f"the variables {', '.join(v.name for v in waiting)} take each other's places")
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
