"""Plans: what the planner gives is sound, and the check refuses what is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from smidgen import ops
from smidgen.errors import PlanError
from smidgen.ir import Builder, Graph, QParams, Type
from smidgen.memory import ALIGNMENT, Buffer, Plan, buffers, check, check_apart, state_bytes, state_offsets
from tests.support.graphs import int8_graphs
from tests.support.native import portable
from tests.support.plans import greedy

Q = QParams.per_tensor(0.1)


@st.composite
def lifetimes(draw: st.DrawFn) -> tuple[Buffer, ...]:
    count = draw(st.integers(0, 30))
    starts = [draw(st.integers(0, 20)) for _ in range(count)]
    return tuple(
        Buffer(f"b{i}", draw(st.integers(1, 500)), start, start + draw(st.integers(1, 8)))
        for i, start in enumerate(starts)
    )


@given(lifetimes())
def test_greedy_plans_are_sound_and_no_smaller_than_the_bound(many: tuple[Buffer, ...]) -> None:
    plan = greedy(many)
    check_apart(plan)
    assert plan.peak >= plan.lower_bound
    assert plan.buffers == many


@given(lifetimes(), st.data())
def test_a_buffer_moved_onto_another_is_refused(many: tuple[Buffer, ...], data: st.DataObject) -> None:
    together = [(i, j) for i, a in enumerate(many) for j, b in enumerate(many) if i != j and a.start <= b.start < a.end]
    assume(together)
    moved, onto = data.draw(st.sampled_from(together))
    plan = greedy(many)
    inside = data.draw(st.integers(0, (many[onto].bytes - 1) // ALIGNMENT)) * ALIGNMENT
    offsets = list(plan.offsets)
    offsets[moved] = offsets[onto] + inside
    with pytest.raises(PlanError, match="overlap"):
        check_apart(Plan(many, tuple(offsets)))


@given(lifetimes().filter(bool), st.sampled_from([-ALIGNMENT, 1, ALIGNMENT - 1]))
def test_a_buffer_out_of_line_is_refused(many: tuple[Buffer, ...], by: int) -> None:
    plan = greedy(many)
    lowest = plan.offsets.index(0)
    offsets = [by if i == lowest else offset for i, offset in enumerate(plan.offsets)]
    with pytest.raises(PlanError, match="multiple"):
        check_apart(Plan(many, tuple(offsets)))


@given(int8_graphs(beyond=True))
def test_plans_of_random_graphs_replay(graph: Graph) -> None:
    plan = greedy(buffers(graph, working=portable))
    check(graph, plan, working=portable)
    assert plan.peak >= plan.lower_bound


@given(int8_graphs(), st.data())
def test_the_replay_notices_a_life_cut_short(graph: Graph, data: st.DataObject) -> None:
    """With every buffer at one place and no lifetimes to compare, only running the program tells."""
    many = buffers(graph, working=portable)
    clashing = [b for b in many if b.values and b.end - b.start > 1]
    assume(clashing)
    victim = data.draw(st.sampled_from(clashing))
    late = [b for b in many if victim.start < b.start < victim.end and b.values]
    assume(late)
    intruder = data.draw(st.sampled_from(late))
    apart = iter(range(0, 10**9, 10**6))
    offsets = {b: next(apart) for b in many}
    offsets[intruder] = offsets[victim]
    lie = tuple(replace(b, end=b.start + 1) if b is victim else b for b in many)
    with pytest.raises(PlanError):
        check(graph, Plan(lie, tuple(offsets[b] for b in many)), working=portable)


def chain(*, read_again: bool) -> Graph:
    """x → Activate → Add of a constant, whose input may be read once more at the end."""
    g = Builder("chain")
    x = g.input("x", Type((1, 8), "int8", Q))
    a = g.emit(ops.Activate(), x, q=Q, name="a")
    b = g.emit(ops.Add(), a, g.constant("c", np.ones(8, np.int8), Q), q=Q, name="b")
    return g.graph(g.emit(ops.Add(), b, a, q=Q, name="y") if read_again else b)


def test_an_in_place_op_takes_its_dead_input_s_memory() -> None:
    (only,) = buffers(chain(read_again=False), working=portable)
    assert [v.name for v in only.values] == ["x", "a", "b"]
    assert (only.start, only.end) == (0, 3)


def test_an_input_read_later_keeps_its_memory() -> None:
    first, second = buffers(chain(read_again=True), working=portable)
    assert [v.name for v in first.values] == ["x", "a"]
    assert [v.name for v in second.values] == ["b", "y"]


def test_views_lie_in_their_input_s_memory_and_prolong_its_life() -> None:
    g = Builder("views")
    x = g.input("x", Type((1, 2, 2, 4), "int8", Q))
    a = g.emit(ops.Activate(), x, q=Q, name="a")
    flat = g.emit(ops.Reshape((1, 16)), a, name="flat")
    b = g.emit(ops.Activate(), a, q=Q, name="b")
    graph = g.graph(flat, b)
    assert [[v.name for v in b.values] for b in buffers(graph, working=portable)] == [["x", "a", "flat"], ["b"]]
    check(graph, greedy(buffers(graph, working=portable)), working=portable)


def test_a_view_elsewhere_than_its_input_is_refused() -> None:
    g = Builder("views")
    x = g.input("x", Type((1, 16), "int8", Q))
    graph = g.graph(g.emit(ops.Reshape((4, 4)), x, name="flat"))
    (flat,) = graph.outputs
    split = (Buffer("x", 16, 0, 2, (x,)), Buffer("flat", 16, 0, 2, (flat,)))
    with pytest.raises(PlanError, match="view"):
        check(graph, Plan(split, (0, 16)), working=portable)


def test_views_of_constants_need_no_memory() -> None:
    g = Builder("constant")
    x = g.input("x", Type((1, 4), "int8", Q))
    c = g.emit(ops.Reshape((1, 4)), g.constant("c", np.ones(4, np.int8), Q))
    graph = g.graph(g.emit(ops.Add(), x, c, q=Q), c)
    plan = greedy(buffers(graph, working=portable))
    check(graph, plan, working=portable)
    assert plan.peak == ALIGNMENT


def test_an_output_over_an_input_that_is_read_is_refused() -> None:
    g = Builder("mean")
    x = g.input("x", Type((1, 4, 4, 4), "int8", Q))
    graph = g.graph(g.emit(ops.MaxPool(), x))
    first, second = buffers(graph, working=portable)
    together = Buffer("x", first.bytes, 0, 2, (*first.values, *second.values))
    with pytest.raises(PlanError, match="its own input"):
        check(graph, Plan((together,), (0,)), working=portable)


def test_missing_working_memory_is_refused() -> None:
    g = Builder("conv")
    x = g.input("x", Type((1, 4, 4, 4), "int8", Q))
    w, b = g.constant("w", np.ones((2, 1, 1, 4), np.int8), Q), g.constant("b", np.zeros(2, np.int32))
    graph = g.graph(g.emit(ops.Conv2D(), x, w, b, q=Q))
    without = tuple(buffer for buffer in buffers(graph, working=portable) if buffer.values)
    with pytest.raises(PlanError, match="working memory"):
        check(graph, greedy(without), working=portable)


def test_a_value_without_a_place_is_refused() -> None:
    graph = chain(read_again=False)
    with pytest.raises(PlanError, match="no place"):
        check(graph, Plan((), ()), working=portable)


def test_the_peak_names_its_tensors_largest_first() -> None:
    many = (Buffer("small", 10, 0, 2), Buffer("large", 100, 1, 3), Buffer("later", 90, 2, 4))
    assert [b.name for b in greedy(many).at_peak()] == ["large", "later"]


def test_state_and_what_replaces_it_lie_apart_from_the_arena() -> None:
    g = Builder("state")
    x = g.input("x", Type((1, 8), "int8", Q))
    old = g.persistent("old", np.ones((1, 7), np.int8), Q)
    kept = g.persistent("kept", np.ones((1, 8), np.int8), Q)
    new = g.emit(ops.Activate(), old, q=Q, name="new")
    g.update((old,), (new,))
    graph = g.graph(g.emit(ops.Add(), kept, x, q=Q, name="y"), g.emit(ops.Activate(), new, q=Q, name="z"))
    plan = greedy(buffers(graph, working=portable))
    check(graph, plan, working=portable)
    assert {v.name for b in plan.buffers for v in b.values} == {"x", "y", "z"}
    assert state_offsets(graph) == {old: 0, kept: 8}
    assert state_bytes(graph) == 16
