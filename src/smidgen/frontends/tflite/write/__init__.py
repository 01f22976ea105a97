"""Graph → TFLite: each node becomes one operator, or a few where TFLite has none of that kind.

Variables are read before anything else, assigned where the graph does, and given their first value by a subgraph that
runs once.
"""

from smidgen.errors import ExportError, GraphError
from smidgen.frontends.blocks import where
from smidgen.frontends.tflite.codec import encode
from smidgen.frontends.tflite.flatbuffer import TfliteModel, TfliteOperator, TfliteOptions, TfliteTensor
from smidgen.frontends.tflite.metadata import class_metadata
from smidgen.frontends.tflite.write.operators import LOWERINGS, Lowering, tensor_of
from smidgen.ir import Graph, Node, Value, verify
from smidgen.ops import Assign
from smidgen.ops.project import as_dense

INITIAL = 1  # the subgraph that gives variables their first value


def write_tflite(graph: Graph) -> bytes:
    """Return the bytes of a `.tflite` file, on which LiteRT's reference kernels give the same results."""
    verify(graph)
    learning = len(graph.updates) - len(graph.variables)
    if learning:
        raise ExportError(f"{graph.name} trains {learning} values, TFLite only infers; export the learned model")
    return encode(_model(as_dense(graph)))


def _model(graph: Graph) -> TfliteModel:
    file = Lowering(graph)
    inputs = tuple(file.place(value) for value in graph.inputs)
    handles = _read_variables(file)
    for node in graph.nodes:
        if isinstance(node.op, Assign):
            variable, value = node.ins
            file.places[node.out] = file.place(value)
            operator = TfliteOperator("ASSIGN_VARIABLE", (handles[variable], file.places[node.out]), ())
            file.operators.append(operator)
        elif type(node.op) in LOWERINGS:
            _check_scales(node)
            LOWERINGS[type(node.op)](file, node, node.op)
        else:
            known = ", ".join(sorted(op.__name__ for op in LOWERINGS))
            raise ExportError(f"{where(node)}: TFLite has no such operator, only {known}; others go to .onnx or .smg")
    outputs = tuple(file.place(value) for value in graph.outputs)
    metadata = class_metadata(graph.name) if graph.classes else b""
    tensors, operators = tuple(file.tensors), tuple(file.operators)
    return TfliteModel(tensors, operators, inputs, outputs, graph.name, metadata, graph.classes, _initial(graph))


def _read_variables(file: Lowering) -> dict[Value, int]:
    """Append the operators that read every variable, and return the tensor that stands for each."""
    handles: dict[Value, int] = {}
    places = [file.place(variable) for variable in file.graph.variables]
    if places:
        file.operators.append(TfliteOperator("CALL_ONCE", (), (), TfliteOptions(init_subgraph_index=INITIAL)))
    for variable, place in zip(file.graph.variables, places, strict=True):
        at = handles[variable] = file.append(_handle(variable))
        file.operators += [_handle_of(variable, at), TfliteOperator("READ_VARIABLE", (at,), (place,))]
    return handles


def _initial(graph: Graph) -> tuple[TfliteModel, ...]:
    """Return the subgraph that runs once and gives every variable its first value."""
    tensors, operators = list[TfliteTensor](), list[TfliteOperator]()
    for variable in graph.variables:
        at = len(tensors)
        tensors += [_handle(variable), tensor_of(variable, graph.state[variable])]
        operators += [_handle_of(variable, at), TfliteOperator("ASSIGN_VARIABLE", (at, at + 1), ())]
    return (TfliteModel(tuple(tensors), tuple(operators), (), (), "initial"),) if tensors else ()


def _handle(variable: Value) -> TfliteTensor:
    return TfliteTensor(f"{variable.name}.handle", (), "resource")


def _handle_of(variable: Value, tensor: int) -> TfliteOperator:
    return TfliteOperator("VAR_HANDLE", (), (tensor,), TfliteOptions(shared_name=variable.name))


def _check_scales(node: Node) -> None:
    """Raise if the scales are beyond the arithmetic, both ours and TFLite's."""
    try:
        if node.out.type.dtype == "int8":
            node.op.params(node)
    except GraphError as error:
        raise ExportError(f"{where(node)}: {error}") from None
