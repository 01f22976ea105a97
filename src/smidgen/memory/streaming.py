"""The groups to stream, under which the fewest bytes are alive at once, and the cut of a step for replay.

A step is cut so that what its frozen front makes of an image, the latent, can stand for the image.

Rows are asked for on demand, from the last node of a group on, and no node asks for rows of one behind it. So what the
nodes of a group do does not depend on those before it: one run of the longest group with an end shows the order, the
rings and the overlaps of every shorter one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import accumulate, pairwise

import numpy as np

from smidgen.errors import InputError, StreamError
from smidgen.ir import Graph, Node, Value, memory_read, virtual_sources
from smidgen.ir.graph import refuse_variables
from smidgen.ir.rewriting import prune
from smidgen.memory.layout import Overlap, Plan, Working, most, padded
from smidgen.memory.planner import Life, buffers, lifetimes, loads_of, packed, roots_of
from smidgen.memory.rows import WHOLE, Cut, Group, Schedule, Turns, height, maps, row_bytes, streamable

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


IMAGE = -1  # in an order: the next row of the image


@dataclass(frozen=True)
class Estimate:
    """The bytes alive while nodes [first, end) run as a group."""

    first: int
    end: int
    alive: int  # every map in its own place
    shared: int  # bytes that two maps have in common, where they overlap
    rings: int  # bytes of ring buffers and working memory: any longer group with this end has as many


def stream(graph: Graph, first: int, end: int, streamed_input: bool) -> Group | None:
    """Return nodes [first, end) as a group; None where one of them cannot run row by row."""
    nodes = graph.nodes[first:end]
    if not nodes or not all(streamable(node) for node in nodes):
        return None
    lives = lifetimes(graph)
    image = graph.image if streamed_input and first == 0 else None
    made = {node.out for node in nodes} | ({image} if image else set())
    if any(v not in lives for v in made) or (image is not None and lives[image][1] > end):
        return None
    if any(made & set(_whole_reads(node)) for node in nodes):
        return None
    run = _Run(graph, first, end, image, lives, roots_of(graph))
    overlap = run.overlap(first)
    return Group(first, end, run.order, run.rings(first), overlap if overlap and shared_bytes(overlap) > 0 else None)


def shared_bytes(overlap: Overlap[Value]) -> int:
    """Return the bytes that lie in both maps; none where the one made ends before the other begins."""
    return min(padded(overlap.made.type.bytes) - overlap.distance, padded(overlap.consumed.type.bytes))


def _whole_reads(node: Node) -> tuple[Value, ...]:
    """Return the inputs of a streamable node that must be there before its first row."""
    return tuple(v for v in node.ins if v not in maps(node))


class _Run:
    """Nodes [first, end) of a graph, run row by row; `image` is the one that is taken by rows, if any."""

    def __init__(
        self, graph: Graph, first: int, end: int, image: Value | None, lives: Mapping[Value, Life],
        roots: Mapping[Value, Value],
    ) -> None:  # fmt: skip
        self.nodes, self.first, self.end, self.image = graph.nodes[first:end], first, end, image
        self.lives, self.roots = lives, roots
        self.turns = Turns(self.nodes, {} if image is None else {image: IMAGE})
        self.kept = [i for i, node in enumerate(self.nodes) if lives[node.out][1] > end]
        values = {i: node.out for i, node in enumerate(self.nodes)} | ({} if image is None else {IMAGE: image})
        self.held = dict.fromkeys(values, 1)  # rows, at most
        self._done: list[tuple[int, ...]] = []  # rows of each node when a kept map gets its next
        self._next: list[int] = []  # whose map that is
        order: list[int] = []
        # The last node leads; what it does not read of the others is completed after.
        for lead in (len(self.nodes) - 1, *values):
            for index in self.turns.until(lead, height(values[lead])):
                order.append(index)
                self.held[index] = min(max(self.held[index], self.turns.held(index)), height(values[index]))
                if index in self.kept:
                    self._done.append(tuple(self.turns.done.values()))
                    self._next.append(index)
        self.order = tuple(order)

    def rings(self, first: int) -> dict[Value, int]:
        """Return the rows held of each map that lives in the group from `first` on alone."""
        own = range(first - self.first, len(self.nodes))
        rings = {self.nodes[i].out: self.held[i] for i in own if self.lives[self.nodes[i].out][1] <= self.end}
        return rings if self.image is None or first else rings | {self.image: self.held[IMAGE]}

    def overlap(self, first: int) -> Overlap[Value] | None:
        """Return the pair of a consumed map and a made map that share most bytes, if there is any pair."""
        skipped, ahead = first - self.first, self._ahead
        pairs = [
            Overlap(value, self.nodes[made].out, padded(max(ahead[i, value, made] for i in readers)))
            for value, readers in self._consumed(skipped)
            for made in self.kept
            if made >= skipped
        ]
        return max(pairs, key=shared_bytes, default=None)

    def _consumed(self, skipped: int) -> Iterator[tuple[Value, list[int]]]:
        """Yield the maps from before a group that it alone reads, by rows and under one name, and who reads them."""
        nodes = self.nodes[skipped:]
        own = {node.out for node in nodes} | ({self.image} if skipped == 0 and self.image else set())
        read = dict.fromkeys(v for node in nodes for v in node.ins if v in self.roots)
        for value in read:
            if value in own or self.lives[self.roots[value]][1] > self.end:
                continue
            readers = [i for i, node in enumerate(nodes, skipped) if value in node.ins]
            by_rows = all(value not in _whole_reads(self.nodes[i]) for i in readers)
            if by_rows and all(v == value or self.roots[v] != self.roots[value] for v in read):
                yield value, readers

    @cached_property
    def _ahead(self) -> dict[tuple[int, Value, int], int]:
        """Return how far, at most, what is written of a map is ahead of the oldest row of another to be read.

        By the reader, what it reads, and the node that writes, whose own reading counts as still to be done.
        """
        done, writers = np.array(self._done, int).reshape(-1, len(self.turns.done)), np.array(self._next, int)
        rows = np.array([row_bytes(node.out) for node in self.nodes])
        written = (done[np.arange(len(done)), writers] + 1) * rows[writers]
        found = {}
        for i, node in enumerate(self.nodes):
            oldest = np.array(self.turns.readings[i].oldest)[done[:, i]]
            for value in (v for v in maps(node) if v in self.roots):
                ahead = np.where(oldest < height(value), written - oldest * row_bytes(value), 0)
                for made in self.kept:
                    found[i, value, made] = max(0, int(ahead[writers == made].max(initial=0)))
        return found


class Groups:
    """All groups of the leading streamable nodes of a graph that begin and end where a single map crosses."""

    def __init__(self, graph: Graph, streamed_input: bool, working: Working) -> None:
        self.graph, self.lives, self.roots = graph, lifetimes(graph), roots_of(graph)
        self.image = graph.image if streamed_input else None
        fits = (streamable(node) and node.out in self.lives for node in graph.nodes)
        self.reach = next((i for i, fit in enumerate(fits) if not fit), len(graph.nodes))
        self.working = [working(node, True) for node in graph.nodes[: self.reach]]
        spans = [life for value, life in self.lives.items() if len(value.type.shape) == 4]
        crossing = [sum(start < cut < end for start, end in spans) for cut in range(self.reach + 1)]
        self.cuts = [cut for cut, maps in enumerate(crossing) if cut in (0, 1, self.reach) or maps == 1]
        self.least = list(self._least())
        self.sizes = [(*life, padded(value.type.bytes)) for value, life in self.lives.items()]
        self._run, self._estimate = cache(self._run_to), cache(self._estimated)

    def _least(self) -> Iterator[int]:
        """Yield the least beginning for each end of a group: it cannot make what one of its nodes must have whole."""
        least = 0
        yield least
        for node in self.graph.nodes[: self.reach]:
            read = [v for v in _whole_reads(node) if v in self.lives]
            made = [self.lives[v][0] + 1 for v in read if v not in self.graph.inputs]
            least = max(least, *made, int(self.image in read))
            yield least

    def _run_to(self, end: int) -> _Run:
        """Run the longest group with this end."""
        first = next(cut for cut in self.cuts if cut >= self.least[end])
        return _Run(self.graph, first, end, None if first else self.image, self.lives, self.roots)

    def estimates(self, end: int) -> Iterator[Estimate]:
        """Yield every group with this end, the shortest first."""
        for first in (cut for cut in reversed(self.cuts) if self.least[end] <= cut < end):
            if first or self.image is None or self.lives[self.image][1] <= end:
                yield self._estimate(first, end)

    def _estimated(self, first: int, end: int) -> Estimate:
        run = self._run(end)
        rings, overlap = run.rings(first), run.overlap(first)
        whole = sum(padded(value.type.bytes) for value in rings)
        held = sum(padded(rows * row_bytes(v)) for v, rows in rings.items()) + padded(max(self.working[first:end]))
        alive = sum(size for start, over, size in self.sizes if start < end and first < over) - whole + held
        return Estimate(first, end, alive, max(0, shared_bytes(overlap)) if overlap else 0, held)
