"""Lifetimes, read off the node order: what needs memory in the arena, and from when to when."""

from __future__ import annotations

from collections.abc import Iterator

from smidgen.ir import Graph, Node, Value, memory_read, virtual_sources
from smidgen.memory.layout import ALIGNMENT, Above, Buffer, loads
from smidgen.memory.rows import WHOLE, Schedule


def buffers(graph: Graph, schedule: Schedule = WHOLE) -> tuple[Buffer, ...]:
    """What needs memory in the arena, and when: inputs, activations and outputs by birth, then working memory.

    A view's output uses its input's memory, and so does an in-place op's where nobody reads the input later.
    State lies apart (`state_offsets`), and what replaces it takes its place there. The nodes of a streamed
    group take turns row by row, so what one of them uses lives as long as the group.
    """
    lives = _Lives(graph, schedule)
    for value in graph.inputs:
        lives.begin(value, value, 0)
    for index, node in enumerate(graph.nodes):
        lives.run(index, node)
    return (*lives.values(), *_working(graph, schedule))


def loads_of(graph: Graph) -> Iterator[tuple[int, int]]:
    """The bytes alive at each node where something begins, every map whole."""
    return loads(buffers(graph))


class _Lives:
    """Which value's memory each value uses, and from when to when that memory is in use."""

    def __init__(self, graph: Graph, schedule: Schedule) -> None:
        self.nodes, self.schedule = graph.nodes, schedule
        self.apart = {*graph.updates.values(), *virtual_sources(graph)}
        sources = virtual_sources(graph)
        self.last = {
            value: schedule.span(index)[1]
            for index, node in enumerate(graph.nodes)
            for value in memory_read(node, sources)
        }
        self.last |= dict.fromkeys(graph.outputs, len(graph.nodes) + 1)
        self.homes: dict[Value, Value] = {}
        self.start: dict[Value, int] = {}
        self.end: dict[Value, int] = {}

    def begin(self, value: Value, home: Value, index: int) -> None:
        start, end = self.schedule.span(index)
        self.homes[value] = home
        self.start.setdefault(home, start)
        self.end[home] = max(self.end.get(home, 0), self.last.get(value, end), end)

    def run(self, index: int, node: Node) -> None:
        donor = _donor(node)
        home = self.homes.get(donor) if donor else None
        if node.op.view:
            if home:  # else the view of a constant or of state, which needs no memory either
                self.begin(node.out, home, index)
            return
        free = home is not None and not self.schedule.streams(index) and self.end[home] == index + 1
        for value in node.outs:
            if value not in self.apart:
                self.begin(value, home if home and free and value is node.outs[0] else value, index)

    def values(self) -> Iterator[Buffer]:
        used: dict[Value, list[Value]] = {home: [] for home in self.start}
        for value, home in self.homes.items():
            used[home].append(value)
        for home, start in self.start.items():
            above = self.above(home, used)
            yield Buffer(home.name, self.schedule.bytes(home), start, self.end[home], tuple(used[home]), above)

    def above(self, home: Value, used: dict[Value, list[Value]]) -> Above | None:
        """Where a group consumes a map that nobody else reads, in any form: the map it makes in its place."""
        for group in self.schedule.groups:
            slide = group.slide
            if slide is None or self.homes.get(slide.consumed) is not home or self.end[home] != group.end:
                continue
            read = {v for node in self.nodes[group.first : group.end] for v in node.ins}
            alone = read & set(used[home]) == {slide.consumed}
            distance = -(-slide.distance // ALIGNMENT) * ALIGNMENT
            if alone and self.homes[slide.made] is slide.made and distance < slide.made.type.bytes:
                return Above(slide.made, distance)
        return None


def _working(graph: Graph, schedule: Schedule) -> Iterator[Buffer]:
    """Working memory: each node's own, or one for all that take turns in a group."""
    sizes: dict[tuple[int, int], int] = {}
    for index, node in enumerate(graph.nodes):
        span = schedule.span(index)
        if size := node.op.row_scratch(node) if schedule.streams(index) else node.op.scratch(node):
            sizes[span] = max(sizes.get(span, 0), size)
    for (start, end), size in sizes.items():
        yield Buffer(f"scratch of {graph.nodes[start].outs[0].name}", size, start, end)


def _donor(node: Node) -> Value | None:
    """The input whose memory the output is, or may become."""
    if node.op.view:
        return node.ins[0]
    donor = node.op.donor(node)
    return None if donor is None else node.ins[donor]
