"""A program run in numpy on one real block of bytes, its tensors where a plan puts them.

It shows whether a plan changes a result, and treats memory as harshly as a kernel may: working memory and outputs are
filled with noise before inputs are read, unless an output takes exactly the place of an input it may take.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from smidgen.ir import Array, Graph, Node, Value
from smidgen.ir.types import DTYPES
from smidgen.memory import Plan
from smidgen.memory.rows import Group, Schedule
from tests.support.native import portable

Bytes = tuple[bytes, ...]


class Outside(Exception):
    """The program touched memory that is not its own."""


class Arena:
    """The arena's bytes, the offset of each value in them, and the values kept outside."""

    def __init__(self, graph: Graph, plan: Plan, schedule: Schedule, arrays: tuple[Array, ...]) -> None:
        self.graph, self.schedule = graph, schedule
        self.rng = np.random.default_rng(7)
        self.bytes = self.rng.integers(0, 256, plan.peak, np.uint8)
        self.places: dict[Value, int] = {}
        self.working: dict[int, int] = {}
        for buffer, offset in zip(plan.buffers, plan.offsets, strict=True):
            self.places |= dict.fromkeys(buffer.values, offset)
            if not buffer.values:
                self.working |= dict.fromkeys(range(buffer.start, buffer.end), offset)
        self.elsewhere: dict[Value, Array] = {**graph.constants, **graph.state}
        self.image = arrays[0] if schedule.streamed_input else None
        for value, array in zip(graph.inputs, arrays, strict=True):
            if self.image is None or value is not graph.inputs[0]:
                self.put(self.places[value], array)

    def put(self, at: int, array: Array) -> None:
        data = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        if not 0 <= at <= at + len(data) <= len(self.bytes):
            raise Outside
        self.bytes[at : at + len(data)] = data

    def noise(self, at: int, size: int) -> None:
        self.put(at, self.rng.integers(0, 256, size, np.uint8))

    def get(self, value: Value, at: int, size: int) -> Array:
        if not 0 <= at <= at + size <= len(self.bytes):
            raise Outside
        return np.frombuffer(self.bytes[at : at + size].tobytes(), DTYPES[value.type.dtype])

    def read(self, value: Value) -> Array:
        if value in self.elsewhere:
            return self.elsewhere[value]
        return self.get(value, self.places[value], value.type.bytes).reshape(value.type.shape)

    def row_at(self, value: Value, row: int) -> int:
        """Where a row of a map lies, whole or ring."""
        rows = value.type.shape[1]
        held = next((group.rings[value] for group in self.schedule.groups if value in group.rings), rows)
        if held < 1 or not 0 <= row < rows:
            raise Outside
        return self.places[value] + row % held * (value.type.bytes // rows)

    def read_rows(self, value: Value) -> Array:
        """A map as a kernel that runs by rows finds it: every row in its slot, whatever is there now."""
        if value in self.elsewhere:
            return self.elsewhere[value]
        rows = value.type.shape[1]
        parts = [self.get(value, self.row_at(value, r), value.type.bytes // rows) for r in range(rows)]
        return np.concatenate(parts).reshape(value.type.shape)

    def run(self) -> Bytes:
        """Every node once; the outputs and the state behind it."""
        groups = {group.first: group for group in self.schedule.groups}
        index = 0
        while index < len(self.graph.nodes):
            if index in groups:
                self.stream(groups[index])
                index = groups[index].end
            else:
                self.call(index)
                index += 1
        after = (self.elsewhere[self.graph.updates.get(v, v)] for v in self.graph.state)
        return tuple(array.tobytes() for array in (*map(self.read, self.graph.outputs), *after))

    def spoil(self, index: int, by_row: bool) -> None:
        node = self.graph.nodes[index]
        if size := portable(node, by_row):
            self.noise(self.working[index], size)

    def call(self, index: int) -> None:
        node = self.graph.nodes[index]
        outside = node.op.virtual or (node.op.view and node.ins[0] in self.elsewhere)
        replaces = self.graph.updates.values()
        if node.op.view and not outside:
            return
        donor = node.op.donor(node)
        place = None if donor is None else self.places.get(node.ins[donor])
        if not outside:
            self.spoil(index, by_row=False)
            for value in node.outs:
                if value not in replaces and not (value is node.outs[0] and self.places[value] == place):
                    self.noise(self.places[value], value.type.bytes)
        results = _ref(node, {v: self.read(v) for v in node.ins})
        for value, array in zip(node.outs, results, strict=True):
            if outside or value in replaces:
                self.elsewhere[value] = array
            else:
                self.put(self.places[value], array)

    def stream(self, group: Group) -> None:
        done = dict.fromkeys(range(-1, group.end - group.first), 0)
        for turn in group.order:
            row = done[turn]
            done[turn] += 1
            if turn < 0:
                image = self.graph.inputs[0]
                if self.image is None or row >= image.type.shape[1]:
                    raise Outside
                self.put(self.row_at(image, row), self.image[:, row])
            else:
                self.compute_row(group.first + turn, row)

    def compute_row(self, index: int, row: int) -> None:
        node = self.graph.nodes[index]
        at = self.row_at(node.out, row)
        self.spoil(index, by_row=True)
        self.noise(at, node.out.type.bytes // node.out.type.shape[1])
        by_rows = {v: v is node.ins[0] if node.op.spatial else v.type.shape == node.out.type.shape for v in node.ins}
        (result,) = _ref(node, {v: self.read_rows(v) if by_rows[v] else self.read(v) for v in node.ins})
        self.put(at, result[:, row])


def _ref(node: Node, arrays: Mapping[Value, Array]) -> tuple[Array, ...]:
    result = node.op.ref(node, *(arrays[v] for v in node.ins))
    return result if isinstance(result, tuple) else (result,)


def outcome(graph: Graph, plan: Plan, schedule: Schedule, arrays: tuple[Array, ...]) -> Bytes | None:
    """Return a program's results with a plan; None where it touches memory outside the arena or computes nonsense."""
    try:
        with np.errstate(all="ignore"):
            return Arena(graph, plan, schedule, arrays).run()
    except (Outside, KeyError, IndexError, ValueError, OverflowError, ZeroDivisionError):
        return None
