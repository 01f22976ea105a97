"""Sums share memory with what only steps use, and a check that shares nothing with the plan finds what is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smidgen.errors import PlanError
from smidgen.ir import Graph, Value
from smidgen.memory import phases as planned
from smidgen.memory import state_bytes, state_offsets, streaming
from smidgen.memory.layout import unused_state
from smidgen.memory.phases import Phases, check_phases, lay_out_phases
from smidgen.pipeline import compile
from smidgen.targets.host import Host
from smidgen.training import Options
from tests.support.networks import inverted_residual
from tests.support.one_pass_reference import parts_of

HOST = Host()


@pytest.fixture(scope="module")
def laid() -> tuple[Graph, Phases]:
    program = compile(inverted_residual(0), "last:2", HOST, options=Options(4), one_pass=True)
    step = streaming.PlannedSchedule(program.graph, program.schedule, program.plan)
    collect = streaming.lay_out(parts_of(program.graph).collect, working=HOST.working)
    return program.graph, lay_out_phases(program.graph, step, collect, HOST.working)


def test_sums_lie_in_the_memory_of_what_steps_learn_and_the_head_in_its_own(laid: tuple[Graph, Phases]) -> None:
    graph, phases = laid
    parts, places = parts_of(graph), state_offsets(graph)
    check_phases(graph, phases, HOST.working)
    steps = [v for v in graph.state if v not in (*parts.sums, *parts.lasting)]
    taken = {b for v in steps for b in range(places[v], places[v] + v.type.bytes)}
    sums = {b for v in parts.sums for b in range(places[v], places[v] + v.type.bytes)}
    lasting = {b for v in parts.lasting for b in range(places[v], places[v] + v.type.bytes)}
    assert taken & sums
    assert not lasting & (taken | sums)
    assert state_bytes(graph) < len(taken) + len(sums) + len(lasting)
    assert unused_state(graph) == min(sums)


def moved(graph: Graph, value: Value, to: int, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {**state_offsets(graph), value: to}
    monkeypatch.setattr(planned, "state_offsets", lambda _: places)


def test_the_check_finds_state_of_one_phase_in_one_place(
    laid: tuple[Graph, Phases], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, phases = laid
    parts, places = parts_of(graph), state_offsets(graph)
    for value, onto in (
        (parts.sums[0], parts.sums[2]),
        (parts.phase, parts.sums[1]),
        (parts.lasting[0], parts.sums[2]),
    ):
        moved(graph, value, places[onto], monkeypatch)
        with pytest.raises(PlanError, match="share memory"):
            check_phases(graph, phases, HOST.working)
    head = parts.lasting[1]
    moved(graph, head, places[head] + 2, monkeypatch)
    with pytest.raises(PlanError, match="lies at"):
        check_phases(graph, phases, HOST.working)


def test_the_check_finds_an_arena_that_is_too_small(laid: tuple[Graph, Phases]) -> None:
    graph, phases = laid
    for bytes_ in (phases.collect.peak - 4, phases.solve.peak - unused_state(graph) - 4):
        with pytest.raises(PlanError, match="leaves its arena"):
            check_phases(graph, replace(phases, arena_bytes=bytes_), HOST.working)


def test_the_image_and_the_logits_lie_where_the_step_has_them(laid: tuple[Graph, Phases]) -> None:
    graph, phases = laid
    collect = phases.collect.graph
    program = compile(inverted_residual(0), "last:2", HOST, options=Options(4), one_pass=True)
    steps, own = program.plan.values(), phases.collect.plan.values()
    assert own[collect.image] == steps[graph.image]
    assert own[collect.outputs[0]] == steps[graph.scores]


@pytest.mark.slow
def test_mcunet_with_its_100_kb_scheme_takes_less_than_4_kb_more_with_one_pass() -> None:
    import smidgen as sm

    model, sizes = sm.load("mcunet-5fps"), []
    for one_pass in (False, True):
        program = compile(
            model, "99kb", "cortex-m7", options=Options(10), streamed_input=True, one_pass=one_pass
        )  # fmt: skip
        sizes.append(program.memory.peak + program.memory.state)
    assert sizes[1] - sizes[0] <= 4096
