"""The check of plans, checked: plans are broken at random, and whatever changes a result is refused.

Whether a broken plan changes a result is decided by running it on a real block of bytes (`arena`), which shares nothing
with the check; and rules of the planner are broken, which the check must not share either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.chains import residual_network
from smidgen.errors import PlanError
from smidgen.ir import Array, Graph, Node, evaluate_step
from smidgen.memory import Buffer, Plan, buffers, check, overlapping, planner, rows, streaming
from smidgen.memory.layout import Overlap
from smidgen.memory.rows import Group, Schedule, streamable
from smidgen.memory.streaming import stream
from smidgen.ops import Depthwise
from smidgen.training import Options, build_training, passes
from smidgen.training.scheme import load_scheme
from tests.support.arena import outcome
from tests.support.graphs import int8_graphs, random_inputs
from tests.support.map_graphs import map_graphs
from tests.support.native import portable
from tests.support.networks import CLASSES, NETWORKS, samples
from tests.support.plans import greedy
from tests.support.tiers import examples

Broken = tuple[Plan, Schedule]
PER_PLAN = 40  # mutations


@dataclass(frozen=True)
class Case:
    """A graph, a sound plan of it, and inputs to run it on."""

    graph: Graph
    plan: Plan
    schedule: Schedule
    arrays: tuple[Array, ...]

    def expected(self) -> tuple[bytes, ...]:
        outputs, after = evaluate_step(self.graph, self.graph.state, *self.arrays)
        return tuple(array.tobytes() for array in (*outputs, *(after[v] for v in self.graph.state)))


def place(plan: Plan, index: int, offset: int) -> Plan:
    return replace(plan, offsets=(*plan.offsets[:index], offset, *plan.offsets[index + 1 :]))


def alter(plan: Plan, index: int, buffer: Buffer) -> Plan:
    return replace(plan, buffers=(*plan.buffers[:index], buffer, *plan.buffers[index + 1 :]))


def moved(case: Case, random: Random) -> Broken:
    """A buffer elsewhere: a word or a row off, over another one, or anywhere."""
    plan = case.plan
    index, other = (random.randrange(len(plan.buffers)) for _ in range(2))
    step = random.choice((4, -4, 8, -8, 16, -16))
    anywhere = random.randrange(max(1, plan.peak // 4)) * 4
    to = random.choice((max(0, plan.offsets[index] + step), plan.offsets[other], anywhere))
    return place(plan, index, to), case.schedule


def hidden(case: Case, random: Random) -> Broken:
    """A buffer moved onto another while lifetimes say that they never meet."""
    plan = case.plan
    index, other = (random.randrange(len(plan.buffers)) for _ in range(2))
    short = replace(plan.buffers[index], start=10**6, end=10**6 + 1)
    lie = alter(plan, index, short if plan.buffers[index].values else plan.buffers[index])
    return place(lie, index, plan.offsets[other] + 4 * random.randrange(3)), case.schedule


def excused(case: Case, random: Random) -> Broken:
    """A buffer moved onto another that it is said to overlap."""
    plan = case.plan
    index, other = (random.randrange(len(plan.buffers)) for _ in range(2))
    consumed, made = plan.buffers[index].values, plan.buffers[other].values
    if not consumed or not made:
        return moved(case, random)
    said = alter(plan, index, replace(plan.buffers[index], overlap=Overlap(consumed[0], made[0], 0)))
    return place(said, index, plan.offsets[other] + 4 * random.randrange(4)), case.schedule


def relived(case: Case, random: Random) -> Broken:
    """A buffer that lives a node longer or shorter: of working memory, who may use it changes."""
    plan = case.plan
    working = [i for i, b in enumerate(plan.buffers) if not b.values]
    index = random.choice(working) if working and random.random() < 0.7 else random.randrange(len(plan.buffers))
    buffer = plan.buffers[index]
    start, end = random.choice(((1, 0), (-1, 0), (0, -1), (0, 1)))
    lie = replace(buffer, start=max(0, buffer.start + start), end=buffer.end + end)
    return alter(plan, index, lie), case.schedule


def shortened(case: Case, random: Random) -> Broken:
    """A buffer of fewer bytes, which may make the arena too small."""
    plan = case.plan
    index = random.randrange(len(plan.buffers))
    buffer = plan.buffers[index]
    return alter(plan, index, replace(buffer, bytes=max(1, buffer.bytes - random.choice((4, 16, 64))))), case.schedule


def dealt(case: Case, random: Random) -> Broken:
    """A value taken out of its buffer, or put into another."""
    plan = case.plan
    index, other = (random.randrange(len(plan.buffers)) for _ in range(2))
    if not plan.buffers[index].values:
        return moved(case, random)
    value = random.choice(plan.buffers[index].values)
    without = replace(plan.buffers[index], values=tuple(v for v in plan.buffers[index].values if v is not value))
    plan = alter(plan, index, without)
    if random.random() < 0.8:
        plan = alter(plan, other, replace(plan.buffers[other], values=(*plan.buffers[other].values, value)))
    return plan, case.schedule


def regrouped(case: Case, group: Group, changed: Group) -> Broken:
    groups = tuple(changed if one is group else one for one in case.schedule.groups)
    return case.plan, replace(case.schedule, groups=groups)


def ringed(case: Case, random: Random) -> Broken:
    """A ring of a row more or less."""
    with_rings = [group for group in case.schedule.groups if group.rings]
    if not with_rings:
        return moved(case, random)
    group = random.choice(with_rings)
    value = random.choice(list(group.rings))
    rings = {**group.rings, value: group.rings[value] + random.choice((-1, -1, 1))}
    return regrouped(case, group, replace(group, rings=rings))


def reordered(case: Case, random: Random) -> Broken:
    """Two turns swapped, one moved, left out or taken twice."""
    if not case.schedule.groups:
        return moved(case, random)
    group = random.choice(case.schedule.groups)
    order = list(group.order)
    at, to = random.randrange(len(order)), random.randrange(len(order))
    kind = random.randrange(4)
    if kind == 0:
        order[at], order[to] = order[to], order[at]
    elif kind == 1:
        order.insert(to, order.pop(at))
    elif kind == 2:
        del order[at]
    else:
        order.insert(to, order[at])
    return regrouped(case, group, replace(group, order=tuple(order)))


MUTATIONS: tuple[Callable[[Case, Random], Broken], ...] = (
    moved, hidden, excused, relived, shortened, dealt, ringed, reordered,
)  # fmt: skip


def accepted(case: Case, plan: Plan, schedule: Schedule) -> bool:
    try:
        check(case.graph, plan, schedule, working=portable)
    except PlanError:
        return False
    return True


def count(case: Case, seed: int) -> Counter[str]:
    """Break a plan in many ways; how many were tried, changed a result, and were caught. All of those must be."""
    expected = case.expected()
    assert accepted(case, case.plan, case.schedule)
    assert outcome(case.graph, case.plan, case.schedule, case.arrays) == expected
    if not case.plan.buffers:
        return Counter()
    found: Counter[str] = Counter()
    random = Random(seed)
    for number in range(PER_PLAN):
        mutation = MUTATIONS[number % len(MUTATIONS)]
        plan, schedule = mutation(case, random)
        changed = outcome(case.graph, plan, schedule, case.arrays) != expected
        passed = accepted(case, plan, schedule)
        assert not (changed and passed), f"{mutation.__name__} changes a result, and the check accepts it"
        found += Counter({"tried": 1, "changed": int(changed), "refused": int(not passed)})
        found[f"changed by {mutation.__name__}"] += changed
    return found


def grouped(graph: Graph, random: Random, streamed_input: bool) -> Schedule:
    """Runs of nodes that can be streamed, cut into groups at random."""
    groups: list[Group] = []
    first = 0
    while first < len(graph.nodes):
        end = first
        while end < len(graph.nodes) and streamable(graph.nodes[end]):
            end += 1
        end = random.randint(first, end)
        group = stream(graph, first, end, streamed_input)
        groups += [group] if group else []
        first = max(end, first + 1)
    return Schedule(tuple(groups), bool(streamed_input and groups and groups[0].first == 0))


def cases(graph: Graph, arrays: tuple[Array, ...], random: Random) -> Iterator[Case]:
    """A graph with whole maps, and streamed in groups with overlaps and without."""
    yield Case(graph, greedy(buffers(graph, working=portable)), Schedule(), arrays)
    for streamed_input in (False, True):
        schedule = grouped(graph, random, streamed_input)
        held = buffers(graph, schedule, working=portable)
        if held and schedule.groups:
            yield Case(graph, overlapping(held, decisions=1000), schedule, arrays)


@pytest.mark.sampled
def test_no_mutation_of_a_plan_that_changes_a_result_is_accepted() -> None:
    total: Counter[str] = Counter()

    @settings(max_examples=examples(60, quick=8), suppress_health_check=list(HealthCheck))
    @given(st.one_of(int8_graphs(max_nodes=8), map_graphs(8)), st.integers(0, 2**32 - 1))
    def agree(graph: Graph, seed: int) -> None:
        nonlocal total
        arrays = random_inputs(graph, np.random.default_rng(seed))
        for case in cases(graph, arrays, Random(seed)):
            total += count(case, seed)
            total["plans"] += 1
            total["plans with overlaps"] += any(b.overlap for b in case.plan.buffers)

    agree()
    for network in NETWORKS:
        graph = network(5)
        step = passes.run(build_training(graph, load_scheme("last:2", graph), Options(CLASSES)).step)
        ((image, label),) = samples(graph, 1)
        arrays = (image, np.array([label], np.int32), np.array([0.01], np.float32))
        for case in islice(cases(step, arrays, Random(0)), 3):
            total += count(case, seed=1)
            total["plans"] += 1
    print(dict(total))
    assert total["tried"] >= examples(4000)
    assert total["changed"] >= examples(1000)
    assert total["plans with overlaps"] >= examples(30, quick=3)
    for mutation in MUTATIONS:
        assert total[f"changed by {mutation.__name__}"] >= examples(20, quick=3), mutation.__name__


def late(node: Node) -> rows.Reading:
    """Every row is there one too early."""
    right = READING(node)
    return replace(right, needed=[max(0, rows - 1) for rows in right.needed])


def forgetful(node: Node) -> rows.Reading:
    """Every row is given up one too early."""
    right = READING(node)
    return replace(right, oldest=[rows + 1 for rows in right.oldest])


READING, HELD, AHEAD, LIFETIMES = rows.reading, rows.Turns.held, vars(streaming._Run)["_ahead"].func, planner.lifetimes
RULES: dict[str, tuple[object, str, object]] = {
    "rows needed": (rows, "reading", late),
    "rows still wanted": (rows, "reading", forgetful),
    "ring sizes": (rows.Turns, "held", lambda turns, index: max(1, HELD(turns, index) - 1)),
    "distance of an overlap": (
        streaming._Run, "_ahead", property(lambda run: {key: ahead - 4 for key, ahead in AHEAD(run).items()}),
    ),
    "reach of a window": (
        Depthwise, "row_window", lambda op, node: replace(op.window(node.ins[1].type).rows, reach=1),
    ),
    "lifetimes": (
        planner, "lifetimes", lambda graph: {v: (a, max(a + 1, b - 1)) for v, (a, b) in LIFETIMES(graph).items()},
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_a_wrong_rule_of_the_planner_is_caught(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = residual_network(14, size=16)
    # Lifetimes matter where maps are whole; distances where the map made is larger than the one consumed.
    end = {"lifetimes": 0, "distance of an overlap": 1}.get(rule, len(graph.nodes))

    def plan_and_check() -> None:
        group = stream(graph, 0, end, streamed_input=False)
        schedule = Schedule((group,) if group else ())
        check(graph, overlapping(buffers(graph, schedule, working=portable)), schedule, working=portable)

    plan_and_check()
    monkeypatch.setattr(*RULES[rule])
    with pytest.raises(PlanError):
        plan_and_check()


@pytest.mark.parametrize("short", [4, 64])
def test_working_memory_that_is_planned_too_small_is_caught(short: int) -> None:
    graph = residual_network(14, size=16)
    layout = streaming.stream_rows(graph, working=lambda node, by_row: max(0, portable(node, by_row) - short))
    with pytest.raises(PlanError):
        check(layout.graph, layout.plan, layout.schedule, working=portable)
