"""Memory as it is shown and limited: pictures hold every buffer, the ladder goes down, budgets are kept or refused."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

import smidgen as sm
from experiments.ladder import ladder
from smidgen.cli import app
from smidgen.errors import InputError, PlanError
from smidgen.frontends.native import write_smg
from smidgen.ir import Builder, Type
from smidgen.pipeline import Program
from smidgen.results.memory import KINDS, LABELS, draw_memory, life_cycle
from smidgen.targets.host import Host
from smidgen.training.scheme import AnalyticMemory, analytic_memory, load_scheme
from tests.support.small_network import small_network
from tests.support.svg_pages import notes, pictures, traces

SCHEME = "last:4"


@cache
def program(scheme: str | None, streamed_input: bool = False) -> Program:
    options = sm.Options(classes=4, weight_bits=8) if scheme else None
    frugal = Host(frugal=True)  # as a budget asks
    return sm.compile(small_network(), scheme, frugal, options=options, streamed_input=streamed_input)


PROGRAMS = [(None, False), (SCHEME, False), (SCHEME, True), ("full", False)]


@pytest.fixture(params=PROGRAMS, ids=lambda pair: f"{pair[0]}-{'streamed' if pair[1] else 'buffered'}")
def compiled(request: pytest.FixtureRequest) -> Program:
    return program(*request.param)


def test_the_life_cycle_is_the_plan_node_by_node(compiled: Program) -> None:
    cycle, plan, memory = life_cycle(compiled), compiled.plan, compiled.memory
    assert [(t.name, t.bytes, t.offset, t.start, t.end) for t in cycle.tensors] == [
        (b.name, b.bytes, offset, b.start, b.end) for b, offset in plan.placed
    ]
    assert len(cycle.nodes) == len(compiled.graph.nodes)
    assert max(step.bytes for step in cycle.nodes) == plan.lower_bound + memory.state
    assert cycle.nodes[cycle.peak].bytes == plan.lower_bound + memory.state
    assert {step.alive["state"] for step in cycle.nodes} == {memory.state}


def test_only_a_program_that_learns_has_a_backward_pass_gradients_and_saved_tensors() -> None:
    kinds = {scheme: {t.kind for t in life_cycle(program(scheme)).tensors} for scheme in (None, SCHEME)}
    assert kinds == {None: {"activation", "scratch"}, SCHEME: {"activation", "saved", "gradient", "scratch"}}
    assert life_cycle(program(None)).backward is None


def test_gradients_live_behind_the_loss_and_saved_tensors_reach_there() -> None:
    cycle = life_cycle(program(SCHEME))
    assert cycle.backward is not None
    for tensor in cycle.tensors:
        if tensor.kind == "gradient":
            assert tensor.start >= cycle.backward - 1
        if tensor.kind == "saved":
            assert tensor.end > cycle.backward


def test_streamed_maps_say_how_many_rows_are_held() -> None:
    compiled = program(SCHEME, True)
    cycle = life_cycle(compiled)
    assert cycle.groups == tuple((g.first, g.end) for g in compiled.schedule.groups) != ()
    held = {t.name: t.rows for t in cycle.tensors if t.rows}
    rings = {v: rows for group in compiled.schedule.groups for v, rows in group.rings.items()}
    assert held == {v.name: (rows, v.type.shape[1]) for v, rows in rings.items()}


def test_layers_cost_what_the_analytic_memory_adds_up(compiled: Program) -> None:
    cycle, graph = life_cycle(compiled), small_network()

    def total(costs: list[AnalyticMemory]) -> AnalyticMemory:
        return AnalyticMemory(*(sum(getattr(c, f) for c in costs) for f in ("saved", "masks", "weights", "biases")))

    assert total([layer.whole for layer in cycle.layers]) == analytic_memory(load_scheme("full", graph), graph)
    learned = [layer.trained for layer in cycle.layers if layer.trained.total]
    learns = {4: SCHEME, len(cycle.layers): "full", 0: "head"}[len(learned)]
    assert total(learned) == analytic_memory(load_scheme(learns, graph), graph)


def test_the_page_needs_nothing_else_and_its_pictures_hold_every_buffer(compiled: Program) -> None:
    page, cycle = draw_memory(compiled), life_cycle(compiled)
    over_time, by_layer = pictures(page)
    places = [group for _, group in traces(over_time) if group.get("class") == "apart"]
    drawn = [text for group in places for text in notes(group)]
    assert len(drawn) == len(compiled.plan.buffers)
    for buffer, offset in compiled.plan.placed:
        found = [text for text in drawn if text.startswith(f"{buffer.name}: ")]
        assert any(f"{buffer.bytes:,} bytes" in text and f" at {offset:,}\n" in text for text in found)
    alive = [(name, notes(group)) for name, group in traces(over_time) if group.get("class") is None]
    kinds = [kind for kind in KINDS if any(step.alive[kind] for step in cycle.nodes)]
    assert [name for name, _ in alive] == [LABELS[kind] for kind in kinds]
    for (_, texts), kind in zip(alive, kinds, strict=True):
        sizes = [int(text.rpartition(" ")[2].replace(",", "")) for text in texts]
        assert sizes == [step.alive[kind] for step in cycle.nodes if step.alive[kind]]
    costs = [text for _, group in traces(by_layer) for text in notes(group)]
    assert all(any(text.startswith(f"{i}: {layer.name}\n") for text in costs) for i, layer in enumerate(cycle.layers))
    assert f"The arena at its peak: {compiled.memory.at_peak}." in page


def test_a_models_name_cannot_break_the_page() -> None:
    page = draw_memory(sm.compile(small_network("<script>alert(1)</script>")))
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_each_rung_of_the_ladder_takes_less_memory_than_the_one_above() -> None:
    rungs = ladder(small_network(), SCHEME).rungs
    assert len(rungs) == 3
    for column in range(3):
        totals = [plan.total for rung in rungs if (plan := rung.plans[column]) is not None]
        assert all(above > below for above, below in pairwise(totals))
    for rung in rungs:
        totals = [plan.total for plan in rung.plans if plan is not None]
        assert all(left >= right for left, right in pairwise(totals))
    assert rungs[0].plans[2] is None  # with all layers learning, the backward pass reads the image again


def test_a_budget_that_is_met_changes_nothing() -> None:
    memory = program(SCHEME).memory
    options = sm.Options(classes=4, weight_bits=8)
    for budget in (memory.peak + memory.state, "1MB", f"{memory.peak + memory.state}B"):
        assert sm.compile(small_network(), SCHEME, options=options, budget=budget).memory == memory


@pytest.mark.parametrize("scheme", [None, SCHEME, "full"])
def test_a_budget_that_cannot_be_met_says_the_least_and_what_stands_at_the_peak(scheme: str | None) -> None:
    options = sm.Options(classes=4, weight_bits=8) if scheme else None
    memory = program(scheme).memory
    needed = memory.peak + memory.state
    least = needed
    if scheme != "full":
        streamed = program(scheme, True).memory
        least = min(needed, streamed.peak + streamed.state)
    with pytest.raises(PlanError) as refused:
        sm.compile(small_network(), scheme, options=options, budget=needed - 1)
    said = str(refused.value)
    assert f"small needs {needed:,} bytes of SRAM (arena {memory.peak:,}, state {memory.state:,})" in said
    assert f"the budget is {needed - 1:,}; the least that can be reached is {least:,}" in said
    assert f"At the peak stand {memory.at_peak.parts[0]}" in said
    assert f" = {memory.peak:,}. " in said
    assert ("Stream the image." in said) == (least < needed)
    with pytest.raises(PlanError, match=r"least that can be reached is .* or raise the budget"):
        sm.compile(small_network(), scheme, options=options, budget=least - 1)


@pytest.mark.parametrize("budget", [-1, "", "128 KiB", "lots", "0.3B", "1e5"])
def test_a_budget_that_is_no_size_is_refused(budget: int | str) -> None:
    with pytest.raises(InputError, match="is not a size"):
        sm.compile(small_network(), budget=budget)


def test_compile_draws_the_memory_and_keeps_to_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_smg(small_network(), Path("small.smg"))
    arguments = ["compile", "small.smg", "--scheme", SCHEME, "--classes", "4", "-o"]
    run = CliRunner().invoke(app, [*arguments, "out", "--picture", "memory.html", "--budget", "64KB", "--json"])
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout)["picture"] == "memory.html"
    assert len(pictures(Path("memory.html").read_text())) == 2
    refused = CliRunner().invoke(app, [*arguments, "other", "--picture", "other.html", "--budget", "1KB"])
    assert isinstance(refused.exception, PlanError)
    assert not Path("other").exists()
    assert not Path("other.html").exists()


def test_a_program_without_nodes_has_a_picture_too() -> None:
    g = Builder("same")
    graph = g.graph(g.input("x", Type((1, 4))))
    (over_time,) = pictures(draw_memory(sm.compile(graph)))
    assert len(traces(over_time)) == 1
