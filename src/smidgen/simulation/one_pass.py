"""One pass in a fleet: every device observes the images and makes its head of the sums, the bytes that C makes.

Before the first step all lanes hold the frozen network, so what the fleet's forward pass makes of an image are the
features that each device would observe. Sums are whole numbers and know no order; numpy adds them up and solves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from smidgen.ir import Array, Graph, Value, evaluate_step, roles_of
from smidgen.ir.rewriting import producers
from smidgen.numerics.one_pass import Sums, total
from smidgen.simulation.layout import in_parts
from smidgen.targets.device import check_code, collected, one_pass_of, sums_in, with_sums
from smidgen.training.one_pass import features_fingerprint

if TYPE_CHECKING:
    from smidgen.simulation.running import Simulation

AT_ONCE = 256  # images whose features are computed together


@dataclass(frozen=True, eq=False)
class Phase:
    """The state that one pass adds to a device: what it has observed, and the limit of distances that this gave."""

    collecting: bool  # no step was made yet
    sums: Sums
    limit: Array

    @staticmethod
    def first(graph: Graph) -> Phase:
        """The phase in which a program begins."""
        return Phase.of(graph, {v.name: graph.state[v] for v in collected(graph)})

    @staticmethod
    def of(graph: Graph, state: Mapping[str, Array]) -> Phase:
        """The phase of a program's state."""
        parts = one_pass_of(graph)
        collecting = bool(state[parts.phase.name][0])
        empty = Sums.empty(*parts.sums[1].type.shape)
        return Phase(collecting, sums_in(graph, state) if collecting else empty, state["limit"])

    def added(self, graph: Graph) -> dict[Value, Array]:
        """Return this part of a program's state; without the sums once steps have taken their place."""
        parts = one_pass_of(graph)
        held = dict(zip(parts.sums, (self.sums.n, self.sums.m, self.sums.g), strict=True)) if self.collecting else {}
        limit = next(v for v in parts.lasting if v.name == "limit")
        return {**held, limit: self.limit, parts.phase: np.array([self.collecting], np.int32)}


def features_of(graph: Graph) -> Value:
    """Return what the float32 head of a step reads, in int8."""
    made_by = producers(graph)
    return made_by[made_by[roles_of(graph).logits].ins[0]].ins[0]


def solved(graph: Graph, state: Mapping[str, Array]) -> dict[str, Array]:
    """Return a state whose head was made of its sums; InputError where there are none."""
    solve = one_pass_of(graph).solve
    (code,), after = evaluate_step(solve, {v: state[v.name] for v in solve.state})
    check_code(graph, int(code[0]))
    return {**state, **{v.name: array for v, array in after.items()}}


def teach(fleet: Simulation, images: Tensor, labels: Sequence[int]) -> None:
    """Let every device that learns in one pass observe all images and solve; the others stay as they are."""
    known, given = dict[tuple[str, int], Sums](), np.array(labels)
    for number, graph in enumerate(fleet.merged.graphs):
        if graph.one_pass is None:
            continue
        classes = graph.one_pass.sums[1].type.shape[0]
        key = features_fingerprint(graph), classes
        if key not in known:
            rows = [fleet.features(part, number) for part in in_parts(images, AT_ONCE)]
            known[key] = total(np.concatenate(rows), given, classes)
        fleet.restore(number, solved(graph, with_sums(graph, fleet.state(number), known[key])))
