"""The memory of a program that also learns in one pass: the frozen network beside the step, and a check of both.

The frozen network runs in the step's arena, with the image and the logits at the step's places. Solving takes the whole
arena and, behind it, what is free of the state while samples are observed.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from smidgen.errors import PlanError
from smidgen.ir import Graph, Value, memory_read, virtual_sources
from smidgen.ir.graph import OnePass
from smidgen.memory.checking import check
from smidgen.memory.layout import Buffer, Plan, Working, padded, state_offsets, unused_state
from smidgen.memory.planner import apart, buffers, lifetimes, packed
from smidgen.memory.rows import WHOLE
from smidgen.memory.streaming import PlannedSchedule

ALIGNED = 16  # bytes: the state begins behind the arena, and is aligned as it


@dataclass(frozen=True)
class Phases:
    """The frozen network and solving, each with its plan, and the arena that all phases share."""

    collect: PlannedSchedule
    solve: Plan
    arena_bytes: int


def beside_image(step: PlannedSchedule, collect: Graph) -> PlannedSchedule:
    """Return a step's plan with its logits apart from the image where the frozen network needs both at once.

    A step has read the image when it gives the logits, which may take its place. Where nothing stands before the head
    the image is the features, and these are observed after the logits: they then lie behind everything else.
    """
    lives, places, scores = lifetimes(collect), step.plan.values(), step.graph.scores
    image, logits = places.get(step.graph.image), places[scores]
    if image is None or lives[collect.image][1] <= lives[collect.outputs[0]][0]:
        return step
    if image >= logits + scores.type.bytes or logits >= image + step.graph.image.type.bytes:
        return step
    offsets = (step.plan.peak if scores in buffer.values else offset for buffer, offset in step.plan.placed)
    return replace(step, plan=replace(step.plan, offsets=tuple(offsets)))


def lay_out_phases(graph: Graph, step: PlannedSchedule, collect: PlannedSchedule, working: Working) -> Phases:
    """Return the plans of one pass beside that of the step; `collect` is the frozen network's own best."""
    one_pass = _parts(graph)
    places, needed = step.plan.values(), buffers(collect.graph, collect.schedule, working=working)
    pairs = ((collect.graph.image, graph.image), (collect.graph.outputs[0], graph.scores))
    held = {own: places[other] for own, other in pairs if collect.schedule.rows(own) is None}
    plans = [_place(apart(needed), held), *_moved(collect, held, working)]
    beside = replace(collect, plan=min(plans, key=lambda plan: plan.peak))
    solve = packed(buffers(one_pass.solve, working=working))
    most = max(step.peak, beside.peak, solve.peak - unused_state(graph))
    return Phases(beside, solve, -(-most // ALIGNED) * ALIGNED)


def _parts(graph: Graph) -> OnePass:
    assert graph.one_pass is not None
    return graph.one_pass


def _moved(collect: PlannedSchedule, held: Mapping[Value, int], working: Working) -> Iterator[Plan]:
    """Yield the frozen network's own plan with those that are held elsewhere moved there, where the run allows it."""
    pairs = collect.plan.placed
    offsets = tuple(next((held[v] for v in b.values if v in held), offset) for b, offset in pairs)
    with suppress(PlanError):
        check(collect.graph, plan := replace(collect.plan, offsets=offsets), collect.schedule, working=working)
        yield plan


def _place(needed: tuple[Buffer, ...], held: Mapping[Value, int]) -> Plan:
    """Place those that are held, then the largest first, each at the lowest offset where nothing else is alive."""
    offsets = {i: held[v] for i, b in enumerate(needed) for v in b.values if v in held}
    for index in sorted(range(len(needed)), key=lambda i: (-needed[i].bytes, needed[i].start)):
        if index in offsets:
            continue
        buffer, offset = needed[index], 0
        taken = sorted((at, at + needed[i].padded) for i, at in offsets.items() if _together(needed[i], buffer))
        for low, high in taken:
            if offset + buffer.padded <= low:
                break
            offset = max(offset, high)
        offsets[index] = offset
    return Plan(needed, tuple(offsets[i] for i in range(len(needed))))


def _together(a: Buffer, b: Buffer) -> bool:
    return a.start < b.end and b.start < a.end


def check_phases(graph: Graph, phases: Phases, working: Working) -> None:
    """Raise PlanError unless each phase finds what it reads, and none writes over what another phase left for it.

    State that a node reads belongs to its phase. State of one phase alone may share memory with that of another.
    """
    one_pass, places = _parts(graph), state_offsets(graph)
    check(phases.collect.graph, phases.collect.plan, phases.collect.schedule, working=working)
    check(one_pass.solve, phases.solve, WHOLE, working=working)
    used = [_state_read(one) for one in (graph, one_pass.collect, one_pass.solve)]
    used[1] |= {*one_pass.sums, one_pass.phase}
    used[2] |= {*one_pass.sums, one_pass.phase}
    used[0] |= {one_pass.phase}
    parts = {v: (at, at + padded(v.type.bytes)) for v, at in places.items()}
    for a, (low, high) in parts.items():
        if low < 0 or low % 4 or not any(a in phase for phase in used):
            raise PlanError(f"%{a.name}, state of {graph.name}, lies at {low:,} and no phase uses it")
        for b, (other, end) in parts.items():
            if a != b and low < end and other < high and any(a in phase and b in phase for phase in used):
                raise PlanError(
                    f"%{a.name} and %{b.name} share memory of {graph.name}'s state, and one phase uses both"
                )
    free = min(parts[v][0] for v in used[2])
    if phases.solve.peak > phases.arena_bytes + free or phases.collect.peak > phases.arena_bytes:
        raise PlanError(f"one pass of {graph.name} leaves its arena of {phases.arena_bytes:,} bytes")


def _state_read(graph: Graph) -> set[Value]:
    """Return the state that nodes of a graph read."""
    sources = virtual_sources(graph)
    return {v for node in graph.nodes for v in (*memory_read(node, sources), *node.ins) if v in graph.state}
