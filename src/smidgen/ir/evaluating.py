"""Running a graph in numpy: the reference that everything else equals."""

from collections.abc import Mapping

import numpy as np

from smidgen.errors import InputError
from smidgen.ir.graph import Graph, Value
from smidgen.ir.types import DTYPES, Array


def check_inputs(graph: Graph, arrays: tuple[Array, ...], inputs: tuple[Value, ...] | None = None) -> None:
    """Raise InputError unless the arrays fit the graph's inputs, or those of them that are named."""
    inputs = graph.inputs if inputs is None else inputs
    if len(arrays) != len(inputs):
        raise InputError(f"{graph.name} takes {len(inputs)} input tensors, {len(arrays)} were given")
    for value, array in zip(inputs, arrays, strict=True):
        wanted = f"input %{value.name} of {graph.name} is {value.type.dtype}{list(value.type.shape)}"
        if not isinstance(array, np.ndarray):
            raise InputError(f"{wanted}, given was a {type(array).__name__}; give a numpy array of that type")
        if array.shape != value.type.shape or array.dtype != DTYPES[value.type.dtype]:
            raise InputError(f"{wanted}, the tensor given is {array.dtype}{list(array.shape)}{_advice(value, array)}")
        if value.type.dtype == "int8" and value.type.q is None and (array == -128).any():
            raise InputError(f"input %{value.name} of {graph.name} is a gradient, within ±127, but holds −128")


def _advice(value: Value, array: Array) -> str:
    """Return how real numbers become an int8 input."""
    if value.type.dtype != "int8" or value.type.q is None or array.dtype.kind != "f":
        return ""
    scaled = f"x / {value.type.scale:.9g} + {value.type.zero}"
    return f"; quantize it: np.clip(np.rint({scaled}), -128, 127).astype(np.int8)"


def evaluate(graph: Graph, *arrays: Array) -> tuple[Array, ...]:
    """Run the graph in numpy from its initial state: the definition of what it computes."""
    values = evaluate_all(graph, graph.state, *arrays)
    return tuple(values[v] for v in graph.outputs)


def evaluate_step(
    graph: Graph, state: Mapping[Value, Array], *arrays: Array
) -> tuple[tuple[Array, ...], dict[Value, Array]]:
    """Run the graph from `state`; returns its outputs and the state after.

    A training step that skips this sample only carries its variables on, as a prediction does.
    """
    values, roles = evaluate_all(graph, state, *arrays), graph.roles
    skips = roles is not None and roles.skips(values[roles.loss][0])
    replaced = graph.variables if skips else graph.updates
    after = {v: values[graph.updates[v] if v in replaced else v] for v in graph.state}
    return tuple(values[v] for v in graph.outputs), after


def evaluate_all(graph: Graph, state: Mapping[Value, Array], *arrays: Array) -> dict[Value, Array]:
    """Return every value of one run."""
    check_inputs(graph, arrays)
    values: dict[Value, Array] = dict(zip(graph.inputs, arrays, strict=True)) | dict(graph.constants) | dict(state)
    for node in graph.nodes:
        outs = node.op.ref(node, *(values[v] for v in node.ins))
        values.update(zip(node.outs, outs if isinstance(outs, tuple) else (outs,), strict=True))
    return values
