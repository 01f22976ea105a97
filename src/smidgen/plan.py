"""Where every tensor lies in memory: lifetimes read off the node order, a planner, and a check of its work.

graph → `buffers` → `plan` → `check`. Time is the index of a node; all intervals are half-open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from smidgen.errors import PlanError
from smidgen.ir import Graph, Node, Value

STATE_ALIGNMENT = 4  # bytes: a word, whatever a state value's elements are
ALIGNMENT = 16  # bytes: a SIMD register of the host, two double words of a microcontroller; SMG_ALIGNED in C


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
        """The offset of working memory, by the index of the node that uses it."""
        return {buffer.start: offset for buffer, offset in self.placed if not buffer.values}


Planner = Callable[[tuple[Buffer, ...]], Plan]


def _loads(buffers: Iterable[Buffer]) -> Iterator[tuple[int, int]]:
    """Each node where a buffer begins, with the bytes alive there; the most are always at such a node."""
    buffers = tuple(buffers)
    for time in sorted({b.start for b in buffers}):
        yield time, sum(b.padded for b in buffers if b.start <= time < b.end)


def buffers(graph: Graph) -> tuple[Buffer, ...]:
    """What needs memory in the arena, and when: inputs, activations and outputs by birth, then working memory.

    A view's output uses its input's memory, and so does an in-place op's where nobody reads the input later.
    State lies apart (`state_offsets`), and what replaces it takes its place there.
    """
    reads = {value: index for index, node in enumerate(graph.nodes) for value in node.ins}
    reads |= dict.fromkeys(graph.outputs, len(graph.nodes))
    apart = set(graph.updates.values())
    homes: dict[Value, Value] = {}  # value → the value whose memory it uses
    start: dict[Value, int] = {}
    end: dict[Value, int] = {}

    def live(value: Value, home: Value, at: int) -> None:
        homes[value] = home
        start.setdefault(home, at)
        end[home] = max(end.get(home, 0), reads.get(value, at) + 1)

    for value in graph.inputs:
        live(value, value, 0)
    for index, node in enumerate(graph.nodes):
        donor = _donor(node)
        home = homes.get(donor) if donor else None
        if node.op.view:
            if home:  # else the view of a constant, which needs no memory either
                live(node.out, home, index)
            continue
        free = home is not None and end[home] == index + 1
        for value in node.outs:
            if value not in apart:
                live(value, home if home and free and value is node.outs[0] else value, index)
    return (
        *(
            Buffer(home.name, home.type.bytes, start[home], end[home], tuple(v for v in homes if homes[v] is home))
            for home in start
        ),
        *(
            Buffer(f"scratch of {node.outs[0].name}", size, index, index + 1)
            for index, node in enumerate(graph.nodes)
            if (size := node.op.scratch(node))
        ),
    )


def state_offsets(graph: Graph) -> dict[Value, int]:
    """Where each state value lies in the block of state: in order, aligned to its own elements or better."""
    offsets: dict[Value, int] = {}
    at = 0
    for value in graph.state:
        offsets[value] = at
        at += -(-value.type.bytes // STATE_ALIGNMENT) * STATE_ALIGNMENT
    return offsets


def state_bytes(graph: Graph) -> int:
    """Bytes of the block of state."""
    return sum(-(-value.type.bytes // STATE_ALIGNMENT) * STATE_ALIGNMENT for value in graph.state)


def _donor(node: Node) -> Value | None:
    """The input whose memory the output is, or may become."""
    if node.op.view:
        return node.ins[0]
    if node.op.inplace is None or node.ins[node.op.inplace].type.bytes != node.outs[0].type.bytes:
        return None
    return node.ins[node.op.inplace]


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


def check(graph: Graph, plan: Plan) -> None:
    """Raise PlanError unless the plan is sound and running the graph on it reads only what was meant."""
    check_apart(plan)
    _Memory(graph, plan).replay()


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

    def __init__(self, graph: Graph, plan: Plan) -> None:
        self.graph = graph
        self.offsets = plan.values()
        self.scratch = plan.scratch()
        self.held: dict[Value, _Region] = {}
        # What never was in the arena: constants, state and what replaces it, and views of them.
        self.outside = {*graph.constants, *graph.state, *graph.updates.values()}
        for node in graph.nodes:
            if node.op.view and node.ins[0] in self.outside:
                self.outside.add(node.out)

    def replay(self) -> None:
        for value in self.graph.inputs:
            self.write(value)
        for value in self.graph.inputs:
            self.read(value, "the first node")
        for index, node in enumerate(self.graph.nodes):
            regions = tuple(self.read(value, f"%{node.outs[0].name}") for value in node.ins)
            if node.op.view:
                self.view(node)
            else:
                self.run(index, node, regions)
        for value in self.graph.outputs:
            self.read(value, "the caller")

    def region(self, value: Value) -> _Region:
        if value not in self.offsets:
            raise PlanError(f"%{value.name} has no place in the plan")
        return _Region(self.offsets[value], self.offsets[value] + value.type.bytes)

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

    def run(self, index: int, node: Node, inputs: tuple[_Region | None, ...]) -> None:
        """Everything the kernel touches lies apart, but for an output in its own input's place."""
        written = [value for value in node.outs if value not in self.outside]
        regions = [self.region(value) for value in written]
        donor = inputs[node.op.inplace] if node.op.inplace is not None else None
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
