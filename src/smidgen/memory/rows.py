"""Row streaming: what runs row by row through ring buffers, which rows each node reads, and who computes when.

A group is a run of consecutive nodes over maps. Each computes one output row at a time, as soon as the rows
it reads are there; of a map only the rows still to be read are kept. Nothing is computed twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from smidgen.ir import Node, Value
from smidgen.memory.layout import Overlap


@dataclass(frozen=True)
class Group:
    """Nodes [first, end) of a graph, streamed: node `first + order[i]` computes its next row at step i.

    An order of −1 takes the next row of the image from its source, where that is streamed too.
    """

    first: int
    end: int
    order: tuple[int, ...]
    rings: Mapping[Value, int]  # rows held of each map that lives in the group alone
    overlap: Overlap[Value] | None = None  # of a map the group consumes and one it makes


@dataclass(frozen=True)
class Cut:
    """The division of a step: nodes before `at` never change, and all that the others read of them is the latent."""

    at: int
    latent: tuple[Value, ...]

    @property
    def bytes(self) -> int:
        """Return the bytes of the latent."""
        return sum(value.type.bytes for value in self.latent)


@dataclass(frozen=True)
class Schedule:
    """A graph's streamed groups, in order, whether its image comes row by row, and where it is cut for replay."""

    groups: tuple[Group, ...] = ()
    streamed_input: bool = False
    cut: Cut | None = None

    def span(self, index: int) -> tuple[int, int]:
        """Return the nodes [first, end) that take turns with a node; itself alone outside groups."""
        group = next((g for g in self.groups if g.first <= index < g.end), None)
        return (index, index + 1) if group is None else (group.first, group.end)

    def streams(self, index: int) -> bool:
        """Return whether a node runs row by row."""
        return any(group.first <= index < group.end for group in self.groups)

    def rows(self, value: Value) -> int | None:
        """Return the rows held of a value that is a ring buffer; None for one held whole."""
        return next((g.rings[value] for g in self.groups if value in g.rings), None)

    def bytes(self, value: Value) -> int:
        """Return the bytes held of a value."""
        rows = self.rows(value)
        return value.type.bytes if rows is None else rows * row_bytes(value)


WHOLE = Schedule()  # every map as a whole


def height(value: Value) -> int:
    """Return how many rows a map has."""
    return value.type.shape[1]


def row_bytes(value: Value) -> int:
    """Return the bytes of a row of a map."""
    return value.type.bytes // height(value)


def streamable(node: Node) -> bool:
    """Return whether a node computes a map row by row from maps."""
    op, shapes = node.op, [v.type.shape for v in (node.ins[0], *node.outs)]
    if len(node.outs) != 1 or any(len(s) != 4 or s[0] != 1 for s in shapes):
        return False
    if op.spatial:
        return True
    # Elementwise: operands of the output's shape, or such as repeat within a row.
    row = node.out.type.size // node.out.type.shape[1]
    return op.elementwise and all(v.type.shape == node.out.type.shape or row % v.type.size == 0 for v in node.ins)


def maps(node: Node) -> tuple[Value, ...]:
    """Return the inputs a streamable node reads by rows."""
    if node.op.spatial:
        return node.ins[:1]
    return tuple(dict.fromkeys(v for v in node.ins if v.type.shape == node.out.type.shape))


@dataclass(frozen=True)
class Reading:
    """The rows of its maps that a node reads, by the output row it computes next."""

    needed: Sequence[int]  # rows that have to be there, for each output row
    oldest: Sequence[int]  # the oldest row still to be read, for each output row and behind the last


def reading(node: Node) -> Reading:
    """Return what a streamable node reads; a row computed from padding alone reads none."""
    rows, there = height(node.out), height(maps(node)[0])
    if node.op.spatial:
        window = node.op.row_window(node)
        starts = [row * window.stride - window.pad for row in range(rows)]
        ends = [min(there, start + window.reach) for start in starts]
    else:
        starts, ends = list(range(rows)), list(range(1, rows + 1))
    oldest = [there] * (rows + 1)
    for row in reversed(range(rows)):
        first = max(0, starts[row])
        oldest[row] = first if first < ends[row] else oldest[row + 1]
    return Reading(ends, oldest)


class Turns:
    """Rows on demand: each node asks for the rows it needs, and no more; counts the rows that are done.

    Nodes are known by their index, and maps that come from elsewhere by negative numbers.
    """

    def __init__(self, nodes: Sequence[Node], sources: Mapping[Value, int]) -> None:
        maker = {node.out: i for i, node in enumerate(nodes)} | dict(sources)
        self.readings = [reading(node) for node in nodes]
        self.makers = [tuple(maker[v] for v in maps(node) if v in maker) for node in nodes]
        self.done = dict.fromkeys((*range(len(nodes)), *sources.values()), 0)
        self.readers: dict[int, list[int]] = {index: [] for index in self.done}
        for index, makers in enumerate(self.makers):
            for made in makers:
                self.readers[made].append(index)

    def until(self, index: int, rows: int) -> Iterator[int]:
        """Compute rows up to `rows` of one node, and whatever that takes of others; yields who computes, before."""
        asked = [(index, rows)]
        while asked:
            index, rows = asked[-1]
            if self.done[index] >= rows:
                asked.pop()
                continue
            if index >= 0:
                needed = self.readings[index].needed[self.done[index]]
                missing = next((made for made in self.makers[index] if self.done[made] < needed), None)
                if missing is not None:
                    asked.append((missing, needed))
                    continue
            yield index
            self.done[index] += 1

    def oldest(self, index: int) -> int | None:
        """Return the oldest row of what this index makes that a reader still needs; None where there are no readers."""
        wanted = (self.readings[reader].oldest[self.done[reader]] for reader in self.readers[index])
        return min(wanted, default=None)

    def held(self, index: int) -> int:
        """Return the rows held of what this index makes while it computes its next: a ring must be as large."""
        oldest = self.oldest(index)
        return 1 if oldest is None else max(1, self.done[index] + 1 - oldest)
