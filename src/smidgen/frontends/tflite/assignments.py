"""Variables of a graph as TFLite has them: read first of all, assigned, and begun by a subgraph of their own."""

from __future__ import annotations

from collections.abc import Sequence

from smidgen.frontends.tflite.flatbuffer import TfliteModel, TfliteOperator, TfliteOptions, TfliteTensor
from smidgen.ir import Node, Value

INITIAL = 1  # the subgraph that begins variables


class Keeping:
    """The variables of a file in the making."""

    def __init__(self, variables: Sequence[Value]) -> None:
        self.variables, self.handles = tuple(variables), dict[Value, int]()

    def read(self, tensors: list[TfliteTensor], places: dict[Value, int]) -> list[TfliteOperator]:
        """The operators that come first; what they read has its place among the tensors, without data."""
        if not self.variables:
            return []
        made = [TfliteOperator("CALL_ONCE", (), (), TfliteOptions(init_subgraph_index=INITIAL))]
        for variable in self.variables:
            self.handles[variable] = len(tensors)
            tensors.append(_handle(variable))
            made.append(_handle_of(variable, self.handles[variable]))
            made.append(TfliteOperator("READ_VARIABLE", (self.handles[variable],), (places[variable],)))
        return made

    def assign(self, node: Node, x: int) -> TfliteOperator:
        """What replaces a variable, from a tensor."""
        return TfliteOperator("ASSIGN_VARIABLE", (self.handles[node.ins[0]], x), ())

    def initial(self, first: Sequence[TfliteTensor]) -> tuple[TfliteModel, ...]:
        """The subgraph that runs once and gives every variable its first value."""
        if not self.variables:
            return ()
        tensors, operators = list[TfliteTensor](), list[TfliteOperator]()
        for variable, tensor in zip(self.variables, first, strict=True):
            at = len(tensors)
            tensors += [_handle(variable), tensor]
            operators += [_handle_of(variable, at), TfliteOperator("ASSIGN_VARIABLE", (at, at + 1), ())]
        return (TfliteModel(tuple(tensors), tuple(operators), (), (), "initial"),)


def _handle(variable: Value) -> TfliteTensor:
    return TfliteTensor(f"{variable.name}.handle", (), "resource")


def _handle_of(variable: Value, tensor: int) -> TfliteOperator:
    return TfliteOperator("VAR_HANDLE", (), (tensor,), TfliteOptions(shared_name=variable.name))
