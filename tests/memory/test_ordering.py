"""Orders of nodes: fewer bytes alive, never more, and the same bytes computed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smidgen import memory
from smidgen.ir import Graph, Node, evaluate, evaluate_step, roles_of, verify
from smidgen.ir.rewriting import prune
from smidgen.memory import ordering
from smidgen.ops import Add
from smidgen.pipeline import compile
from smidgen.targets.host import Host
from smidgen.training import Options, build_training, passes
from smidgen.training.scheme import load_scheme
from tests.support.graphs import int8_graphs, random_inputs
from tests.support.native import portable
from tests.support.networks import CLASSES, NETWORKS, Drawn, samples


def bound(graph: Graph) -> int:
    return memory.most(memory.buffers(graph, working=portable))


def shuffled(graph: Graph, data: st.DataObject) -> Graph:
    """The nodes in some other order in which each still follows what it reads."""
    left, order = list(graph.nodes), []
    while left:
        made = {v for node in left for v in node.outs}
        ready = [node for node in left if not made & set(node.ins)]
        order.append(ready[data.draw(st.integers(0, len(ready) - 1))])
        left = [node for node in left if node is not order[-1]]
    return replace(graph, nodes=tuple(order))


@settings(suppress_health_check=list(HealthCheck))
@given(int8_graphs(max_nodes=14), st.data())
def test_another_order_computes_the_same_bytes_in_no_more_memory(graph: Graph, data: st.DataObject) -> None:
    given_ = shuffled(graph, data)
    better = ordering.reorder(given_, working=portable)
    verify(better)
    assert sorted(map(id, better.nodes)) == sorted(map(id, given_.nodes))
    assert bound(better) <= bound(given_)
    arrays = random_inputs(graph, np.random.default_rng(0))
    for want, got in zip(evaluate(graph, *arrays), evaluate(better, *arrays), strict=True):
        np.testing.assert_array_equal(want, got)


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
@pytest.mark.parametrize("scheme", ["last:2", "full"])
def test_learning_in_another_order_learns_the_same_bytes(network: Callable[[int], Graph], scheme: str) -> None:
    graph = network(2)
    step = build_training(graph, load_scheme(scheme, graph), Options(CLASSES)).step
    for given_ in (passes.run(step), passes.run(step, (prune, passes.share, passes.slice_channels))):
        better = ordering.reorder(given_, working=portable)
        verify(better)
        assert bound(better) <= bound(given_)
        (image, label) = samples(graph, 1)[0]
        arrays = (image, np.array([label], np.int32), np.array([0.01], np.float32))
        (want, after), (got, then) = (evaluate_step(one, one.state, *arrays) for one in (given_, better))
        assert [a.tobytes() for a in want] == [a.tobytes() for a in got]
        assert all(after[v].tobytes() == then[v].tobytes() for v in given_.state)


def branches_side_by_side() -> Graph:
    """Two branches that widen and narrow again, each layer of one beside that of the other."""
    n = Drawn(0)
    wide = [n.conv(n.x, 40), n.conv(n.x, 40)]
    narrow = [n.conv(x, 4) for x in wide]
    return n.end(n.fit(Add(), *narrow))


def test_one_branch_is_done_before_the_next_begins() -> None:
    graph = branches_side_by_side()
    better = ordering.reorder(graph, working=portable)
    wide = graph.nodes[0].out.type.bytes
    assert bound(graph) - bound(better) >= wide - graph.nodes[2].out.type.bytes - 64
    assert (graph.nodes[0] in better.nodes[:2] and graph.nodes[2] in better.nodes[:2]) or (
        graph.nodes[1] in better.nodes[:2] and graph.nodes[3] in better.nodes[:2]
    )


def test_compile_takes_the_better_order_and_keeps_the_given_one_where_it_is_as_good(host: Host) -> None:
    graph = branches_side_by_side()
    whole = Host(cache=host.cache)
    program = compile(graph, target=whole)
    assert program.memory.peak < memory.packed(memory.buffers(graph, working=portable)).peak
    arrays = random_inputs(graph, np.random.default_rng(1))
    with program.start() as device:
        np.testing.assert_array_equal(device.run(*arrays)[0], evaluate(graph, *arrays)[0])
    again = compile(program.graph, target=whole)
    assert again.graph.nodes == program.graph.nodes


def test_a_prediction_runs_no_more_nodes_than_before() -> None:
    graph = NETWORKS[0](4)
    step = passes.run(build_training(graph, load_scheme("full", graph), Options(CLASSES)).step)
    better = ordering.reorder(step, working=portable)

    def forward(one: Graph) -> set[int]:
        return {id(node) for node in one.nodes[: next(i for i, n in enumerate(one.nodes) if _label(one, n))]}

    assert forward(better) == forward(step)


def _label(graph: Graph, node: Node) -> bool:
    return roles_of(graph).label in node.ins


def test_three_hundred_nodes_are_ordered_in_moments() -> None:
    n = Drawn(1)
    x = n.x
    for _ in range(75):
        x = n.g.emit(Add(), n.g.emit(Add(), x, x, q=x.type.q), n.g.emit(Add(), x, x, q=x.type.q), q=x.type.q)
    graph = n.g.graph(n.g.last.out)
    assert len(graph.nodes) >= 225
    began = time.process_time()
    ordering.reorder(graph, working=portable)
    assert time.process_time() - began < 2
