"""Liveness, read off the node order, and a place in the arena for every buffer."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from smidgen.ir import Graph, Value, memory_read, virtual_sources
from smidgen.memory.layout import Buffer, Overlap, Plan, Working, loads, most
from smidgen.memory.packing import DECISIONS, Item, pack, pack_overlapping
from smidgen.memory.rows import WHOLE, Schedule

Life = tuple[int, int]  # the nodes [start, end) over which memory is in use


def roots_of(graph: Graph) -> dict[Value, Value]:
    """Return for each value in the arena the one in whose memory it lies: itself, or what it is a view of.

    Constants and state lie elsewhere, and so does what replaces state and what is a view of any of these.
    """
    apart = {*graph.updates.values(), *virtual_sources(graph)}
    roots = {v: v for v in graph.inputs}
    for node in graph.nodes:
        if node.op.view:
            if node.ins[0] in roots:
                roots[node.out] = roots[node.ins[0]]
        else:
            roots |= {v: v for v in node.outs if v not in apart}
    return roots


def lifetimes(graph: Graph) -> dict[Value, Life]:
    """Return the life of each root: from the node that makes it to behind its last reader; outputs live to the end."""
    roots, sources = roots_of(graph), virtual_sources(graph)
    lives: dict[Value, Life] = dict.fromkeys(graph.inputs, (0, 1))
    for index, node in enumerate(graph.nodes):
        touched = [roots[v] for v in (*memory_read(node, sources), *node.outs) if v in roots]
        lives |= {root: (lives.get(root, (index, 0))[0], index + 1) for root in touched}
    return lives | {roots[v]: (lives[roots[v]][0], len(graph.nodes) + 1) for v in graph.outputs if v in roots}


def buffers(graph: Graph, schedule: Schedule = WHOLE, *, working: Working) -> tuple[Buffer, ...]:
    """Return what needs memory in the arena, and when: inputs, activations and outputs by birth, then working memory.

    A view's output uses its input's memory, and so does an in-place op's where nobody reads the input later.
    State lies apart (`state_offsets`), and what replaces it takes its place there. The nodes of a streamed
    group take turns row by row, so what one of them uses lives as long as the group.
    """
    roots = roots_of(graph)
    lives = lifetimes(graph)
    spans = {root: (schedule.span(start)[0], schedule.span(end - 1)[1]) for root, (start, end) in lives.items()}
    homes = _homes(graph, schedule, roots, spans)
    used: dict[Value, list[Value]] = {}
    for value, root in roots.items():
        used.setdefault(homes[root], []).append(value)
    overlaps = {homes[roots[g.overlap.consumed]]: g.overlap for g in schedule.groups if g.overlap is not None}
    ends = {home: max(spans[roots[v]][1] for v in held) for home, held in used.items()}
    values = (
        Buffer(home.name, schedule.bytes(home), spans[home][0], ends[home], tuple(held), overlaps.get(home))
        for home, held in used.items()
    )
    return (*values, *_working(graph, schedule, working))


def loads_of(graph: Graph, *, working: Working) -> Iterator[tuple[int, int]]:
    """Yield the bytes alive at each node where something begins, every map whole."""
    return loads(buffers(graph, working=working))


def _homes(
    graph: Graph, schedule: Schedule, roots: Mapping[Value, Value], lives: Mapping[Value, Life]
) -> dict[Value, Value]:
    """Return for each root the one whose memory it takes: itself, or a donor that nobody reads any more."""
    homes = {root: root for root in roots.values()}
    for index, node in enumerate(graph.nodes):
        donor = None if node.op.view or schedule.streams(index) else node.op.donor(node)
        root = None if donor is None else roots.get(node.ins[donor])
        if root is not None and roots.get(node.outs[0]) is node.outs[0] and lives[root][1] == index + 1:
            homes[node.outs[0]] = homes[root]
    return homes


def _working(graph: Graph, schedule: Schedule, working: Working) -> Iterator[Buffer]:
    """Yield working memory: each node's own, or one for all that take turns in a group."""
    sizes: dict[Life, int] = {}
    for index, node in enumerate(graph.nodes):
        span = schedule.span(index)
        if size := working(node, schedule.streams(index)):
            sizes[span] = max(sizes.get(span, 0), size)
    for (start, end), size in sizes.items():
        yield Buffer(f"working memory of {graph.nodes[start].outs[0].name}", size, start, end)


def packed(buffers: tuple[Buffer, ...], decisions: int = DECISIONS) -> Plan:
    """Return the best plan found within a number of decisions; at once where it meets the lower bound.

    Buffers that are meant to overlap do so where that lowers the peak, and lie apart where it does not.
    """
    needed = _needed(buffers)
    if all(b.overlap is None for b in needed):
        return Plan(needed, pack(_items(needed), decisions).offsets)
    plan = overlapping(needed, decisions)
    if plan.peak <= most(apart(buffers)):
        return plan
    return min(plan, packed(apart(buffers), decisions), key=lambda plan: plan.peak)


def _needed(buffers: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    """Return the buffers, overlapping only where that leaves fewer bytes alive at the peak: free ones pack better."""
    for index, buffer in enumerate(buffers):
        if buffer.overlap is not None:
            without = (*buffers[:index], replace(buffer, overlap=None), *buffers[index + 1 :])
            buffers = without if most(without) == most(buffers) else buffers
    return buffers


def overlapping(buffers: tuple[Buffer, ...], decisions: int = DECISIONS) -> Plan:
    """Return the best plan found in which every buffer that is meant to lie over another does."""
    begun = {b.values[0]: index for index, b in enumerate(buffers) if b.values}
    overlaps = tuple(
        Overlap(i, begun[b.overlap.made], b.overlap.distance) for i, b in enumerate(buffers) if b.overlap is not None
    )
    return Plan(buffers, pack_overlapping(_items(buffers), overlaps, decisions).offsets)


def _items(buffers: tuple[Buffer, ...]) -> tuple[Item, ...]:
    return tuple(Item(b.start, b.end, b.padded) for b in buffers)


def apart(buffers: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    """Return the same buffers, none of them over another."""
    return tuple(replace(b, overlap=None) for b in buffers)
