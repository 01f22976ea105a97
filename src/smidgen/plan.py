"""Where every tensor lies in memory: lifetimes read off the node order, a planner, and a check of its work.

graph → `buffers` → `plan` → `check`. Time is the index of a node; all intervals are half-open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from smidgen.errors import PlanError
from smidgen.ir import Graph, Node, Value, memory_read, virtual_sources
from smidgen.packing import Item, pack
from smidgen.schedule import WHOLE, Group, Schedule, maps, rows_read

ALIGNMENT = 4  # bytes: a word, whatever a tensor's elements are


@dataclass(frozen=True)
class Buffer:
    """Memory that one or more values use in turn, or a node's working memory, over nodes [start, end)."""

    name: str
    bytes: int
    start: int
    end: int
    values: tuple[Value, ...] = ()

    @property
    def padded(self) -> int:
        """Bytes up to where the next buffer may begin."""
        return -(-self.bytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Plan:
    """Buffers and, in the same order, their offsets in one arena."""

    buffers: tuple[Buffer, ...]
    offsets: tuple[int, ...]

    @property
    def placed(self) -> Iterator[tuple[Buffer, int]]:
        return zip(self.buffers, self.offsets, strict=True)

    @property
    def peak(self) -> int:
        """Bytes of the arena."""
        return max((offset + buffer.padded for buffer, offset in self.placed), default=0)

    @property
    def lower_bound(self) -> int:
        """The most bytes alive at one node: no plan of these buffers can use less."""
        return max((load for _, load in _loads(self.buffers)), default=0)

    def at_peak(self) -> tuple[Buffer, ...]:
        """The buffers alive where most bytes are, largest first."""
        time, _ = max(_loads(self.buffers), key=lambda pair: pair[1], default=(0, 0))
        return tuple(sorted((b for b in self.buffers if b.start <= time < b.end), key=lambda b: -b.bytes))

    def values(self) -> dict[Value, int]:
        """The offset of every value that lies in the arena."""
        return {value: offset for buffer, offset in self.placed for value in buffer.values}

    def scratch(self) -> dict[int, int]:
        """The offset of working memory, by the index of each node that may use it."""
        return {i: offset for b, offset in self.placed if not b.values for i in range(b.start, b.end)}


Planner = Callable[[tuple[Buffer, ...]], Plan]


def _loads(buffers: Iterable[Buffer]) -> Iterator[tuple[int, int]]:
    """Each node where a buffer begins, with the bytes alive there; the most are always at such a node."""
    change: dict[int, int] = {}
    starts = set()
    for b in buffers:
        starts.add(b.start)
        change[b.start] = change.get(b.start, 0) + b.padded
        change[b.end] = change.get(b.end, 0) - b.padded
    load = 0
    for time in sorted(change):
        load += change[time]
        if time in starts:
            yield time, load


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


class _Lives:
    """Which value's memory each value uses, and from when to when that memory is in use."""

    def __init__(self, graph: Graph, schedule: Schedule) -> None:
        self.schedule = schedule
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
            yield Buffer(home.name, self.schedule.bytes(home), start, self.end[home], tuple(used[home]))


def _working(graph: Graph, schedule: Schedule) -> Iterator[Buffer]:
    """Working memory: each node's own, or one for all that take turns in a group."""
    sizes: dict[tuple[int, int], int] = {}
    for index, node in enumerate(graph.nodes):
        span = schedule.span(index)
        if size := node.op.row_scratch(node) if schedule.streams(index) else node.op.scratch(node):
            sizes[span] = max(sizes.get(span, 0), size)
    for (start, end), size in sizes.items():
        yield Buffer(f"scratch of {graph.nodes[start].outs[0].name}", size, start, end)


def loads_of(graph: Graph) -> Iterator[tuple[int, int]]:
    """The bytes alive at each node where something begins, every map whole."""
    return _loads(buffers(graph))


def state_offsets(graph: Graph) -> dict[Value, int]:
    """Where each state value lies in the block of state: in order, aligned to its own elements or better."""
    offsets: dict[Value, int] = {}
    at = 0
    for value in graph.state:
        offsets[value] = at
        at += -(-value.type.bytes // ALIGNMENT) * ALIGNMENT
    return offsets


def state_bytes(graph: Graph) -> int:
    """Bytes of the block of state."""
    return sum(-(-value.type.bytes // ALIGNMENT) * ALIGNMENT for value in graph.state)


def _donor(node: Node) -> Value | None:
    """The input whose memory the output is, or may become."""
    if node.op.view:
        return node.ins[0]
    donor = node.op.donor(node)
    return None if donor is None else node.ins[donor]


def packed(buffers: tuple[Buffer, ...], time_limit: float = 5.0) -> Plan:
    """The best plan found within `time_limit` seconds; at once where it meets the lower bound."""
    packing = pack((Item(b.start, b.end, b.padded) for b in buffers), time_limit)
    return Plan(buffers, packing.offsets)


def greedy(buffers: tuple[Buffer, ...]) -> Plan:
    """The largest first, each at the lowest offset where it meets no buffer that is alive with it."""
    offsets: dict[int, int] = {}
    for index in sorted(range(len(buffers)), key=lambda i: (-buffers[i].bytes, buffers[i].start)):
        buffer = buffers[index]
        taken = sorted(
            (offset, offset + buffers[other].padded)
            for other, offset in offsets.items()
            if buffers[other].start < buffer.end and buffer.start < buffers[other].end
        )
        offset = 0
        for low, high in taken:
            if offset + buffer.padded <= low:
                break
            offset = max(offset, high)
        offsets[index] = offset
    return Plan(buffers, tuple(offsets[index] for index in range(len(buffers))))


def check(graph: Graph, plan: Plan, schedule: Schedule = WHOLE) -> None:
    """Raise PlanError unless the plan is sound and running the graph on it reads only what was meant."""
    check_apart(plan)
    for group in schedule.groups:
        _check_rows(graph, group)
    _Memory(graph, plan, schedule).replay()


def _check_rows(graph: Graph, group: Group) -> None:
    """Run a group row by row: every row is computed once, from rows that are there and still the right ones."""
    nodes = graph.nodes[group.first : group.end]
    made = dict.fromkeys(range(-1, len(nodes)), 0)
    held: dict[Value, dict[int, int]] = {value: {} for value in group.rings}  # place in the ring → row
    makers = {node.out: i for i, node in enumerate(nodes)}
    for index in group.order:
        row = made[index]
        made[index] += 1
        out = graph.inputs[0] if index < 0 else nodes[index].out
        for value in maps(nodes[index]) if index >= 0 else ():
            first, end = rows_read(nodes[index], row)
            if value in makers and made[makers[value]] < end:
                raise PlanError(f"%{out.name} reads row {end - 1} of %{value.name} before it is computed")
            ring = held.get(value)
            if ring is not None and any(ring.get(r % group.rings[value]) != r for r in range(first, end)):
                raise PlanError(f"%{out.name} reads rows {first} to {end} of %{value.name}, its ring lost some")
        if out in held:
            held[out][row % group.rings[out]] = row
    for index, count in made.items():
        expected = nodes[index].out.type.shape[1] if index >= 0 else None
        if expected is not None and count != expected:
            raise PlanError(f"%{nodes[index].out.name} has {expected} rows, its group computes {count}")


def check_apart(plan: Plan) -> None:
    """Raise PlanError unless buffers alive together lie apart, each aligned and inside the arena."""
    if len(plan.buffers) != len(plan.offsets):
        raise PlanError(f"the plan has {len(plan.buffers)} buffers and {len(plan.offsets)} offsets")
    placed = list(zip(plan.buffers, plan.offsets, strict=True))
    for index, (a, at) in enumerate(placed):
        if at < 0 or at % ALIGNMENT:
            raise PlanError(f"{a.name} lies at {at:,}, which is not a multiple of {ALIGNMENT} in the arena")
        for b, bt in placed[:index]:
            together = a.start < b.end and b.start < a.end
            if together and at < bt + b.bytes and bt < at + a.bytes:
                raise PlanError(
                    f"{a.name} [{at:,}, {at + a.bytes:,}) and {b.name} [{bt:,}, {bt + b.bytes:,}) overlap "
                    f"while both are alive, at node {max(a.start, b.start)}"
                )


@dataclass(frozen=True)
class _Region:
    low: int
    high: int

    def meets(self, other: _Region) -> bool:
        return self.low < other.high and other.low < self.high


class _Memory:
    """The arena as the program sees it: which value each region holds, node after node. Knows no lifetimes."""

    def __init__(self, graph: Graph, plan: Plan, schedule: Schedule) -> None:
        self.graph, self.schedule = graph, schedule
        self.offsets = plan.values()
        self.scratch = plan.scratch()
        self.held: dict[Value, _Region] = {}
        # What never was in the arena: constants, state and what replaces it, and views of them.
        self.sources = virtual_sources(graph)
        self.outside = {*graph.constants, *graph.state, *graph.updates.values(), *self.sources}
        for node in graph.nodes:
            if node.op.view and node.ins[0] in self.outside:
                self.outside.add(node.out)

    def replay(self) -> None:
        for value in self.graph.inputs:
            self.write(value)
        for value in self.graph.inputs:
            self.read(value, "the first node")
        groups = {group.first: group for group in self.schedule.groups}
        index = 0
        while index < len(self.graph.nodes):
            if index in groups:
                self.stream(groups[index])
                index = groups[index].end
                continue
            node = self.graph.nodes[index]
            regions = tuple(self.read(v, f"%{node.outs[0].name}") for v in memory_read(node, self.sources))
            if node.op.view:
                self.view(node)
            else:
                self.run(index, node, regions)
            index += 1
        for value in self.graph.outputs:
            self.read(value, "the caller")

    def region(self, value: Value) -> _Region:
        if value not in self.offsets:
            raise PlanError(f"%{value.name} has no place in the plan")
        return _Region(self.offsets[value], self.offsets[value] + self.schedule.bytes(value))

    def read(self, value: Value, reader: str) -> _Region | None:
        if value in self.outside:
            return None
        region = self.region(value)
        if self.held.get(value) != region:
            raise PlanError(f"%{value.name} at {region.low:,} is overwritten before {reader} reads it")
        return region

    def write(self, value: Value) -> None:
        region = self.region(value)
        self.overwrite(region)
        self.held[value] = region

    def overwrite(self, region: _Region) -> None:
        self.held = {value: other for value, other in self.held.items() if not other.meets(region)}

    def view(self, node: Node) -> None:
        if node.out in self.outside:
            return
        if self.region(node.out).low != self.region(node.ins[0]).low:
            raise PlanError(f"%{node.out.name} is a view of %{node.ins[0].name} but lies elsewhere")
        self.held[node.out] = self.region(node.out)

    def stream(self, group: Group) -> None:
        """Everything a group touches lies apart, all the while."""
        nodes = self.graph.nodes[group.first : group.end]
        made = {node.out for node in nodes}
        read = {v for node in nodes for v in memory_read(node, self.sources)}
        inputs = {v for v in read if v not in made and v not in self.outside}
        for value in inputs:
            self.read(value, f"the group of %{nodes[0].out.name}")
        used = [(f"%{v.name}", self.region(v)) for v in (*inputs, *made)]
        size = max(node.op.row_scratch(node) for node in nodes)
        if size:
            if group.first not in self.scratch:
                raise PlanError(f"the group of %{nodes[0].out.name} has no working memory in the plan")
            used.append(("working memory", _Region(self.scratch[group.first], self.scratch[group.first] + size)))
        for i, (name, region) in enumerate(used):
            for other, beside in used[:i]:
                if region.meets(beside):
                    raise PlanError(f"{name} and {other} overlap in the group of %{nodes[0].out.name}")
        for _, region in used[len(inputs) :]:
            self.overwrite(region)
        for value in made:
            if value not in group.rings:
                self.held[value] = self.region(value)

    def run(self, index: int, node: Node, inputs: tuple[_Region | None, ...]) -> None:
        """Everything the kernel touches lies apart, but for an output in its own input's place."""
        written = [value for value in node.outs if value not in self.outside]
        regions = [self.region(value) for value in written]
        index_of = node.op.donor(node)
        donor = inputs[index_of] if index_of is not None else None
        size = node.op.scratch(node)
        if size and index not in self.scratch:
            raise PlanError(f"node {index}, %{node.outs[0].name}, has no working memory in the plan")
        working = [_Region(self.scratch[index], self.scratch[index] + size)] if size else []
        for i, region in enumerate((*working, *regions)):
            for other in (*working, *regions)[:i]:
                if region.meets(other):
                    raise PlanError(f"working memory or outputs of node {index}, %{node.outs[0].name}, overlap")
            for source in inputs:
                in_place = region == donor == source and region not in working
                if source and region.meets(source) and not in_place:
                    raise PlanError(f"node {index}, %{node.outs[0].name}, writes over its own input")
            self.overwrite(region)
        for value in written:
            self.write(value)
