"""The check of a plan, which shares no rule with what made it and always runs.

The program is run on an arena in which every byte is marked with what it holds: a byte of some value, or nothing of
use. Each kernel call must find the bytes it reads, whole tensors or the rows of its window, and must not write over
what it is reading. Windows are taken from the numbers that the C kernels are handed; lifetimes are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from smidgen.errors import PlanError
from smidgen.ir import Array, Graph, Node, Value, memory_read, virtual_sources
from smidgen.memory.layout import Buffer, Plan, Working
from smidgen.memory.rows import WHOLE, Cut, Group, Schedule

WORD = 4  # bytes: what every buffer's place is a multiple of
LOST = -1  # what a byte holds that nobody may read


def check(graph: Graph, plan: Plan, schedule: Schedule = WHOLE, *, working: Working) -> None:
    """Raise PlanError unless the plan is sound and running the graph on it reads only what was meant."""
    check_apart(plan)
    _check_schedule(graph, schedule)
    _ArenaRun(graph, plan, schedule, working).run()
    if schedule.cut is not None:
        _check_cut(graph, schedule)
        _ArenaRun(graph, plan, schedule, working).run(schedule.cut)


def check_apart(plan: Plan) -> None:
    """Raise PlanError unless buffers alive together lie apart, each aligned and inside the arena.

    Of a pair that is meant to overlap, only the run can show whether it may.
    """
    if len(plan.buffers) != len(plan.offsets):
        raise PlanError(f"the plan has {len(plan.buffers)} buffers and {len(plan.offsets)} offsets")
    placed = list(zip(plan.buffers, plan.offsets, strict=True))
    for index, (a, at) in enumerate(placed):
        if at < 0 or at % WORD:
            raise PlanError(f"{a.name} lies at {at:,}, which is not a multiple of {WORD} in the arena")
        for b, bt in placed[:index]:
            together = a.start < b.end and b.start < a.end and not (_meant(a, b) or _meant(b, a))
            if together and at < bt + b.bytes and bt < at + a.bytes:
                raise PlanError(
                    f"{a.name} [{at:,}, {at + a.bytes:,}) and {b.name} [{bt:,}, {bt + b.bytes:,}) overlap "
                    f"while both are alive, at node {max(a.start, b.start)}"
                )


def _meant(consumed: Buffer, made: Buffer) -> bool:
    """Return whether one buffer's map grows into the other's place."""
    return consumed.overlap is not None and consumed.overlap.made in made.values


def _check_schedule(graph: Graph, schedule: Schedule) -> None:
    """Check that groups follow each other, hold nodes that can run row by row, and compute each row once."""
    at = 0
    for group in schedule.groups:
        if not at <= group.first < group.end <= len(graph.nodes):
            raise PlanError(f"a group of nodes [{group.first}, {group.end}) does not follow node {at}")
        at = group.end
        _check_order(graph, group, schedule.streamed_input and group.first == 0)
    if schedule.streamed_input and not (schedule.groups and schedule.groups[0].first == 0):
        raise PlanError(f"the image of {graph.name} comes by rows, and no group takes them")


def _check_cut(graph: Graph, schedule: Schedule) -> None:
    """Check that nodes before a cut read nothing that learns, and no group is divided by it."""
    at, learned = schedule.cut.at if schedule.cut else 0, {*graph.state}
    for node in graph.nodes[:at]:
        if any(v in learned for v in node.ins):
            if not (node.op.view or node.op.virtual):
                raise PlanError(f"%{node.outs[0].name} learns, and is before the cut at node {at}")
            learned.update(node.outs)
    for group in schedule.groups:
        if group.first < at < group.end:
            raise PlanError(f"the cut at node {at} divides the group of nodes [{group.first}, {group.end})")


def _check_order(graph: Graph, group: Group, streamed: bool) -> None:
    nodes = graph.nodes[group.first : group.end]
    rows = {index: _rows_of(node) for index, node in enumerate(nodes)}
    own = {node.outs[0]: rows[index] for index, node in enumerate(nodes)}
    if streamed:
        rows[-1] = own[graph.image] = graph.image.type.shape[1]
    computed = dict.fromkeys(rows, 0)
    for index in group.order:
        if index not in rows:
            raise PlanError(f"the order of the group at node {group.first} names {index}, which is none of its nodes")
        computed[index] += 1
    for index, count in computed.items():
        if count != rows[index]:
            name = graph.image.name if index < 0 else nodes[index].outs[0].name
            raise PlanError(f"%{name} has {rows[index]} rows, its group computes {count}")
    for value, held in group.rings.items():
        if value not in own or not 1 <= held <= own[value]:
            raise PlanError(f"the group at node {group.first} holds {held} rows of %{value.name}, which cannot be")


def _rows_of(node: Node) -> int:
    """Return how many rows a node computes one by one; an error where it cannot."""
    shape = node.outs[0].type.shape
    by_rows = (node.op.spatial or node.op.elementwise) and len(node.outs) == 1 and len(shape) == 4 and shape[0] == 1
    if not by_rows:
        raise PlanError(f"%{node.outs[0].name} is in a group, but {type(node.op).__name__} does not run row by row")
    return shape[1]


@dataclass(frozen=True)
class _Part:
    """Bytes [low, high) of the arena, which hold a value's bytes from `begin` on, or a kernel's own."""

    low: int
    high: int
    value: Value | None = None
    begin: int = 0

    def meets(self, other: _Part) -> bool:
        return self.low < other.high and other.low < self.high


class _ArenaRun:
    """A program at work. Every byte of the arena holds the number of a byte of some value, or LOST."""

    def __init__(self, graph: Graph, plan: Plan, schedule: Schedule, working: Working) -> None:
        self.graph, self.schedule, self.working = graph, schedule, working
        self.places, self.scratch = plan.values(), plan.scratch()
        self.rings = {value: rows for group in schedule.groups for value, rows in group.rings.items()}
        self.sources = virtual_sources(graph)
        # Not in the arena: constants, state and what replaces it, and views of them.
        self.outside = {*graph.constants, *graph.state, *graph.updates.values(), *self.sources}
        self.first_byte: dict[Value, int] = {}
        self.total = 0
        for value in graph.inputs:
            self._number(value)
        for node in graph.nodes:
            if node.op.view and node.ins[0] in self.outside:
                self.outside.add(node.outs[0])
            elif node.op.view:
                self.first_byte[node.outs[0]] = self.first_byte[node.ins[0]]
            else:
                for value in node.outs:
                    self._number(value)
        for value in self.places:
            if value in self.outside:
                raise PlanError(f"%{value.name} is a constant or state and has a place in the arena")
        self.numbers: Array = np.arange(self.total)
        self.arena: Array = np.full(plan.peak, LOST)

    def _number(self, value: Value) -> None:
        self.first_byte[value] = self.total
        self.total += value.type.bytes

    def run(self, cut: Cut | None = None) -> None:
        """Run the program; from a cut on, with nothing in the arena but the latent and the step's other inputs."""
        given = self.graph.inputs[1 if cut or self.schedule.streamed_input else 0 :]
        inputs = [self._whole(value) for value in (*given, *(cut.latent if cut else ()))]
        for part in inputs:
            self._write(part)
        for part in inputs:
            self._read(part, "the first node")
        groups = {group.first: group for group in self.schedule.groups}
        index = cut.at if cut else 0
        while index < len(self.graph.nodes):
            if index in groups:
                self._stream(groups[index])
                index = groups[index].end
            else:
                self._call(index)
                index += 1
        for value in self.graph.outputs:
            if value not in self.outside:
                self._read(self._whole(value), "the caller")

    def _place(self, value: Value) -> int:
        if value not in self.places:
            raise PlanError(f"%{value.name} has no place in the plan")
        return self.places[value]

    def _whole(self, value: Value) -> _Part:
        at = self._place(value)
        rows = self.rings.get(value)
        if rows is not None and rows < value.type.shape[1]:
            raise PlanError(f"%{value.name} is read whole, and {rows} of its {value.type.shape[1]} rows are held")
        return _Part(at, at + value.type.bytes, value)

    def _row(self, value: Value, row: int) -> _Part:
        size = value.type.bytes // value.type.shape[1]
        low = self._place(value) + (row % self.rings.get(value, value.type.shape[1])) * size
        return _Part(low, low + size, value, row * size)

    def _read(self, part: _Part, reader: str) -> None:
        assert part.value is not None
        start = self.first_byte[part.value] + part.begin
        held = self.arena[part.low : part.high]
        if not np.array_equal(held, self.numbers[start : start + part.high - part.low]):
            raise PlanError(
                f"%{part.value.name} at {part.low:,} is overwritten, or not there, before {reader} reads it"
            )

    def _write(self, part: _Part) -> None:
        if not 0 <= part.low <= part.high <= len(self.arena):
            name = f"%{part.value.name}" if part.value else "working memory"
            raise PlanError(f"{name} [{part.low:,}, {part.high:,}) is not in the arena of {len(self.arena):,} bytes")
        if part.value is None:
            self.arena[part.low : part.high] = LOST
        else:
            start = self.first_byte[part.value] + part.begin
            self.arena[part.low : part.high] = self.numbers[start : start + part.high - part.low]

    def _call(self, index: int) -> None:
        """Run a node over whole tensors."""
        node = self.graph.nodes[index]
        read = [self._whole(v) for v in memory_read(node, self.sources) if v not in self.outside]
        if node.op.view:
            if node.outs[0] not in self.outside and self._place(node.outs[0]) != read[0].low:
                raise PlanError(f"%{node.outs[0].name} is a view of %{node.ins[0].name} but lies elsewhere")
            for part in read:
                self._read(part, f"%{node.outs[0].name}")
            return
        donor = node.op.donor(node)
        taken = node.ins[donor] if donor is not None and node.ins[donor] not in self.outside else None
        written = [self._whole(v) for v in node.outs if v not in self.outside]
        in_place = written[0] if taken is not None and written and written[0].value is node.outs[0] else None
        if in_place is not None and taken is not None and in_place.low != self._place(taken):
            in_place = None
        self._kernel(node, read, written, self._working(index, by_row=False), in_place)

    def _working(self, index: int, by_row: bool) -> _Part | None:
        node = self.graph.nodes[index]
        size = self.working(node, by_row)
        if size and index not in self.scratch:
            raise PlanError(f"node {index}, %{node.outs[0].name}, has no working memory in the plan")
        return _Part(self.scratch[index], self.scratch[index] + size) if size else None

    def _kernel(
        self, node: Node, read: list[_Part], written: list[_Part], working: _Part | None, in_place: _Part | None = None
    ) -> None:
        """Check that all a kernel touches lies apart, except an output exactly in the place of an input it may take."""
        name = f"%{node.outs[0].name}"
        for part in read:
            self._read(part, name)
        changed = written if working is None else [working, *written]
        for i, part in enumerate(changed):
            if any(part.meets(other) for other in changed[:i]):
                raise PlanError(f"working memory or outputs of {name} overlap")
            for source in read:
                same = part is in_place and (source.low, source.high) == (part.low, part.high)
                if part.meets(source) and not same:
                    raise PlanError(f"{name} is written over its own input, or its working memory is")
        for part in changed:
            self._write(part)

    def _stream(self, group: Group) -> None:
        """Run nodes that take turns, each of which computes its next row."""
        done = dict.fromkeys(range(-1, group.end - group.first), 0)
        nodes = self.graph.nodes[group.first : group.end]
        windows = [_window(node) for node in nodes]
        for index in group.order:
            row = done[index]
            done[index] += 1
            if index < 0:
                self._write(self._row(self.graph.image, row))
                continue
            node = nodes[index]
            read = list(self._rows_read(node, windows[index], row))
            self._kernel(node, read, [self._row(node.outs[0], row)], self._working(group.first + index, by_row=True))

    def _rows_read(self, node: Node, window: _Window | None, row: int) -> Iterator[_Part]:
        """Yield what a kernel reads for one output row: rows of maps, and whatever else it is handed, whole."""
        out = node.outs[0].type
        for index, value in enumerate(node.ins):
            by_rows = index == 0 if window is not None else value.type.shape == out.shape
            if not by_rows and window is None and out.size // out.shape[1] % value.type.size:
                raise PlanError(f"%{value.name} does not repeat within a row of %{node.outs[0].name}")
            for source in self.sources.get(value, (value,)):
                if source in self.outside:
                    continue
                if not by_rows:
                    yield self._whole(source)
                elif window is None:
                    yield self._row(source, row)
                else:
                    yield from (self._row(source, r) for r in window.rows(row))


@dataclass(frozen=True)
class _Window:
    """Taps of a kernel along the height of its input, as the C kernel gets them."""

    taps: int
    stride: int
    pad: int
    dilation: int
    height: int

    def rows(self, row: int) -> Iterator[int]:
        top = row * self.stride - self.pad
        yield from (at for tap in range(self.taps) if 0 <= (at := top + tap * self.dilation) < self.height)


def _window(node: Node) -> _Window | None:
    """Return a spatial kernel's window; None for a node that works element by element."""
    if not node.op.spatial:
        return None
    params = node.op.params(node)
    numbers = (params[name] for name in ("k_h", "stride_h", "pad_h", "dilation_h", "x_h"))
    return _Window(*(int(number) for number in numbers))
