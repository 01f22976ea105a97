"""Row streaming: which nodes run row by row through ring buffers, in which order, and with how many rows each.

A group is a run of consecutive nodes over maps. Each computes one output row at a time, as soon as the rows
it reads are there; of a map only the rows still to be read are kept. Nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from smidgen.ir import Graph, Node, Value
from smidgen.ops.conv import Conv2D, Depthwise
from smidgen.ops.pool import Pool

Rows = tuple[int, int]  # half-open


@dataclass(frozen=True)
class Slide:
    """A map that a group makes grows into the place of one it consumes, which begins `distance` bytes further on."""

    consumed: Value
    made: Value
    distance: int  # the least at which every row is read before it is written over


@dataclass(frozen=True)
class Group:
    """Nodes [first, end) of a graph, streamed: node `first + order[i]` computes its next row at step i.

    An order of −1 takes the next row of the image from its source, where that is streamed too.
    """

    first: int
    end: int
    order: tuple[int, ...]
    rings: Mapping[Value, int]  # rows held of each map that lives in the group alone
    slide: Slide | None = None


@dataclass(frozen=True)
class Schedule:
    """A graph's streamed groups, in order, and whether its image comes row by row."""

    groups: tuple[Group, ...] = ()
    streamed_input: bool = False

    def span(self, index: int) -> tuple[int, int]:
        """The nodes [first, end) that take turns with a node; itself alone outside groups."""
        group = next((g for g in self.groups if g.first <= index < g.end), None)
        return (index, index + 1) if group is None else (group.first, group.end)

    def streams(self, index: int) -> bool:
        """Whether a node runs row by row."""
        return any(group.first <= index < group.end for group in self.groups)

    def rows(self, value: Value) -> int | None:
        """Rows held of a value that is a ring buffer; None for one held whole."""
        return next((g.rings[value] for g in self.groups if value in g.rings), None)

    def bytes(self, value: Value) -> int:
        """Bytes held of a value."""
        rows = self.rows(value)
        return value.type.bytes if rows is None else rows * (value.type.bytes // value.type.shape[1])


WHOLE = Schedule()  # every map as a whole


def streamable(node: Node) -> bool:
    """Whether a node computes a map row by row from maps."""
    op, shapes = node.op, [v.type.shape for v in (node.ins[0], *node.outs)]
    if len(node.outs) != 1 or any(len(s) != 4 or s[0] != 1 for s in shapes):
        return False
    if op.spatial:
        return True
    # Elementwise: operands of the output's shape, or such as repeat within a row.
    row = node.out.type.size // node.out.type.shape[1]
    return op.elementwise and all(v.type.shape == node.out.type.shape or row % v.type.size == 0 for v in node.ins)


def maps(node: Node) -> tuple[Value, ...]:
    """The inputs a streamable node reads by rows."""
    if node.op.spatial:
        return node.ins[:1]
    return tuple(dict.fromkeys(v for v in node.ins if v.type.shape == node.out.type.shape))


def rows_read(node: Node, row: int) -> Rows:
    """The rows of its map inputs that an output row is computed from."""
    op = node.op
    if isinstance(op, Conv2D | Depthwise):
        window = op.window(node.ins[1].type)
    elif isinstance(op, Pool):
        window = op.window
    else:
        return row, row + 1
    start = row * window.stride[0] - window.pad[0]
    height = node.ins[0].type.shape[1]
    return max(0, start), min(height, start + window.reach[0])


def stream(graph: Graph, first: int, end: int, streamed_input: bool) -> Group | None:
    """Nodes [first, end) as a group; None where one of them cannot run row by row."""
    nodes = graph.nodes[first:end]
    if not nodes or not all(streamable(node) for node in nodes):
        return None
    image = graph.image if streamed_input and first == 0 else None
    if image is not None and any(image in node.ins for node in graph.nodes[end:]):
        return None
    order = tuple(_Order(nodes, image))
    rings = _rings(graph, nodes, first, end, order, image)
    return Group(first, end, order, rings, _slide(graph, first, end, order, rings))


class _Order:
    """Asks for the last node's rows one after another; each asks for what it needs, and no more."""

    def __init__(self, nodes: tuple[Node, ...], image: Value | None) -> None:
        self.nodes = nodes
        self.maker: dict[Value, int] = {node.out: i for i, node in enumerate(nodes)}
        self.height: dict[int, int] = {i: node.out.type.shape[1] for i, node in enumerate(nodes)}
        if image is not None:
            self.maker[image] = -1
            self.height[-1] = image.type.shape[1]
        self.done = dict.fromkeys(self.height, 0)

    def __iter__(self) -> Iterator[int]:
        # The last node leads; what it does not read of the others is completed after.
        for index in (len(self.nodes) - 1, *range(len(self.nodes)), -1):
            if index in self.height:
                yield from self.until(index, self.height[index])

    def until(self, index: int, rows: int) -> Iterator[int]:
        """Compute a node's rows up to `rows`."""
        while self.done[index] < rows:
            if index >= 0:
                node = self.nodes[index]
                _, needed = rows_read(node, self.done[index])
                for value in maps(node):
                    if value in self.maker:
                        yield from self.until(self.maker[value], needed)
            self.done[index] += 1
            yield index


def _rings(
    graph: Graph, nodes: tuple[Node, ...], first: int, end: int, order: tuple[int, ...], image: Value | None
) -> dict[Value, int]:
    """For each map that nobody outside reads: the most rows between the oldest still to be read and the newest."""
    outside = {v for i, n in enumerate(graph.nodes) if not first <= i < end for v in n.ins} | set(graph.outputs)
    made = dict.fromkeys(range(-1, len(nodes)), 0)
    own = {i: node.out for i, node in enumerate(nodes) if node.out not in outside}
    if image is not None:
        own[-1] = image
    readers = {i: [(k, node) for k, node in enumerate(nodes) if v in maps(node)] for i, v in own.items()}
    rings = dict.fromkeys(own, 1)
    for index in order:
        made[index] += 1
        if index in own:  # now held: from the oldest row any reader still wants up to this one
            oldest = min((_oldest(node, made[k]) for k, node in readers[index]), default=made[index] - 1)
            rings[index] = max(rings[index], made[index] - oldest)
    return {v: min(rings[i], v.type.shape[1]) for i, v in own.items()}


def _slide(graph: Graph, first: int, end: int, order: tuple[int, ...], rings: Mapping[Value, int]) -> Slide | None:
    """The pair of a map consumed and a map made that have most bytes in common; None where none have any."""
    nodes = graph.nodes[first:end]
    before = {*graph.inputs, *(v for node in graph.nodes[:first] for v in node.outs)}
    kept = {*graph.outputs, *(v for node in graph.nodes[end:] for v in node.ins)}
    by_rows = {v for node in nodes for v in maps(node)}
    whole = {v for node in nodes for v in node.ins if v not in maps(node)}
    best: tuple[int, Slide] | None = None
    for consumed in sorted((by_rows & before) - kept - whole - rings.keys(), key=lambda v: v.name):
        for node in (node for node in nodes if node.out not in rings):
            distance = _distance(nodes, order, consumed, node.out)
            shared = min(node.out.type.bytes - distance, consumed.type.bytes)
            if shared > 0 and (best is None or shared > best[0]):
                best = shared, Slide(consumed, node.out, distance)
    return best[1] if best else None


def _distance(nodes: tuple[Node, ...], order: tuple[int, ...], consumed: Value, made: Value) -> int:
    """How far, at most, what is written of one map is ahead of the oldest row still to be read of the other."""
    read, written = (v.type.bytes // v.type.shape[1] for v in (consumed, made))
    readers = [(i, node) for i, node in enumerate(nodes) if consumed in maps(node)]
    done = [0] * len(nodes)
    ahead = 0
    for index in (index for index in order if index >= 0):
        if nodes[index].out is made:  # its own reading counts as still to be done
            oldest = min(_oldest(node, done[i]) for i, node in readers)
            if oldest < consumed.type.shape[1]:
                ahead = max(ahead, (done[index] + 1) * written - oldest * read)
        done[index] += 1
    return ahead


def _oldest(node: Node, row: int) -> int:
    """The oldest input row a node still reads when `row` is the next it computes; rows of padding alone read none."""
    left = (rows_read(node, r) for r in range(row, node.out.type.shape[1]))
    return next((first for first, end in left if first < end), node.ins[0].type.shape[1])
