"""A graph is refused in a sentence, or its C stays inside its buffers and computes numpy's bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from smidgen.errors import GraphError
from smidgen.ir.text import parse_graph, print_graph
from smidgen.ops.update import Step
from tests.support.hostile_graphs import spawn
from tests.support.native import Kernels
from tests.support.sanitized import Memory, Run
from tests.support.tiers import examples
from tests.support.training_cases import TRAINING_GRAPHS

GRAPHS = examples(
    500, quick=20
)  # `make hostile` runs many more; checks taken out of ops on trial were seen by the 369th, if at all
FIRST = 5_000_000


@pytest.mark.sampled
@pytest.mark.skipif(shutil.which("cc") is None, reason="the sanitizers come with the machine's own compiler")
def test_mutated_training_graphs_are_refused_or_run_inside_their_buffers_as_in_numpy(cache: Path) -> None:
    counts, failed = spawn(FIRST, GRAPHS, cache)
    assert failed == []
    assert sum(counts.values()) == GRAPHS
    assert counts["run"] >= GRAPHS / 5


@pytest.mark.parametrize("slot", [-1, 1, 400_000_000, 2**31])
def test_a_step_whose_exponent_the_step_state_does_not_hold_is_refused(slot: int) -> None:
    steps = [g for g in TRAINING_GRAPHS.values() if isinstance(g.nodes[0].op, Step)]
    for graph in steps:
        text = print_graph(graph).replace(" slot=0", f" slot={slot}")
        with pytest.raises(GraphError, match=f"reads exponent {slot} of a step state that holds 1"):
            parse_graph(text, {**graph.constants, **graph.state})
    assert len(steps) > 10


ONE_WEIGHT = """graph one
input %sums: int32[1,1]
input %r: int32[2]
input %s: int32[3]
state %w: int8[1,1] q(1; 0)
state %f: uint8[1]
%v: int8[1,1] q(1; 0), %g: uint8[1] = WeightStep(%w, %f, %sums, %r, %s) factors=(1.0,) slot=0 stream=0 bound=9 bits=BITS
update %w: %v
update %f: %g
output %v, %g
"""


@pytest.mark.parametrize(("bits", "used"), [(10, 0x03), (12, 0x0F)])
def test_bits_of_a_fraction_that_are_no_weights_stay_as_they_were(bits: int, used: int, kernels: Kernels) -> None:
    held = {"w": np.zeros((1, 1), np.int8), "f": np.array([0xFF], np.uint8)}
    graph = parse_graph(ONE_WEIGHT.replace("BITS", str(bits)), held)
    arrays = (np.array([[9]], np.int32), np.array([2**30, 30], np.int32), np.zeros(3, np.int32))
    with Memory() as memory:
        run = Run(kernels, memory, graph, arrays)
        run.all()  # compares what C makes of it
    (after,) = run.expected[graph.outputs[1]].tolist()
    assert after & ~used == 0xFF & ~used
    assert after & used != used
