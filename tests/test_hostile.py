"""A graph is refused in a sentence, or its C stays inside its buffers and computes numpy's bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hostile import spawn
from smidgen.errors import GraphError
from smidgen.ir.text import parse_graph, print_graph
from smidgen.ops.update import Step
from training_cases import TRAINING_GRAPHS

GRAPHS = 500  # `make hostile` runs many more; checks taken out of ops on trial were seen by the 369th, if at all
FIRST = 5_000_000


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
