"""The check of a plan, which shares no code with what made it and always runs."""

from __future__ import annotations

from dataclasses import dataclass

from smidgen.errors import PlanError
from smidgen.ir import Graph, Node, Value, memory_read, virtual_sources
from smidgen.memory.layout import ALIGNMENT, Buffer, Plan
from smidgen.memory.rows import WHOLE, Group, Schedule, maps, rows_read


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
        out = graph.image if index < 0 else nodes[index].out
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
    """Raise PlanError unless buffers alive together lie apart, each aligned and inside the arena.

    Of a pair that is meant to overlap, only the replay can tell whether it may.
    """
    if len(plan.buffers) != len(plan.offsets):
        raise PlanError(f"the plan has {len(plan.buffers)} buffers and {len(plan.offsets)} offsets")
    placed = list(zip(plan.buffers, plan.offsets, strict=True))
    for index, (a, at) in enumerate(placed):
        if at < 0 or at % ALIGNMENT:
            raise PlanError(f"{a.name} lies at {at:,}, which is not a multiple of {ALIGNMENT} in the arena")
        for b, bt in placed[:index]:
            together = a.start < b.end and b.start < a.end and not (_meant(a, b) or _meant(b, a))
            if together and at < bt + b.bytes and bt < at + a.bytes:
                raise PlanError(
                    f"{a.name} [{at:,}, {at + a.bytes:,}) and {b.name} [{bt:,}, {bt + b.bytes:,}) overlap "
                    f"while both are alive, at node {max(a.start, b.start)}"
                )


def _meant(upper: Buffer, lower: Buffer) -> bool:
    """Whether one buffer's map grows into the other's place."""
    return upper.above is not None and upper.above.made in lower.values


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
        """Everything a group touches lies apart, all the while, or it is written over only where it was read."""
        nodes = self.graph.nodes[group.first : group.end]
        made = {node.out for node in nodes}
        read = {v for node in nodes for v in memory_read(node, self.sources)}
        inputs = {v for v in read if v not in made and v not in self.outside}
        for value in inputs:
            self.read(value, f"the group of %{nodes[0].out.name}")
        slid = set()  # pairs in which one is consumed where the other grows
        for value in made - group.rings.keys():
            for consumed in (v for v in inputs if self.region(v).meets(self.region(value))):
                self.slide(nodes, group.order, consumed, value)
                slid.add((f"%{consumed.name}", f"%{value.name}"))
        used = [(f"%{v.name}", self.region(v)) for v in (*inputs, *made)]
        size = max(node.op.row_scratch(node) for node in nodes)
        if size:
            if group.first not in self.scratch:
                raise PlanError(f"the group of %{nodes[0].out.name} has no working memory in the plan")
            used.append(("working memory", _Region(self.scratch[group.first], self.scratch[group.first] + size)))
        for i, (name, region) in enumerate(used[len(inputs) :], len(inputs)):  # what is written, with all before it
            for other, beside in used[:i]:
                if region.meets(beside) and (other, name) not in slid:
                    raise PlanError(f"{name} and {other} overlap in the group of %{nodes[0].out.name}")
        for _, region in used[len(inputs) :]:
            self.overwrite(region)
        for value in made:
            if value not in group.rings:
                self.held[value] = self.region(value)

    def slide(self, nodes: tuple[Node, ...], order: tuple[int, ...], consumed: Value, made: Value) -> None:
        """Row by row: what is written of one map falls on rows of the other that nobody reads any more."""
        lost: set[int] = set()
        done = [0] * len(nodes)
        for index in (index for index in order if index >= 0):
            node = nodes[index]
            if node.out is made:
                written = self.row(made, done[index])
                lost |= {r for r in range(consumed.type.shape[1]) if self.row(consumed, r).meets(written)}
            rows = range(*rows_read(node, done[index])) if consumed in maps(node) else range(0)
            if consumed in node.ins and (consumed not in maps(node) or lost & set(rows)):
                raise PlanError(f"%{node.out.name} reads rows of %{consumed.name} over which %{made.name} was written")
            done[index] += 1

    def row(self, value: Value, row: int) -> _Region:
        size, low = value.type.bytes // value.type.shape[1], self.region(value).low
        return _Region(low + row * size, low + (row + 1) * size)

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
