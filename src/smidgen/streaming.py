"""Whether to stream, and how far: the groups under which the fewest bytes are alive at once."""

from __future__ import annotations

from dataclasses import replace

from smidgen import plan
from smidgen.errors import PlanError
from smidgen.ir import Graph, Value
from smidgen.plan import Plan
from smidgen.schedule import Group, Schedule, stream, streamable

Cost = tuple[int, int]  # bytes alive at the peak, then nodes streamed: streaming that gains nothing is not worth it


def lay_out(graph: Graph, streamed_input: bool = False) -> tuple[Schedule, Plan]:
    """A schedule and its plan, in which maps grow into each other's place only if that lowers the peak."""
    schedule = choose(graph, streamed_input)
    layout = plan.packed(plan.buffers(graph, schedule))
    apart = choose(graph, streamed_input, slides=False)
    buffers = plan.buffers(graph, apart)
    if layout.peak <= plan.most(buffers):
        return schedule, layout
    other = plan.packed(buffers)
    return (schedule, layout) if layout.peak <= other.peak else (apart, other)


def choose(graph: Graph, streamed_input: bool = False, slides: bool = True) -> Schedule:
    """The best division of the leading streamable nodes into groups and nodes on their own.

    What is alive while a group runs does not depend on how other nodes run, so the best way to reach a node
    is the best way to one before it, and then a group, or that node alone.
    """
    reach = next((i for i, node in enumerate(graph.nodes) if not streamable(node)), len(graph.nodes))
    if streamed_input and reach == 0:
        what = type(graph.nodes[0].op).__name__ if graph.nodes else "nothing"
        raise PlanError(f"the image of {graph.name} cannot be streamed: its first reader, {what}, needs it whole")
    alone = dict(plan.loads_of(graph))
    lives = _lifetimes(graph)
    cuts = [i for i in range(reach + 1) if i in (0, 1, reach) or _crossing(lives, i) == 1]
    best: dict[int, tuple[Cost, tuple[Group, ...]]] = {0: ((0, 0), ())}
    for end in cuts[1:]:
        options = []
        for first in (cut for cut in cuts if cut < end and cut in best):
            (peak, streamed), groups = best[first]
            if not (streamed_input and first == 0):
                single = max((alone.get(i, 0) for i in range(first, end)), default=0)
                options.append(((max(peak, single), streamed), groups))
            group = stream(graph, first, end, streamed_input)
            if group is not None:
                group = group if slides else replace(group, slide=None)
                cost = (max(peak, _alive(graph, lives, group)), streamed + end - first)
                options.append((cost, (*groups, group)))
        if options:
            best[end] = min(options, key=lambda option: option[0])
    rest = {end: max((load for i, load in alone.items() if i >= end), default=0) for end in best}
    ends = [end for end in best if end or not streamed_input]
    if not ends:
        reader = next(node for node in reversed(graph.nodes) if graph.inputs[0] in node.ins)
        raise PlanError(
            f"the image of {graph.name} cannot be streamed: %{reader.outs[0].name} reads it again, after the first "
            "layers; hold it whole, or let the layer that reads it stay as it is"
        )
    chosen = min(ends, key=lambda end: (max(best[end][0][0], rest[end]), best[end][0][1]))
    return Schedule(best[chosen][1], streamed_input)


def _lifetimes(graph: Graph) -> dict[Value, tuple[int, int]]:
    """From the node that makes a value to behind the last that reads it, constants and state left out."""
    lives: dict[Value, tuple[int, int]] = dict.fromkeys(graph.inputs, (0, 0))
    for index, node in enumerate(graph.nodes):
        for value in node.ins:
            if value in lives:
                lives[value] = (lives[value][0], index + 1)
        lives.update({value: (index, index + 1) for value in node.outs if value not in graph.updates.values()})
    return lives | {v: (lives[v][0], len(graph.nodes)) for v in graph.outputs if v in lives}


def _crossing(lives: dict[Value, tuple[int, int]], cut: int) -> int:
    """How many maps made before a node are read by it or after."""
    return sum(start < cut < end for value, (start, end) in lives.items() if len(value.type.shape) == 4)


def _alive(graph: Graph, lives: dict[Value, tuple[int, int]], group: Group) -> int:
    """Bytes alive while a group runs."""
    schedule = Schedule((group,))
    held = sum(schedule.bytes(v) for v, (start, end) in lives.items() if start < group.end and end > group.first)
    slide = group.slide
    shared = 0 if slide is None else min(slide.made.type.bytes - slide.distance, slide.consumed.type.bytes)
    return held - shared + max(node.op.row_scratch(node) for node in graph.nodes[group.first : group.end])
