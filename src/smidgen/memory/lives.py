"""Liveness, read off the node order: what needs memory in the arena, and from when to when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from smidgen.ir import Graph, Node, Value, memory_read, virtual_sources
from smidgen.memory.layout import Buffer, loads
from smidgen.memory.overlap import Overlap
from smidgen.memory.rows import WHOLE, Schedule
from smidgen.memory.working import Working

Life = tuple[int, int]  # the nodes [start, end) over which memory is in use


def roots_of(graph: Graph) -> dict[Value, Value]:
    """For each value in the arena the one in whose memory it lies: its own, or what it is a view of.

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
    """By root: from the node that makes it to behind the last that reads it in any form; outputs live to the end."""
    roots, sources = roots_of(graph), virtual_sources(graph)
    lives: dict[Value, Life] = dict.fromkeys(graph.inputs, (0, 1))
    for index, node in enumerate(graph.nodes):
        touched = [roots[v] for v in (*memory_read(node, sources), *node.outs) if v in roots]
        lives |= {root: (lives.get(root, (index, 0))[0], index + 1) for root in touched}
    return lives | {roots[v]: (lives[roots[v]][0], len(graph.nodes) + 1) for v in graph.outputs if v in roots}


def buffers(graph: Graph, schedule: Schedule = WHOLE, *, working: Working) -> tuple[Buffer, ...]:
    """What needs memory in the arena, and when: inputs, activations and outputs by birth, then working memory.

    A view's output uses its input's memory, and so does an in-place op's where nobody reads the input later.
    State lies apart (`state_offsets`), and what replaces it takes its place there. The nodes of a streamed
    group take turns row by row, so what one of them uses lives as long as the group.
    """
    roots = roots_of(graph)
    lives = {root: _spanned(schedule, life) for root, life in lifetimes(graph).items()}
    homes = _homes(graph, schedule, roots, lives)
    used: dict[Value, list[Value]] = {}
    for value, root in roots.items():
        used.setdefault(homes[root], []).append(value)
    overlaps = {homes[roots[g.overlap.consumed]]: g.overlap for g in schedule.groups if g.overlap is not None}
    values = tuple(_buffer(home, held, schedule, roots, lives, overlaps) for home, held in used.items())
    return (*values, *_working(graph, schedule, working))


def loads_of(graph: Graph, *, working: Working) -> Iterator[tuple[int, int]]:
    """The bytes alive at each node where something begins, every map whole."""
    return loads(buffers(graph, working=working))


def _spanned(schedule: Schedule, life: Life) -> Life:
    """A life that lasts as long as the groups in which it begins and ends."""
    return schedule.span(life[0])[0], schedule.span(life[1] - 1)[1]


def _homes(
    graph: Graph, schedule: Schedule, roots: Mapping[Value, Value], lives: Mapping[Value, Life]
) -> dict[Value, Value]:
    """For each root the one whose memory it takes: its own, or that of a donor which is done with when it begins."""
    homes = {root: root for root in roots.values()}
    for index, node in enumerate(graph.nodes):
        donor = None if node.op.view or schedule.streams(index) else _donor(node)
        root = None if donor is None else roots.get(donor)
        if root is not None and roots.get(node.outs[0]) is node.outs[0] and lives[root][1] == index + 1:
            homes[node.outs[0]] = homes[root]
    return homes


def _donor(node: Node) -> Value | None:
    """The input whose memory the output may take."""
    donor = node.op.donor(node)
    return None if donor is None else node.ins[donor]


def _buffer(
    home: Value,
    held: list[Value],
    schedule: Schedule,
    roots: Mapping[Value, Value],
    lives: Mapping[Value, Life],
    overlaps: Mapping[Value, Overlap[Value]],
) -> Buffer:
    end = max(lives[roots[v]][1] for v in held)
    return Buffer(home.name, schedule.bytes(home), lives[home][0], end, tuple(held), overlaps.get(home))


def _working(graph: Graph, schedule: Schedule, working: Working) -> Iterator[Buffer]:
    """Working memory: each node's own, or one for all that take turns in a group."""
    sizes: dict[Life, int] = {}
    for index, node in enumerate(graph.nodes):
        span = schedule.span(index)
        if size := working(node, schedule.streams(index)):
            sizes[span] = max(sizes.get(span, 0), size)
    for (start, end), size in sizes.items():
        yield Buffer(f"working memory of {graph.nodes[start].outs[0].name}", size, start, end)
