"""What a group would hold, told from a longer one: the very bytes of the group itself."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.chains import chain, residual_network
from smidgen.ir import Builder, Graph, QParams, Type
from smidgen.memory import buffers, streaming
from smidgen.memory.layout import loads
from smidgen.memory.rows import Schedule
from smidgen.memory.streaming import Groups, stream
from smidgen.ops import MaxPool, Mul
from smidgen.training import Options, build_training, passes
from smidgen.training.scheme import load_scheme
from tests.support.graphs import int8_graphs
from tests.support.map_graphs import map_graphs
from tests.support.native import portable
from tests.support.networks import CLASSES, NETWORKS
from tests.support.tiers import examples


def compare(graph: Graph, streamed_input: bool) -> tuple[int, int]:
    """Hold every estimate against the group it is of; the groups, and those with maps in each other's place."""
    groups = Groups(graph, streamed_input, portable)
    count = overlapping = 0
    for end in groups.cuts[1:]:
        estimates = {estimate.first: estimate for estimate in groups.estimates(end)}
        before = 0
        for first in (cut for cut in reversed(groups.cuts) if cut < end):
            group = stream(graph, first, end, streamed_input)
            assert (group is None) == (first not in estimates)
            if group is None:
                continue
            alive = dict(loads(buffers(graph, Schedule((group,), streamed_input), working=portable)))[first]
            estimate = estimates[first]
            assert estimate.alive - estimate.shared == alive
            assert estimate.rings >= before, "a longer group never holds less in rings"
            assert estimate.rings <= estimate.alive
            before = estimate.rings
            count += 1
            overlapping += estimate.shared > 0
    return count, overlapping


@pytest.mark.sampled
def test_estimates_of_random_graphs_are_the_bytes_of_their_groups() -> None:
    counts = [0, 0]

    @settings(max_examples=examples(300), suppress_health_check=list(HealthCheck))
    @given(st.one_of(int8_graphs(max_nodes=10), map_graphs()), st.booleans())
    def agree(graph: Graph, streamed_input: bool) -> None:
        for index, count in enumerate(compare(graph, streamed_input)):
            counts[index] += count

    agree()
    assert counts[0] > examples(1000)
    assert counts[1] > examples(300)


def test_no_group_is_estimated_that_makes_what_one_of_its_nodes_must_have_whole() -> None:
    g, q = Builder("gated"), QParams.per_tensor(0.1)
    gate = g.emit(MaxPool((6, 6), (6, 6)), g.input("x", Type((1, 6, 6, 2), "int8", q)))
    table = g.constant("table", np.ones((1, 6, 6, 2), np.int8), q)
    graph = g.graph(g.emit(Mul(), table, gate, q=q))
    assert compare(graph, streamed_input=False)[0] == 2
    estimated = {(e.first, e.end) for end in (1, 2) for e in Groups(graph, False, portable).estimates(end)}
    assert estimated == {(0, 1), (1, 2)}


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
@pytest.mark.parametrize("streamed_input", [False, True])
def test_estimates_of_networks_that_learn_are_the_bytes_of_their_groups(
    network: Callable[[int], Graph], streamed_input: bool
) -> None:
    graph = network(5)
    step = passes.run(build_training(graph, load_scheme("last:1", graph), Options(CLASSES)).step)
    assert compare(step, streamed_input)[0] > 0
    assert compare(graph, streamed_input)[0] > 0


@pytest.mark.parametrize("streamed_input", [False, True])
def test_estimates_of_a_network_with_residual_blocks_are_the_bytes_of_its_groups(streamed_input: bool) -> None:
    assert compare(residual_network(12, size=32), streamed_input)[1] > 0


@pytest.mark.parametrize("graph", [chain(100), residual_network(100)], ids=lambda graph: graph.name)
def test_a_hundred_layers_are_streamed_in_moments(graph: Graph) -> None:
    began = time.process_time()
    layout = streaming.stream_rows(graph, streamed_input=True, working=portable)
    assert time.process_time() - began < 2
    whole = max(value.type.bytes for node in graph.nodes for value in node.outs)
    assert layout.peak < whole
    assert np.sum([g.end - g.first for g in layout.schedule.groups]) > 0
