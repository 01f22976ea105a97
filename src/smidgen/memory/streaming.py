"""The groups to stream, under which the fewest bytes are alive at once, and the cut of a step for replay.

A step is cut so that what its frozen front makes of an image, the latent, can stand for the image.
"""

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from smidgen.errors import InputError, StreamError
from smidgen.ir import Graph, Value, memory_read, virtual_sources
from smidgen.ir.graph import refuse_variables
from smidgen.ir.rewriting import prune
from smidgen.memory.groups import Groups, stream
from smidgen.memory.layout import Plan, Working, most
from smidgen.memory.planner import buffers, loads_of, packed, roots_of
from smidgen.memory.rows import WHOLE, Cut, Schedule

Cost = tuple[int, int]  # bytes alive at the peak, then nodes streamed: streaming that gains nothing is not worth it
Spans = tuple[tuple[int, int], ...]  # the nodes [first, end) of each group


@dataclass(frozen=True)
class PlannedSchedule:
    """A graph in an order, what of it is streamed, and where everything lies."""

    graph: Graph
    schedule: Schedule
    plan: Plan

    @property
    def peak(self) -> int:
        return self.plan.peak


def lay_out(graph: Graph, schedule: Schedule = WHOLE, *, working: Working) -> PlannedSchedule:
    """Return the plan of a schedule."""
    return PlannedSchedule(graph, schedule, packed(buffers(graph, schedule, working=working)))


def stream_rows(
    graph: Graph, streamed_input: bool = False, *, working: Working, where: Cut | None = None
) -> PlannedSchedule:
    """Return the best schedule and its plan; maps overlap only if that lowers the peak, and no group spans a cut."""
    groups = groups_of(graph, streamed_input, working)
    layout = lay_out(graph, choose(graph, groups, working, overlaps=True, where=where), working=working)
    apart = choose(graph, groups, working, overlaps=False, where=where)
    if layout.peak <= most(buffers(graph, apart, working=working)):
        return layout
    return min(layout, lay_out(graph, apart, working=working), key=lambda one: one.peak)


def streams_input(graph: Graph, working: Working) -> bool:
    """Return whether a graph can take its image row by row; a first layer such as a dense one needs it whole."""
    return Groups(graph, True, working).reach > 0


def groups_of(graph: Graph, streamed_input: bool, working: Working) -> Groups:
    """Return the groups of a graph; StreamError where its image should come by rows and cannot."""
    groups = Groups(graph, streamed_input, working)
    if streamed_input and groups.reach == 0:
        what = type(graph.nodes[0].op).__name__ if graph.nodes else "nothing"
        raise StreamError(f"the image of {graph.name} cannot be streamed: its first reader, {what}, needs it whole")
    return groups


def choose(graph: Graph, groups: Groups, working: Working, overlaps: bool, where: Cut | None = None) -> Schedule:
    """Return the best division of the leading streamable nodes into groups and single nodes, by dynamic programming.

    Under it the fewest bytes are alive at once; without `overlaps` no map takes another's place.
    What is alive while a group runs does not depend on how other nodes run, so the best way to reach a node
    is the best way to one before it, and then a group, or that node alone.
    """
    streamed_input = groups.image is not None
    alone = dict(loads_of(graph, working=working))
    best: dict[int, tuple[Cost, Spans]] = {0: ((0, 0), ())}
    for before, end in pairwise(groups.cuts):
        if before in best and not (streamed_input and before == 0):
            (peak, streamed), spans = best[before]
            best[end] = (max(peak, *(alone.get(i, 0) for i in range(before, end))), streamed), spans
        for group in groups.estimates(end):
            if end in best and group.rings > best[end][0][0]:
                break  # and so it is with every longer one
            if group.first not in best or (where is not None and group.first < where.at < end):
                continue
            (peak, streamed), spans = best[group.first]
            alive = group.alive - group.shared if overlaps else group.alive
            cost = max(peak, alive), streamed + end - group.first
            if end not in best or cost <= best[end][0]:
                best[end] = cost, (*spans, (group.first, end))
    # For each node the most bytes alive at it or later, every map whole.
    rest = list(accumulate((alone.get(i, 0) for i in range(len(graph.nodes), -1, -1)), max))[::-1]
    ends = [end for end in best if end or not streamed_input]
    if not ends:
        raise StreamError(_read_again(graph))
    chosen = min(ends, key=lambda end: (max(best[end][0][0], rest[end]), best[end][0][1]))
    chosen_groups = (stream(graph, first, end, streamed_input) for first, end in best[chosen][1])
    kept = (group if overlaps else replace(group, overlap=None) for group in chosen_groups if group is not None)
    return Schedule(tuple(kept), streamed_input, where)


def _read_again(graph: Graph) -> str:
    reader = next(node for node in reversed(graph.nodes) if graph.image in node.ins)
    return (
        f"the image of {graph.name} cannot be streamed: %{reader.outs[0].name} reads it again, after the first "
        "layers; hold it whole, or leave the layer that reads it unchanged"
    )


def cut(graph: Graph, streamed_input: bool = False) -> Cut:
    """Return the cut with the fewest bytes at or before the first node that reads what learns; of several, the last.

    Where even the first layer learns the latent is the image, which then has to lie in memory.
    """
    if graph.roles is None:
        raise InputError(f"{graph.name} is compiled without a scheme: there is nothing to replay; name one")
    refuse_variables(graph, "replay")
    cuts = [Cut(at, crossing(graph, at)) for at in range(_first_learned(graph) + 1)]
    if streamed_input:
        cuts = [one for one in cuts if graph.image not in one.latent]
    if not cuts:
        raise StreamError(
            f"the first layer of {graph.name} learns, and so its image is what is replayed, and cannot be streamed; "
            "hold it whole, or freeze the first layers"
        )
    return min(cuts, key=lambda one: (one.bytes, -one.at))


def crossing(graph: Graph, at: int) -> tuple[Value, ...]:
    """Return what nodes from `at` on read of the image and of the nodes before, each piece of memory once."""
    roots, sources = roots_of(graph), virtual_sources(graph)
    made = {graph.image, *(v for node in graph.nodes[:at] for v in node.outs)}
    read = [v for node in graph.nodes[at:] for v in memory_read(node, sources)]
    found: dict[Value, Value] = {}
    for value in (*read, *graph.outputs):
        if value in made and value in roots:
            found.setdefault(roots[value], value)
    return tuple(found.values())


def front(graph: Graph, where: Cut) -> Graph:
    """Return the graph from the image to the latent: programs with the same one understand each other's latents."""
    nodes = graph.nodes[: where.at]
    return prune(
        Graph((graph.image,), where.latent, nodes, graph.constants, graph.name, preprocessing=graph.preprocessing)
    )


def _first_learned(graph: Graph) -> int:
    """Return the first node that computes with state."""
    sources = virtual_sources(graph)
    for index, node in enumerate(graph.nodes):
        if not node.op.view and any(v in graph.state for v in memory_read(node, sources)):
            return index
    raise InputError(f"nothing of {graph.name} learns: there is nothing to replay")
