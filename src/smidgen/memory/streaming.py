"""Whether to stream, and how far: the groups under which the fewest bytes are alive at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from smidgen.errors import PlanError
from smidgen.ir import Graph, Value
from smidgen.memory.layout import Plan, most
from smidgen.memory.lives import buffers, loads_of
from smidgen.memory.planning import packed
from smidgen.memory.rows import WHOLE, Group, Schedule, stream, streamable

Groups = dict[tuple[int, int], Group | None]  # by the nodes [first, end) they would run
Cost = tuple[int, int]  # bytes alive at the peak, then nodes streamed: streaming that gains nothing is not worth it


@dataclass(frozen=True)
class Layout:
    """A graph in an order, what of it is streamed, and where everything lies."""

    graph: Graph
    schedule: Schedule
    plan: Plan

    @property
    def peak(self) -> int:
        return self.plan.peak


def lay_out(graph: Graph, schedule: Schedule = WHOLE) -> Layout:
    """The plan of a schedule."""
    return Layout(graph, schedule, packed(buffers(graph, schedule)))


def stream_rows(graph: Graph, streamed_input: bool = False) -> Layout:
    """The best schedule and its plan, in which maps grow into each other's place only if that lowers the peak."""
    groups = _groups(graph, streamed_input)
    layout = lay_out(graph, _choose(graph, streamed_input, groups))
    apart = _choose(graph, streamed_input, _apart(groups))
    if layout.peak <= most(buffers(graph, apart)):
        return layout
    return min(layout, lay_out(graph, apart), key=lambda one: one.peak)


def choose(graph: Graph, streamed_input: bool = False, slides: bool = True) -> Schedule:
    """The groups under which the fewest bytes are alive at once, without maps in each other's place if not `slides`."""
    groups = _groups(graph, streamed_input)
    return _choose(graph, streamed_input, groups if slides else _apart(groups))


def _groups(graph: Graph, streamed_input: bool) -> Groups:
    """Every group that could be: between two places that a single map crosses, before the first node that cannot."""
    reach = next((i for i, node in enumerate(graph.nodes) if not streamable(node)), len(graph.nodes))
    if streamed_input and reach == 0:
        what = type(graph.nodes[0].op).__name__ if graph.nodes else "nothing"
        raise PlanError(f"the image of {graph.name} cannot be streamed: its first reader, {what}, needs it whole")
    lives = _lifetimes(graph)
    cuts = [i for i in range(reach + 1) if i in (0, 1, reach) or _crossing(lives, i) == 1]
    return {
        (first, end): stream(graph, first, end, streamed_input) for end in cuts[1:] for first in cuts if first < end
    }


def _apart(groups: Groups) -> Groups:
    """The same groups, with every map in a place of its own."""
    return {span: group and replace(group, slide=None) for span, group in groups.items()}


def _choose(graph: Graph, streamed_input: bool, groups: Groups) -> Schedule:
    """The best division of the leading streamable nodes into groups and nodes on their own.

    What is alive while a group runs does not depend on how other nodes run, so the best way to reach a node
    is the best way to one before it, and then a group, or that node alone.
    """
    alone = dict(loads_of(graph))
    lives = _lifetimes(graph)
    best: dict[int, tuple[Cost, tuple[Group, ...]]] = {0: ((0, 0), ())}
    for end in dict.fromkeys(end for _, end in groups):
        options = []
        for first in (first for first in best if (first, end) in groups):
            (peak, streamed), before = best[first]
            if not (streamed_input and first == 0):
                single = max((alone.get(i, 0) for i in range(first, end)), default=0)
                options.append(((max(peak, single), streamed), before))
            group = groups[first, end]
            if group is not None:
                cost = (max(peak, _alive(graph, lives, group)), streamed + end - first)
                options.append((cost, (*before, group)))
        if options:
            best[end] = min(options, key=lambda option: option[0])
    rest = {end: max((load for i, load in alone.items() if i >= end), default=0) for end in best}
    ends = [end for end in best if end or not streamed_input]
    if not ends:
        reader = next(node for node in reversed(graph.nodes) if graph.image in node.ins)
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
