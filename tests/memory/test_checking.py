"""The check of plans: what it refuses, sentence by sentence, and that it borrows no rule from the planner."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from smidgen import ops
from smidgen.errors import PlanError
from smidgen.ir import Builder, Graph, Node, QParams, Type, Value
from smidgen.memory import Buffer, Plan, buffers, check, checking
from smidgen.memory.rows import Group, Schedule
from smidgen.memory.streaming import stream
from tests.support.house import ROOT, imports
from tests.support.native import portable
from tests.support.plans import greedy

Q = QParams.per_tensor(0.1)
# Data, and what is given to the planner and the check alike; no rule of what is read, held, alive or how large.
BORROWED = {"layout.Buffer", "layout.Plan", "layout.Working", "rows.WHOLE", "rows.Cut", "rows.Group", "rows.Schedule"}


def pooled() -> Graph:
    """Two pools, the first of which reads a row beyond its own."""
    g = Builder("pooled")
    x = g.input("x", Type((1, 6, 4, 2), "int8", Q))
    y = g.emit(ops.MaxPool((3, 1), (1, 1), (1, 1, 0, 0)), x, name="a")
    return g.graph(g.emit(ops.MaxPool((2, 2), (2, 2)), y, name="y"))


def streamed(graph: Graph, streamed_input: bool = False) -> tuple[Plan, Group]:
    group = stream(graph, 0, 2, streamed_input)
    assert group is not None
    return greedy(buffers(graph, Schedule((group,), streamed_input), working=portable)), group


def test_the_check_borrows_nothing_but_data_from_the_planner() -> None:
    borrowed = {name for name in imports(ROOT / "memory" / "checking.py") if name.startswith("smidgen.memory.")}
    assert {name.removeprefix("smidgen.memory.") for name in borrowed} == BORROWED
    others = {name.split(".")[1] for name in imports(ROOT / "memory" / "checking.py") if name.startswith("smidgen.")}
    assert others == {"errors", "ir", "memory"}


def test_windows_are_those_of_the_kernels() -> None:
    node = pooled().nodes[0]
    window = checking._window(node)
    assert window is not None
    assert [list(window.rows(row)) for row in (0, 2, 5)] == [[0, 1], [1, 2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rings": {"a": 0}}, "holds 0 rows of %a"),
        ({"rings": {"a": 7}}, "holds 7 rows of %a"),
        ({"rings": {"x": 6}}, "holds 6 rows of %x"),
        ({"drop": 1}, "rows, its group computes"),
        ({"order": (2,)}, "names 2, which is none of its nodes"),
        ({"order": (-1,)}, "names -1, which is none of its nodes"),
        ({"end": 3}, r"nodes \[0, 3\) does not follow node 0"),
        ({"twice": True}, r"nodes \[0, 2\) does not follow node 2"),
    ],
)
def test_a_group_that_cannot_be_is_refused(change: dict[str, object], sentence: str) -> None:
    graph = pooled()
    plan, group = streamed(graph)
    values = {v.name: v for v in (*graph.inputs, *(v for node in graph.nodes for v in node.outs))}
    rings = change.get("rings")
    if isinstance(rings, dict):
        group = replace(group, rings={values[name]: rows for name, rows in rings.items()})
    more = change.get("order", ())
    assert isinstance(more, tuple)
    group = replace(group, order=(*group.order, *more)[int("drop" in change) :])
    group = replace(group, end=3) if "end" in change else group
    with pytest.raises(PlanError, match=sentence):
        check(graph, plan, Schedule((group,) * (2 if "twice" in change else 1)), working=portable)


def rows_kept(graph: Graph, group: Group, value: Value, held: int) -> bool:
    """Whether a ring of `held` rows keeps each row of a map until its last reader is through, row by row."""
    nodes = graph.nodes[group.first : group.end]
    ring: dict[int, int] = {}  # which row each place holds
    done = dict.fromkeys(range(-1, len(nodes)), 0)
    for index in group.order:
        node, row = nodes[index], done[index]
        done[index] += 1
        if index >= 0 and value in node.ins[:1]:
            if isinstance(node.op, ops.MaxPool | ops.Conv2D | ops.Depthwise):
                told = node.op.params(node)
                taps, stride, pad, dilation = (int(told[n]) for n in ("k_h", "stride_h", "pad_h", "dilation_h"))
                read = [row * stride - pad + tap * dilation for tap in range(taps)]
            else:
                read = [row]
            if any(ring.get(r % held) != r for r in read if 0 <= r < value.type.shape[1]):
                return False
        if (graph.image if index < 0 else node.outs[0]) == value:
            ring[row % held] = row
    return True


def roomy(plan: Plan, value: Value) -> Plan:
    """The plan with every buffer far from the others, the value's as large as the whole map."""
    buffers_ = tuple(replace(b, bytes=value.type.bytes, overlap=None) if value in b.values else b for b in plan.buffers)
    each = -(-max(b.bytes for b in buffers_) // 4) * 4
    return Plan(buffers_, tuple(index * each for index in range(len(buffers_))))


def dilated() -> Graph:
    """Windows of many rows, apart from each other, wider than their stride and narrower."""
    g = Builder("dilated")
    x = g.input("x", Type((1, 25, 3, 2), "int8", Q))
    b = g.constant("bias", np.zeros(2, np.int32))
    w = g.constant("w", np.ones((1, 3, 1, 2), np.int8), Q)
    x = g.emit(ops.Depthwise((1, 1), (2, 2, 0, 0), (2, 1)), x, w, b, q=Q, name="a")
    x = g.emit(ops.MaxPool((5, 1), (2, 1), (2, 2, 0, 0)), x, name="b")
    w = g.constant("v", np.ones((2, 3, 1, 2), np.int8), Q)
    x = g.emit(ops.Conv2D((1, 1), (1, 1, 0, 0)), x, w, b, q=Q, name="c")
    return g.graph(g.emit(ops.MaxPool((1, 1), (2, 1)), x, name="y"))


@pytest.mark.parametrize("streamed_input", [False, True])
@pytest.mark.parametrize("graph", [pooled(), dilated()], ids=lambda graph: graph.name)
def test_a_ring_is_accepted_only_if_no_row_is_lost_before_it_is_read(graph: Graph, streamed_input: bool) -> None:
    group = stream(graph, 0, len(graph.nodes), streamed_input)
    assert group is not None
    plan = greedy(buffers(graph, Schedule((group,), streamed_input), working=portable))
    verdicts = []
    for value in group.rings:
        for held in range(1, value.type.shape[1] + 1):
            changed = Schedule((replace(group, rings={**group.rings, value: held}),), streamed_input)
            kept = rows_kept(graph, group, value, held)
            verdicts.append(kept)
            if kept:
                check(graph, roomy(plan, value), changed, working=portable)
                continue
            with pytest.raises(PlanError, match=rf"%{value.name} at .* is overwritten, or not there"):
                check(graph, roomy(plan, value), changed, working=portable)
    assert {True, False} == set(verdicts)
    assert all(rows_kept(graph, group, value, held) for value, held in group.rings.items())
    assert not any(rows_kept(graph, group, value, held - 1) for value, held in group.rings.items() if held > 1)


def test_a_ring_holds_the_rows_that_one_window_reaches_over_and_no_more() -> None:
    group = stream(dilated(), 0, 4, streamed_input=True)
    assert group is not None
    assert {value.name: held for value, held in group.rings.items()} == {"x": 5, "a": 5, "b": 3, "c": 1}


def test_an_image_that_comes_by_rows_needs_a_group_that_takes_them() -> None:
    graph = pooled()
    with pytest.raises(PlanError, match="comes by rows, and no group takes them"):
        check(graph, greedy(buffers(graph, working=portable)), Schedule((), streamed_input=True), working=portable)
    plan, group = streamed(graph, streamed_input=True)
    check(graph, plan, Schedule((group,), streamed_input=True), working=portable)


def test_groups_may_follow_the_one_that_takes_the_image() -> None:
    graph = dilated()
    first, second = stream(graph, 0, 2, streamed_input=True), stream(graph, 2, 4, streamed_input=False)
    assert first is not None
    assert second is not None
    schedule = Schedule((first, second), streamed_input=True)
    check(graph, greedy(buffers(graph, schedule, working=portable)), schedule, working=portable)


def test_a_map_that_is_read_whole_later_is_not_kept_in_a_ring() -> None:
    g = Builder("later")
    x = g.input("x", Type((1, 6, 4, 2), "int8", Q))
    a = g.emit(ops.MaxPool((3, 1), (1, 1), (1, 1, 0, 0)), x, name="a")
    graph = g.graph(g.emit(ops.MaxPool(), a, name="y"), g.emit(ops.MaxPool(), a, name="z"))
    plan, group = streamed(graph)
    check(graph, plan, Schedule((group,)), working=portable)
    with pytest.raises(PlanError, match="%a is read whole, and 5 of its 6 rows are held"):
        check(graph, plan, Schedule((replace(group, rings={a: 5}),)), working=portable)


def test_state_and_constants_have_no_place_in_the_arena() -> None:
    g = Builder("state")
    x = g.input("x", Type((1, 8), "int8", Q))
    kept = g.persistent("kept", np.ones((1, 8), np.int8), Q)
    graph = g.graph(g.emit(ops.Add(), kept, x, q=Q, name="y"))
    plan = greedy(buffers(graph, working=portable))
    placed = Plan((*plan.buffers, Buffer("kept", 8, 0, 2, (kept,))), (*plan.offsets, 64))
    with pytest.raises(PlanError, match="%kept is a constant or state and has a place in the arena"):
        check(graph, placed, working=portable)


def test_an_output_that_is_lost_before_the_end_is_refused() -> None:
    g = Builder("outputs")
    x = g.input("x", Type((1, 8, 8, 2), "int8", Q))
    first = g.emit(ops.MaxPool(), x, name="first")
    second = g.emit(ops.MaxPool((4, 4), (4, 4)), x, name="second")
    graph = g.graph(first, second)
    plan = greedy(tuple(replace(b, overlap=None) for b in buffers(graph, working=portable)))
    index = {b.name: i for i, b in enumerate(plan.buffers)}
    short = tuple(replace(b, end=1) if b.name == "first" else b for b in plan.buffers)
    offsets = tuple(plan.offsets[index["first"]] if b.name == "second" else o for b, o in plan.placed)
    with pytest.raises(PlanError, match=r"%first at .* is overwritten, or not there, before the caller"):
        check(graph, Plan(short, offsets), working=portable)


def test_a_value_beyond_the_end_of_the_arena_is_refused() -> None:
    graph = pooled()
    plan = greedy(buffers(graph, working=portable))
    small = tuple(replace(b, bytes=4) for b in plan.buffers)
    with pytest.raises(PlanError, match="is not in the arena of"):
        check(graph, Plan(small, plan.offsets), working=portable)


@pytest.mark.parametrize("at", [-4, 2])
def test_a_place_before_the_arena_or_between_words_is_refused(at: int) -> None:
    graph = pooled()
    plan = greedy(buffers(graph, working=portable))
    with pytest.raises(PlanError, match=f"lies at {at}, which is not a multiple of 4 in the arena"):
        check(graph, Plan(plan.buffers, (at, *plan.offsets[1:])), working=portable)


def sixteen(node: Node, by_row: bool) -> int:
    """Working memory of every node, in bytes."""
    return 16


@pytest.mark.parametrize(
    ("other", "sentence"),
    [("x", "%a is written over its own input, or its working memory is"), ("a", "working memory or outputs of %a")],
)
def test_working_memory_over_what_its_node_reads_or_writes_is_refused(other: str, sentence: str) -> None:
    graph = pooled()
    plan = greedy(buffers(graph, working=sixteen))
    check(graph, plan, working=sixteen)
    places = {b.name: offset for b, offset in plan.placed}
    offsets = tuple(places[other] if not b.values and b.start == 0 else offset for b, offset in plan.placed)
    untrue = tuple(replace(b, start=8, end=9) if b.name == other else b for b in plan.buffers)  # or lifetimes tell
    with pytest.raises(PlanError, match=sentence):
        check(graph, Plan(untrue, offsets), working=sixteen)


def test_an_operand_that_does_not_repeat_within_a_row_cannot_come_by_rows() -> None:
    g = Builder("operand")
    x = g.input("x", Type((1, 6, 4, 2), "int8", Q))
    graph = g.graph(g.emit(ops.Add(), x, g.constant("c", np.ones((6, 4, 2), np.int8), Q), q=Q, name="y"))
    plan = greedy(buffers(graph, working=portable))
    with pytest.raises(PlanError, match="%c does not repeat within a row of %y"):
        check(graph, plan, Schedule((Group(0, 1, (0,) * 6, {}),)), working=portable)
