"""Cases of what only learning calls of recurrent layers: slopes that are kept, and gradients back through time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from smidgen import ops
from smidgen.ir import Op
from tests.support.recurrent_cases import DRAWN
from tests.support.training_inputs import TrainingCase, activation, case, gradient, gradients

EveryWay = Callable[..., Iterator[TrainingCase]]  # a gradient op with and without masks and factors


def recurrent_steps(every_way: EveryWay) -> Iterator[TrainingCase]:
    for steps, inputs, cells in ((1, 1, 1), (5, 7, 4), (3, 130, 9)):
        shapes = (1, steps, 6 * cells), (4, cells, inputs), (4, cells, cells)
        held = [activation(*shape, zero=0) for shape in shapes]
        name = f"lstm-grad-{steps}-{inputs}-{cells}"
        yield from every_way(name, ops.LstmGrad(), gradient(1, steps, cells), *held)
        yield gradients(f"{name}-last", ops.LstmGrad(bits=6), gradient(1, cells), *held)
        shapes = (1, steps, 5 * cells), (3, cells, inputs), (3, cells, cells)
        held = [activation(*shape, zero=0) for shape in shapes]
        name = f"gru-grad-{steps}-{inputs}-{cells}"
        yield from every_way(name, ops.GruGrad(), gradient(1, steps, cells), *held)
        yield gradients(f"{name}-last", ops.GruGrad(), gradient(1, cells), *held)
    for name, drawn in DRAWN.items():
        op: Op = ops.GruSlopes(drawn.y.one, drawn.y.zero)
        if isinstance(drawn.op, ops.Lstm):
            op = ops.LstmSlopes(drawn.op.clip, drawn.op.bits, drawn.y.one, drawn.y.zero)
        if isinstance(drawn.op, ops.Lstm) or drawn.op.reset_after:
            yield case(f"slopes-{name}", type(op), (activation(1, drawn.steps, drawn.inputs),), drawn.beside(op))
