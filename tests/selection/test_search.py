"""The search finds what trying everything finds, its bounds hold, and what it finds fits the board."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import smidgen as sm
from smidgen.ir import Graph
from smidgen.memory import state_bytes
from smidgen.pipeline import plan
from smidgen.results.profile import profile
from smidgen.selection.bounds import pose_analytic, pose_planned
from smidgen.selection.methods import UNIT, BestFirst, Candidate, Choice, Layer, Problem, promise
from smidgen.selection.searching import Searcher
from smidgen.selection.smoothing import smoothed
from smidgen.targets import find
from smidgen.targets.firmware import OVERHEAD, BoardTarget
from smidgen.training.scheme import Scheme, analytic_memory
from tests.support.contributions import measured
from tests.support.networks import branches, gates, inverted_residual, pools_and_moves
from tests.support.small_network import small_network
from tests.support.tiers import examples, first

CLASSES = 4
NETWORKS = ("mcunet-5fps", "mbv2-w0.35", "proxyless-w0.3")
small = st.integers(0, 40)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Problem, ...]:
    """The same layers with weights of one or two numbers of bits: few enough to try everything."""
    count, floors = draw(st.integers(1, 4)), draw(st.booleans())
    arenas = [draw(st.tuples(small, small, small, small)) for _ in range(count)]
    gains = tuple(draw(st.lists(st.integers(-5, 20), min_size=count + 1, max_size=count + 1)))
    fixed, head = draw(small), draw(small)
    least = tuple(draw(st.lists(small, min_size=count + 1, max_size=count + 1))) if floors else ()

    def layer(state: int, kept: int, early: int, late: int) -> Layer:
        more = draw(st.lists(st.tuples(st.integers(-5, 20), small, small), max_size=2))
        choices = (Choice(Fraction(1, 2 + i), gain, held, saved) for i, (gain, held, saved) in enumerate(more))
        return Layer((Choice(None, 0, 0, 0), *choices), state, kept, early, late)

    return tuple(
        Problem(bits, tuple(layer(*arena) for arena in arenas), gains, fixed, head, least)
        for bits in draw(st.sampled_from([(8,), (8, 12)]))
    )


def everything(problem: Problem) -> Iterator[tuple[int, int, int, tuple[int, ...]]]:
    """Gain, cost, biases and choices of every candidate, added up as the step would run: first forward, then back."""
    for biases in range(len(problem.bias_gains)):
        learning = problem.layers[len(problem.layers) - biases :]
        for choices in product(*(range(len(layer.choices)) for layer in learning)):
            taken = [layer.choices[index] for layer, index in zip(learning, choices, strict=True)]
            alive = [layer.kept + choice.saved for layer, choice in zip(learning, taken, strict=True)]
            times = [sum(alive) + problem.head_arena, problem.floors[biases] if problem.floors else 0]
            for i, layer in enumerate(learning):
                times += [sum(alive[:i]) + layer.late, sum(alive[:i]) + taken[i].saved + layer.early]
            state = sum(layer.state for layer in learning) + sum(choice.state for choice in taken)
            gain = problem.bias_gains[biases] + sum(choice.gain for choice in taken)
            yield gain, problem.fixed + state + max(times), biases, choices


@settings(max_examples=examples(400))
@given(posed=problems(), budget=st.integers(0, 300))
def test_the_search_gives_every_candidate_that_fits_and_the_best_first(posed: tuple[Problem, ...], budget: int) -> None:
    expected = [
        (problem.bits, biases, choices, gain, cost)
        for problem in posed
        for gain, cost, biases, choices in everything(problem)
        if cost <= budget
    ]
    found = list(BestFirst(posed, [promise(problem, budget) for problem in posed], budget))
    assert sorted((c.bits, c.biases, c.choices, c.gain, c.cost) for c in found) == sorted(expected)
    assert [c.gain for c in found] == sorted((gain for _, _, _, gain, _ in expected), reverse=True)


@settings(max_examples=examples(50))
@given(posed=problems(), budget=st.integers(0, 300), cells=st.sampled_from([3, 17]))
def test_promises_for_coarse_cells_lose_nothing(posed: tuple[Problem, ...], budget: int, cells: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("smidgen.selection.methods.CELLS", cells)
        best = next(iter(BestFirst(posed, [promise(problem, budget) for problem in posed], budget)), None)
    gains = [gain for problem in posed for gain, cost, _, _ in everything(problem) if cost <= budget]
    assert (best.gain if best else None) == max(gains, default=None)


@pytest.mark.parametrize("name", first(*NETWORKS))
def test_exact_gains_no_less_than_evolution_and_evolution_no_less_than_lots(name: str) -> None:
    graph = sm.load(name)
    searcher = Searcher(graph, measured(graph, 3), "host", None, True, True, lambda _: None)
    strictly = 0
    for budget in (25_000, 50_000, 100_000):
        exact, evolved, drawn = (
            searcher.search(budget, method, 8000) for method in ("exact", "evolutionary", "random")
        )
        assert exact.gain >= evolved.gain >= drawn.gain
        assert max(one.cost for one in (exact, evolved, drawn)) <= budget
        assert exact.proven
        assert evolved.best_possible is None
        strictly += exact.gain > drawn.gain
    assert strictly >= 1


@pytest.mark.parametrize("bits", [8, 12])
def test_an_analytic_candidate_costs_and_gains_what_its_scheme_does(bits: int) -> None:
    graph = sm.load("mcunet-5fps")
    contributions = measured(graph, 1)
    problem = pose_analytic(graph, contributions, bits)
    for budget in (30_000, 90_000):
        candidate = next(iter(BestFirst([problem], [promise(problem, budget)], budget)))
        scheme = problem.scheme(candidate)
        assert candidate.cost == analytic_memory(scheme, graph).total
        assert candidate.gain / UNIT == pytest.approx(contributions.predict_gain(scheme, bits), abs=1e-9)


def drawn(problem: Problem, data: st.DataObject) -> Candidate:
    """Any candidate of a problem."""
    biases = data.draw(st.integers(0, len(problem.bias_gains) - 1))
    learning = problem.layers[len(problem.layers) - biases :]
    choices = tuple(data.draw(st.integers(0, len(layer.choices) - 1)) for layer in learning)
    return problem.candidate(biases, choices)


def least_and_planned(
    graph: Graph, problem: Problem, candidate: Candidate, options: sm.Options, streamed: bool
) -> tuple[tuple[int, int], tuple[int, int]]:
    """State and arena of a candidate: what the problem says at least, and what is planned."""
    state = problem.fixed + sum(layer.state + choice.state for layer, choice in problem.taken(candidate.choices))
    layout = plan(graph, problem.scheme(candidate), find("cortex-m7"), options=options, streamed_input=streamed)
    return (state, candidate.cost - state), (state_bytes(layout.graph), layout.peak)


GRAPHS = {
    "small": small_network(),
    "residual": inverted_residual(1),
    "branches": branches(1),
    "pools": pools_and_moves(1),
    "gates": gates(1),
}
HOW = {
    "plain": sm.Options(CLASSES),
    "momentum": sm.Options(CLASSES, rule=sm.Momentum(0.9)),
    "int8 head": sm.Options(CLASSES, head_dtype="int8"),
}


@pytest.mark.parametrize("name", GRAPHS)
@settings(max_examples=examples(20))
@given(data=st.data(), how=st.sampled_from(sorted(HOW)), bits=st.sampled_from([8, 10, 12]), streamed=st.booleans())
def test_no_plan_takes_less_than_the_bound(name: str, data: st.DataObject, how: str, bits: int, streamed: bool) -> None:
    graph, board, streamed = GRAPHS[name], find("cortex-m7"), streamed and name != "gates"
    contributions = measured(graph, 1)
    (problem,) = pose_planned(graph, contributions, (bits,), HOW[how], board.working, 0, streamed)
    candidate = drawn(problem, data)
    least, planned = least_and_planned(graph, problem, candidate, HOW[how], streamed)
    assert least[0] <= planned[0] <= least[0] + 64
    assert least[1] <= planned[1]
    alone = plan(graph, Scheme("biases", candidate.biases), board, options=HOW[how], streamed_input=streamed)
    assert alone.plan.lower_bound <= planned[1]


@pytest.mark.parametrize("name", first(*NETWORKS))
def test_the_bound_of_a_scheme_that_saves_much_is_nearly_its_plan(name: str) -> None:
    graph, options = sm.load(name), sm.Options(10)
    contributions, board = measured(graph, 5), find("cortex-m7")
    problems = pose_planned(graph, contributions, (8, 12), options, board.working, 0, True)
    for problem, budget in zip(problems, (110_000, 160_000), strict=True):
        candidate = next(iter(BestFirst([problem], [promise(problem, budget)], budget)))
        least, planned = least_and_planned(graph, problem, candidate, options, True)
        assert sum(least) <= sum(planned) <= sum(least) + 256


@pytest.fixture(scope="module")
def mcunet() -> Graph:
    return sm.load("mcunet-5fps")


@pytest.mark.slow
def test_what_is_found_for_128_kib_profiles_within_it_on_the_board(mcunet: Graph, cache: object) -> None:
    options = sm.Options(10)
    found = sm.search(mcunet, measured(mcunet, 1), "128KB", "cortex-m7", options=options)
    program = sm.compile(mcunet, found.scheme, "cortex-m7", options=options, streamed_input=True)
    measured_on_board = profile(program, steps=1)
    assert found.planned is not None
    assert (program.memory.peak, program.memory.state) == (found.planned.peak, found.planned.state)
    assert measured_on_board.sram_bytes <= found.cost <= 128 * 1024
    assert measured_on_board.sram.other + measured_on_board.sram.stack_bound <= OVERHEAD
    assert measured_on_board.exact.equal
    assert found.cost > 0.97 * 128 * 1024


def test_a_search_is_repeated_to_the_byte_and_proven(mcunet: Graph) -> None:
    contributions = measured(mcunet, 2)
    first, second = (sm.search(mcunet, contributions, "100KB", options=sm.Options(10)) for _ in range(2))
    assert first == second
    assert first.scheme.to_json() == second.scheme.to_json()
    assert first.proven
    assert first.gain == pytest.approx(smoothed(contributions).predict_gain(first.scheme, first.weight_bits), abs=1e-9)
    assert first.schemes_planned < 20


def test_every_point_of_the_curve_is_what_a_single_search_finds() -> None:
    graph, options = small_network(), sm.Options(CLASSES)
    contributions = measured(graph, 1)
    curve = sm.pareto(graph, contributions, "24KB", options=options, points=5)
    assert len(curve.points) >= 3
    assert curve.points[0].scheme.biases == 0
    assert curve.points[0].cost == curve.points[0].budget
    for before, after in zip(curve.points, curve.points[1:], strict=False):
        assert after.gain > before.gain
        assert after.budget > before.budget
    for point in curve.points:
        alone = sm.search(graph, contributions, point.budget, options=options)
        assert (alone.scheme, alone.cost, alone.gain) == (point.scheme, point.cost, point.gain)
        assert point.cost <= point.budget


def test_the_exact_search_of_a_small_network_finds_what_planning_everything_finds() -> None:
    graph, options, board = inverted_residual(1), sm.Options(CLASSES, weight_bits=8), find("cortex-m7")
    contributions = measured(graph, 4, shares=(Fraction(1),))
    (problem,) = pose_planned(graph, smoothed(contributions), (8,), options, board.working, board.overhead, True)
    rows = []
    for gain, _, biases, choices in everything(problem):
        candidate = problem.candidate(biases, choices)
        rows.append((gain, candidate))
    rows.sort(key=lambda row: -row[0])
    for budget in ("9KB", "10KB", "12KB"):
        found = sm.search(graph, contributions, budget, options=options)
        most = int(float(budget[:-2]) * 1024)
        best = next(gain for gain, candidate in rows if _fits(graph, problem.scheme(candidate), options, board, most))
        assert round(found.gain * UNIT) == best


def _fits(graph: Graph, scheme: Scheme, options: sm.Options, board: object, most: int) -> bool:
    assert isinstance(board, BoardTarget)
    layout = plan(graph, scheme, board, options=options, streamed_input=True)
    return layout.peak + state_bytes(layout.graph) + board.overhead <= most


def test_a_budget_below_the_head_alone_names_the_least_that_works() -> None:
    graph, options = small_network(), sm.Options(CLASSES)
    contributions = measured(graph)
    with pytest.raises(sm.SearchError, match=r"the head alone takes [\d,]+") as raised:
        sm.search(graph, contributions, 1000, options=options)
    least = int(str(raised.value).split("the head alone takes ")[1].split(" ")[0].replace(",", ""))
    assert sm.search(graph, contributions, least, options=options).cost <= least
    with pytest.raises(sm.SearchError):
        sm.search(graph, contributions, least - 1, options=options)


def test_weights_of_a_layer_that_reads_a_streamed_image_are_not_chosen() -> None:
    graph, options = small_network(), sm.Options(CLASSES)
    contributions = measured(graph, 1)
    first = [one for one in contributions.shares if one.layer == 0]
    assert first
    streamed, held = (
        sm.search(graph, contributions, "4MB", options=options, streamed_input=rows) for rows in (True, False)
    )
    assert all(layer > 0 for layer, _ in streamed.scheme.weights)
    assert (0 in dict(held.scheme.weights)) == any(contributions.weights_gain(0, one.share) > 0 for one in first)


def test_an_order_of_nodes_that_cannot_stream_the_image_does_not_stop_a_plan() -> None:
    graph, weights = small_network(), tuple((layer, Fraction(1, 8)) for layer in range(1, 9))
    layout = plan(
        graph,
        Scheme("all", 9, weights),
        find("cortex-m7"),
        options=sm.Options(CLASSES, head_dtype="int8"),
        streamed_input=True,
    )
    assert layout.schedule.streamed_input


def test_narrow_biases_are_refused_with_the_way_to_have_them() -> None:
    with pytest.raises(sm.SmidgenError, match="no schemes are searched for biases of 16 bits; search with 32"):
        sm.search(sm.load("mcunet-5fps"), options=sm.Options(10, bias_bits=16))
