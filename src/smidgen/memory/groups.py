"""A group as it will run: its order row by row, its ring buffers, and which of its maps overlap."""

from collections.abc import Iterator, Mapping

from smidgen.ir import Graph, Node, Value
from smidgen.memory.layout import Overlap, padded
from smidgen.memory.planner import lifetimes, roots_of
from smidgen.memory.rows import Group, Turns, height, maps, row_bytes, streamable

IMAGE = -1  # in an order: the next row of the image


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
    if any(made & set(whole_reads(node)) for node in nodes):
        return None
    own = {v for v in made if lives[v][1] <= end}
    order, rings = _run(nodes, image, own)
    return Group(first, end, order, rings, _overlap(graph, first, end, order, rings))


def whole_reads(node: Node) -> tuple[Value, ...]:
    """Return the inputs of a streamable node that must be there before its first row."""
    return tuple(v for v in node.ins if v not in maps(node))


def _run(nodes: tuple[Node, ...], image: Value | None, own: set[Value]) -> tuple[tuple[int, ...], dict[Value, int]]:
    """Return the order, and the most rows held at once of each map that lives in the group alone."""
    turns = Turns(nodes, {} if image is None else {image: IMAGE})
    values = {i: node.out for i, node in enumerate(nodes)} | ({} if image is None else {IMAGE: image})
    order: list[int] = []
    rings = {index: 1 for index, value in values.items() if value in own}
    # The last node leads; what it does not read of the others is completed after.
    for lead in (len(nodes) - 1, *values):
        for index in turns.until(lead, height(values[lead])):
            order.append(index)
            if index in rings:
                rings[index] = max(rings[index], turns.held(index))
    return tuple(order), {values[i]: min(rows, height(values[i])) for i, rows in rings.items()}


def _overlap(
    graph: Graph, first: int, end: int, order: tuple[int, ...], rings: Mapping[Value, int]
) -> Overlap[Value] | None:
    """Return the pair of a consumed map and a made map that share most bytes; None where none share any."""
    nodes = graph.nodes[first:end]
    kept = [node.out for node in nodes if node.out not in rings]
    pairs = [
        Overlap(consumed, made, padded(_distance(nodes, order, consumed, made)))
        for consumed in _consumed(graph, first, end, rings)
        for made in kept
    ]
    best = max(pairs, key=shared_bytes, default=None)
    return best if best is not None and shared_bytes(best) > 0 else None


def shared_bytes(overlap: Overlap[Value]) -> int:
    """Return the bytes that lie in both maps; none where the one made ends before the other begins."""
    return min(padded(overlap.made.type.bytes) - overlap.distance, padded(overlap.consumed.type.bytes))


def _consumed(graph: Graph, first: int, end: int, rings: Mapping[Value, int]) -> Iterator[Value]:
    """Yield the maps from before the group that it alone reads, by rows and under one name, up to its end."""
    roots, lives = roots_of(graph), lifetimes(graph)
    nodes = graph.nodes[first:end]
    read = dict.fromkeys(v for node in nodes for v in node.ins if v in roots)
    for value in (v for v in read if v not in rings and not any(v == node.out for node in nodes)):
        by_rows = all(value not in whole_reads(node) for node in nodes)
        alone = all(v == value or roots[v] != roots[value] for v in read)
        if by_rows and alone and lives[roots[value]][1] <= end:
            yield value


def _distance(nodes: tuple[Node, ...], order: tuple[int, ...], consumed: Value, made: Value) -> int:
    """Return how far, at most, what is written of one map is ahead of the oldest row still to be read of the other."""
    turns = Turns(nodes, {consumed: IMAGE})
    ahead = 0
    for index in (index for index in order if index >= 0):
        if nodes[index].out == made:  # its own reading counts as still to be done
            oldest = turns.oldest(IMAGE)
            if oldest is not None and oldest < height(consumed):
                ahead = max(ahead, (turns.done[index] + 1) * row_bytes(made) - oldest * row_bytes(consumed))
        turns.done[index] += 1
    return ahead
