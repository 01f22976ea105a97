"""Estimates of what a group of nodes would hold, from segments between places that a single map crosses.

Rows are asked for on demand, and across such a place only rows of one map are, one after another. So what happens in a
segment depends on nothing but how many rows of the map that leaves it are asked for: rings are found once per segment,
and a group's are the sum. How far a group has read its input by the time it writes a row of its output is found by
composing, segment by segment, how many rows of the map that enters are made for each row of the map that leaves.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate

import numpy as np

from smidgen.ir import Array, Graph, Value
from smidgen.memory.groups import shared_bytes, whole_reads
from smidgen.memory.layout import Overlap, Working, padded
from smidgen.memory.planner import Life, lifetimes
from smidgen.memory.rows import Turns, height, maps, row_bytes, streamable


@dataclass(frozen=True)
class Estimate:
    """The bytes alive while nodes [first, end) run as a group."""

    first: int
    end: int
    alive: int  # every map in its own place
    shared: int  # bytes that two maps have in common, where they overlap
    rings: int  # bytes of ring buffers and working memory: any longer group with this end has as many


@dataclass
class _Flow:
    """A segment as it runs: rows of its rings, and how far its sources are read when rows of other maps are made."""

    rings: dict[Value, int]
    asked: dict[Value, int]  # rows of each source that are made before anything is completed
    made_after: dict[Value, list[int]] = field(default_factory=dict)  # rows of a source, after each of the lead's
    oldest_after: dict[Value, list[int]] = field(default_factory=dict)
    made_at: dict[tuple[Value, Value], list[int]] = field(default_factory=dict)  # by source and map: at each row
    oldest_at: dict[tuple[Value, Value], list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Tail:
    """The part of a group behind a boundary: its rings, and what it asks of the map that enters."""

    rings: int  # bytes
    whole: int  # bytes the same maps would take
    entering: int  # rows of the entering map that its readers hold
    asked: int  # rows of it that are made before anything is completed
    made_at: Mapping[Value, Array]  # by map the group keeps: rows of the entering map made at each of its rows


class Segments:
    """The leading streamable nodes of a graph, cut where a single map crosses."""

    def __init__(self, graph: Graph, streamed_input: bool, working: Working) -> None:
        self.nodes, self.inputs, self.lives = graph.nodes, graph.inputs, lifetimes(graph)
        self.image = graph.image if streamed_input else None
        self.reach = _reach(graph, self.lives)
        self.working = [working(node, True) for node in self.nodes[: self.reach]]
        single = {cut: maps[0] for cut, maps in enumerate(_crossing(self.lives, self.reach)) if len(maps) == 1}
        self.cuts = [cut for cut in range(self.reach + 1) if cut in (0, 1, self.reach) or cut in single]
        self.boundaries: dict[int, Value] = {}  # inside groups: where another map crosses than at the cut before
        before: Value | None = None
        for cut, value in single.items():
            if value not in self.inputs and value != before:
                self.boundaries[cut] = value
            before = value
        self.whole: dict[Value, list[int]] = {}  # the nodes that must have a value before their first row
        for index, node in enumerate(self.nodes[: self.reach]):
            for value in whole_reads(node):
                self.whole.setdefault(value, []).append(index)
        self.least = list(self._least())
        self.begun, self.over = self._sums(0), self._sums(1)
        self._flow = cache(self._run)

    def _sums(self, which: int) -> list[int]:
        """Return for each node the bytes of all that begins (0) before it, or is over (1) when it begins."""
        change = [0] * (len(self.nodes) + 3)
        for value, life in self.lives.items():
            change[life[which] + (1 - which)] += padded(value.type.bytes)
        return list(accumulate(change))

    def _least(self) -> Iterator[int]:
        """Yield the least beginning for each end of a group: it cannot make what one of its nodes must have whole."""
        least = 0
        yield least
        for index in range(self.reach):
            read = [v for v, readers in self.whole.items() if index in readers and v in self.lives]
            made = [self.lives[v][0] + 1 for v in read if v not in self.inputs]
            least = max(least, *made, int(self.image in read))
            yield least

    def estimates(self, end: int) -> Iterator[Estimate]:
        """Yield every group with this end, the shortest first."""
        tails: dict[int, _Tail] = {}
        working = 0
        at = end
        for first in (cut for cut in reversed(self.cuts) if self.least[end] <= cut < end):
            working = max(working, *self.working[first:at])
            at = first
            tail, shared = self._join(first, end, tails)
            if first in self.boundaries:
                tails[first] = tail
            if first > 0 or self.image is None or self.lives[self.image][1] <= end:
                held = self.begun[end] - self.over[first] - tail.whole + tail.rings
                yield Estimate(first, end, held + padded(working), shared, tail.rings + padded(working))

    def _join(self, first: int, end: int, tails: dict[int, _Tail]) -> tuple[_Tail, int]:
        """Return the group as a tail, and the bytes it saves by an overlap."""
        to = next((b for b in reversed(tails) if self._divides(b, first, end)), end)
        tail = tails.get(to)
        flow = self._lead(first, to, tail)
        made = [node.out for node in self.nodes[first:to]]
        rings = {v: flow.rings[v] for v in made if self.lives[v][1] <= end}
        if tail is not None:
            leaving = self.boundaries[to]
            rings[leaving] = max(rings[leaving], tail.entering)
        if first == 0 and self.image is not None:
            rings[self.image] = flow.rings.get(self.image, 1)
        entering = self.boundaries.get(first)
        joined = _Tail(
            sum(padded(rows * row_bytes(v)) for v, rows in rings.items()) + (tail.rings if tail else 0),
            sum(padded(v.type.bytes) for v in rings) + (tail.whole if tail else 0),
            flow.rings.get(entering, 1) if entering else 1,
            flow.asked.get(entering, 0) if entering else 0,
            _made_at(entering, flow, tail) if entering else {},
        )
        return joined, self._shared(first, end, flow, tail)

    def _divides(self, boundary: int, first: int, end: int) -> bool:
        """Return whether the map that crosses a boundary is made and consumed in the group."""
        start, over = self.lives[self.boundaries[boundary]]
        return start >= first and over <= end

    def _lead(self, first: int, to: int, tail: _Tail | None) -> _Flow:
        """Run a segment led by its last node, or by the rows that the next one asks for."""
        if tail is None:
            return self._flow(first, to, to - 1, height(self.nodes[to - 1].out))
        return self._flow(first, to, self.lives[self.boundaries[to]][0], tail.asked)

    def _shared(self, first: int, end: int, flow: _Flow, tail: _Tail | None) -> int:
        """Return the most bytes that a map the group consumes and one it makes can have in common."""
        best = 0
        for source in flow.asked:
            ring = first == 0 and source == self.image
            if ring or self.lives[source][1] > end or any(first <= i < end for i in self.whole.get(source, ())):
                continue
            if tail is None:
                oldest = {m: np.array(rows, int) for (s, m), rows in flow.oldest_at.items() if s == source}
            else:
                after = np.array(flow.oldest_after[source], int)
                oldest = {made: after[rows] for made, rows in tail.made_at.items()}
            for made, wanted in oldest.items():
                if self.lives[made][1] > end:
                    distance = padded(_distance(source, made, wanted))
                    best = max(best, shared_bytes(Overlap(source, made, distance)))
        return best

    def _run(self, first: int, end: int, lead: int, rows: int) -> _Flow:
        """Run nodes [first, end) up to `rows` rows of one of them, then complete the others, and note what is held."""
        nodes = self.nodes[first:end]
        made = {node.out for node in nodes}
        outer = dict.fromkeys(v for node in nodes for v in maps(node) if v not in made and v in self.lives)
        sources = {value: -1 - i for i, value in enumerate(outer)}
        values = {i: node.out for i, node in enumerate(nodes)} | {i: v for v, i in sources.items()}
        turns = Turns(nodes, sources)
        flow = _Flow(dict.fromkeys(values.values(), 1), {})
        kept = {i: v for i, v in values.items() if i >= 0 and self.lives[v][1] > end}

        def follow(index: int, to: int, first_phase: bool) -> None:
            for turn in turns.until(index, to):
                value = values[turn]
                flow.rings[value] = min(max(flow.rings[value], turns.held(turn)), height(value))
                if first_phase:
                    _note_lead(flow, turns, sources, lead - first)
                if turn in kept:
                    _note(flow, turns, sources, value, first_phase)

        follow(lead - first, rows, first_phase=True)
        _note_lead(flow, turns, sources, lead - first)
        flow.asked = {value: turns.done[i] for value, i in sources.items()}
        # Maps from an earlier segment are completed before any node of this one is; the image last of all.
        completed = [(i, height(v)) for v, i in sources.items()] if first else []
        for index, to in (*completed, *((i, height(v)) for i, v in values.items())):
            follow(index, to, first_phase=False)
        return flow


def _made_at(entering: Value, flow: _Flow, tail: _Tail | None) -> dict[Value, Array]:
    """Return the rows of the entering map that are made at each row of the maps the group keeps."""
    if tail is None:
        return {made: np.array(rows, int) for (source, made), rows in flow.made_at.items() if source == entering}
    if entering not in flow.made_after:  # it is not read by rows, so no group makes it
        return {}
    after = np.array(flow.made_after[entering], int)
    return {made: after[rows] for made, rows in tail.made_at.items()}


def _note(flow: _Flow, turns: Turns, sources: Mapping[Value, int], made: Value, first_phase: bool) -> None:
    """Note where the sources are when a map that the group keeps gets its next row."""
    for source, index in sources.items():
        flow.oldest_at.setdefault((source, made), []).append(_oldest(turns, source, index))
        rows = flow.made_at.setdefault((source, made), [])
        if first_phase:  # later, all that stands before the segment is done
            rows.append(turns.done[index])


def _note_lead(flow: _Flow, turns: Turns, sources: Mapping[Value, int], lead: int) -> None:
    """Note where the sources are when these rows of the lead are done and no more are asked for."""
    for source, index in sources.items():
        made = flow.made_after.setdefault(source, [])
        if len(made) == turns.done[lead]:
            made.append(turns.done[index])
            flow.oldest_after.setdefault(source, []).append(_oldest(turns, source, index))


def _oldest(turns: Turns, source: Value, index: int) -> int:
    oldest = turns.oldest(index)
    return height(source) if oldest is None else oldest


def _distance(consumed: Value, made: Value, oldest: Array) -> int:
    """Return how far, at most, what is written of one map is ahead of the oldest row still to be read of the other."""
    written = np.arange(1, len(oldest) + 1) * row_bytes(made)
    ahead = np.where(oldest < height(consumed), written - oldest * row_bytes(consumed), 0)
    return max(0, int(ahead.max(initial=0)))


def _reach(graph: Graph, lives: Mapping[Value, Life]) -> int:
    """Return how many nodes can run row by row before the first that cannot."""
    fits = (streamable(node) and node.out in lives for node in graph.nodes)
    return next((i for i, fit in enumerate(fits) if not fit), len(graph.nodes))


def _crossing(lives: Mapping[Value, Life], reach: int) -> list[list[Value]]:
    """Return for each place between nodes the maps made before it that are read after."""
    crossing: list[list[Value]] = [[] for _ in range(reach + 1)]
    for value, (start, end) in lives.items():
        if len(value.type.shape) == 4:
            for cut in range(start + 1, min(end, reach + 1)):
                crossing[cut].append(value)
    return crossing
