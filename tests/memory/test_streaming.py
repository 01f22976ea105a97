"""Rows through rings, and maps that grow into the place of others: the same bytes, and refused where they are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import smidgen as sm
from smidgen import codegen, memory
from smidgen.codegen.writer import order_table
from smidgen.errors import PlanError
from smidgen.ir import Builder, Graph, QParams, Type, evaluate, evaluate_step
from smidgen.memory import ALIGNMENT, Plan, streaming
from smidgen.memory.rows import Group, Schedule, streamable
from smidgen.memory.streaming import stream
from smidgen.ops import Add, AvgPool, Conv2D, MaxPool
from smidgen.pipeline import Program
from smidgen.targets.host import Host
from smidgen.training import Options, build_training, passes
from smidgen.training.scheme import load_scheme
from tests.support.graphs import int8_graphs, random_inputs
from tests.support.native import portable
from tests.support.networks import CLASSES, NETWORKS, samples
from tests.support.release_files import SHARED
from tests.support.tiers import examples

RATE = 0.01


def grouped(graph: Graph, data: st.DataObject) -> Schedule:
    """Runs of nodes that can be streamed, cut into groups at random."""
    groups: list[Group] = []
    first = 0
    while first < len(graph.nodes):
        end = first
        while end < len(graph.nodes) and streamable(graph.nodes[end]):
            end += 1
        end = data.draw(st.integers(first, end))
        group = stream(graph, first, end, streamed_input=False)
        groups += [group] if group else []
        first = max(end, first + 1)
    return Schedule(tuple(groups))


def slid(graph: Graph, schedule: Schedule) -> Plan:
    """A plan in which everything that may lie over something else does."""
    layout = memory.overlapping(memory.buffers(graph, schedule, working=portable), decisions=10_000)
    memory.check(graph, layout, schedule, working=portable)
    assert layout.peak >= layout.lower_bound
    return layout


@pytest.mark.sampled
def test_random_graphs_with_maps_in_each_others_place_compute_the_same_bytes(host: Host) -> None:
    overlaps = 0

    @given(int8_graphs(), st.data())
    @settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
    def agree(graph: Graph, data: st.DataObject) -> None:
        nonlocal overlaps
        schedule = grouped(graph, data)
        assume(any(b.overlap for b in memory.buffers(graph, schedule, working=portable)))
        overlaps += 1
        layout = slid(graph, schedule)
        arrays = random_inputs(graph, np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))))
        with host.start(graph, codegen.generate(graph, layout, schedule=schedule)) as device:
            found = device.run(*arrays)
        for want, got in zip(evaluate(graph, *arrays), found, strict=True):
            np.testing.assert_array_equal(want, got)

    agree()
    assert overlaps >= examples(30)


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_networks_learn_the_same_bytes_with_maps_in_each_others_place(
    network: Callable[[int], Graph], host: Host
) -> None:
    graph = network(5)
    training = build_training(graph, load_scheme("last:1", graph), Options(CLASSES))
    step = passes.run(training.step)
    reach = next(i for i, node in enumerate(step.nodes) if not streamable(node))
    one = stream(step, 0, 1, streamed_input=False)
    rest = stream(step, 1, reach, streamed_input=False)
    schedule = Schedule(tuple(group for group in (one, rest) if group))
    layout = slid(step, schedule)
    assert any(b.overlap for b in layout.buffers)
    program = Program(step, host, schedule, layout, codegen.generate(step, layout, schedule=schedule), training)
    state = step.state
    with program.start() as device:
        for image, label in samples(graph, 3):
            arrays = (image, np.array([label], np.int32), np.array([RATE], np.float32))
            (loss, _), state = evaluate_step(step, state, *arrays)
            assert device.train(image, label, RATE) == loss.item()
        for value, array in state.items():
            assert device.state()[value.name].tobytes() == array.tobytes()


@settings(suppress_health_check=list(HealthCheck))
@given(int8_graphs(), st.data())
def test_a_step_less_between_two_maps_is_refused(graph: Graph, data: st.DataObject) -> None:
    schedule = grouped(graph, data)
    layout = slid(graph, schedule)
    uppers = [i for i, b in enumerate(layout.buffers) if b.overlap is not None and b.overlap.distance > 0]
    assume(uppers)
    moved = data.draw(st.sampled_from(uppers))
    offsets = tuple(at - ALIGNMENT * (i == moved) for i, at in enumerate(layout.offsets))
    with pytest.raises(PlanError, match=r"overlap|written"):
        memory.check(graph, Plan(layout.buffers, offsets), schedule, working=portable)


def shrinking(*, read_again: bool = False) -> Graph:
    """An image, a convolution and a pool that halves it; the image may be an output too."""
    g = Builder("shrinking")
    q = QParams.per_tensor(0.1)
    x = g.input("x", Type((1, 16, 16, 4), "int8", q))
    w, b = g.constant("w", np.ones((4, 3, 3, 4), np.int8), q), g.constant("b", np.zeros(4, np.int32))
    y = g.emit(MaxPool((2, 2), (2, 2)), g.emit(Conv2D(pad=(1, 1, 1, 1)), x, w, b, q=q))
    return g.graph(y, x) if read_again else g.graph(y)


def whole(graph: Graph) -> Schedule:
    group = stream(graph, 0, len(graph.nodes), streamed_input=False)
    assert group is not None
    return Schedule((group,))


def test_an_output_grows_into_the_image_a_row_ahead_of_what_is_still_read() -> None:
    graph = shrinking()
    overlap = whole(graph).groups[0].overlap
    assert overlap is not None
    # The pool's first row follows two of the convolution, whose next row reads image rows from the second on.
    assert overlap.distance == 0
    layout = memory.packed(memory.buffers(graph, whole(graph), working=portable))
    memory.check(graph, layout, whole(graph), working=portable)
    values = layout.values()
    assert values[graph.inputs[0]] == values[graph.outputs[0]]
    assert layout.peak == layout.lower_bound


def test_only_the_rows_say_that_a_map_may_lie_over_another() -> None:
    graph = shrinking()
    schedule = whole(graph)
    layout = memory.packed(memory.buffers(graph, schedule, working=portable))
    output = next(i for i, b in enumerate(layout.buffers) if graph.outputs[0] in b.values)
    raised = tuple(at + 1024 * (i == output) for i, at in enumerate(layout.offsets))
    for offsets in (raised, tuple(at + 512 * (i == output) for i, at in enumerate(layout.offsets))):
        with pytest.raises(PlanError, match=r"overlap|written"):
            memory.check(graph, Plan(layout.buffers, offsets), schedule, working=portable)
    unsaid = tuple(replace(b, overlap=None) for b in layout.buffers)
    with pytest.raises(PlanError, match="overlap"):
        memory.check(graph, Plan(unsaid, layout.offsets), schedule, working=portable)


def test_a_map_that_is_read_later_is_not_grown_into() -> None:
    graph = shrinking(read_again=True)
    assert all(b.overlap is None for b in memory.buffers(graph, whole(graph), working=portable))


@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(int8_graphs(max_nodes=10))
def test_plans_with_overlaps_are_never_worse_than_plans_without(graph: Graph) -> None:
    layout = streaming.stream_rows(graph, working=portable)
    memory.check(graph, layout.plan, layout.schedule, working=portable)
    groups = streaming.groups_of(graph, streamed_input=False, working=portable)
    apart = streaming.choose(graph, groups, portable, overlaps=False)
    assert layout.peak <= streaming.lay_out(graph, apart, working=portable).peak


def test_a_published_scheme_fits_because_its_first_map_grows_into_the_image() -> None:
    model = SHARED / "models" / "proxyless-w0.3.npz"
    if not model.exists():
        pytest.skip(f"there is no {model}")
    graph = sm.import_model(model)
    step = passes.run(build_training(graph, load_scheme("98kb", graph), Options(10, weight_bits=8)).step)
    layout = streaming.stream_rows(step, working=portable)
    memory.check(step, layout.plan, layout.schedule, working=portable)
    image = next(b for b in layout.plan.buffers if step.inputs[0] in b.values)
    assert image.overlap is not None
    assert memory.state_bytes(step) + layout.peak <= 160_000


def test_rows_of_padding_alone_keep_no_row_of_the_image() -> None:
    g = Builder("skipping")
    q = QParams.per_tensor(0.1)
    x = g.input("x", Type((1, 2, 3, 2), "int8", q))
    w, b = g.constant("w", np.ones((1, 1, 1, 2), np.int8), q), g.constant("b", np.zeros(1, np.int32))
    graph = g.graph(g.emit(Conv2D(stride=(2, 1), pad=(1, 0, 0, 0)), x, w, b, q=q))  # its first row reads nothing
    overlap = whole(graph).groups[0].overlap
    assert overlap is not None
    assert overlap.distance == 0


def long_chain(nodes: int) -> Graph:
    """Sums with other constants one behind another, each tenth node a mean over three rows."""
    rng = np.random.default_rng(nodes)
    g = Builder("long")
    q = QParams.per_tensor(0.1)
    x = g.input("x", Type((1, 6, 2, 3), "int8", q))
    for index in range(nodes):
        if index % 10 == 5:
            x = g.emit(AvgPool((3, 1), (1, 1), (1, 1, 0, 0)), x)
        else:
            x = g.emit(Add(), x, g.constant("c", rng.integers(-9, 10, 3).astype(np.int8), q), q=q)
    return g.graph(x)


@pytest.mark.parametrize("nodes", [254, 255, 256, 300])
@pytest.mark.parametrize("streamed_input", [False, True])
def test_groups_of_hundreds_of_nodes_compute_the_right_bytes(nodes: int, streamed_input: bool, host: Host) -> None:
    graph = long_chain(nodes)
    group = stream(graph, 0, nodes, streamed_input)
    assert group is not None
    schedule = Schedule((group,), streamed_input)
    plan = memory.packed(memory.buffers(graph, schedule, working=portable))
    memory.check(graph, plan, schedule, working=portable)
    arrays = random_inputs(graph, np.random.default_rng(1))
    with host.start(graph, codegen.generate(graph, plan, schedule=schedule)) as device:
        np.testing.assert_array_equal(device.run(*arrays)[0], evaluate(graph, *arrays)[0])


def test_more_nodes_than_the_order_table_can_number_are_refused() -> None:
    assert order_table(Group(0, 65_535, (-1, 0, 65_534), {})).tolist() == [65_535, 0, 65_534]
    with pytest.raises(PlanError, match=r"a group of 65,536 nodes runs row by row, the most is 65,535"):
        order_table(Group(0, 65_536, (0,), {}))


def test_what_a_node_must_have_whole_is_not_made_in_its_group() -> None:
    g = Builder("gated")
    q = QParams.per_tensor(0.1)
    x = g.input("x", Type((1, 4, 3, 2), "int8", q))
    w, b = g.constant("w", np.ones((2, 4, 3, 2), np.int8), q), g.constant("b", np.zeros(2, np.int32))
    gate = g.emit(Conv2D(), x, w, b, q=q)  # a single pixel, which repeats within every row
    graph = g.graph(g.emit(Add(), x, gate, q=q))
    assert stream(graph, 0, 2, streamed_input=False) is None
    layout = streaming.stream_rows(graph, working=portable)
    memory.check(graph, layout.plan, layout.schedule, working=portable)
    together = Group(0, 2, (1, 1, 1, 1, 0), {})
    with pytest.raises(PlanError, match="not there"):
        memory.check(graph, layout.plan, Schedule((together,)), working=portable)


@pytest.mark.parametrize(
    ("shape", "by_rows"), [((2,), True), ((4, 2), True), ((1, 1, 4, 2), True), ((1, 6, 4, 2), True), ((6, 4, 2), False)]
)
def test_an_operand_streams_where_it_is_a_map_or_repeats_within_a_row(shape: tuple[int, ...], by_rows: bool) -> None:
    g, q = Builder("operands"), QParams.per_tensor(0.1)
    x = g.input("x", Type((1, 6, 4, 2), "int8", q))
    graph = g.graph(g.emit(Add(), x, g.constant("c", np.ones(shape, np.int8), q), q=q))
    assert streamable(graph.nodes[0]) == by_rows
    assert (stream(graph, 0, 1, streamed_input=True) is not None) == by_rows
