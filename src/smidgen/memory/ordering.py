"""The order of nodes, by list scheduling with a beam search: stretches of them, each with the fewest bytes alive.

What is alive before and behind a stretch of consecutive nodes does not depend on their order, so each can be ordered
by itself. Only dependences count: random bits belong to their tensor, not to a time, and every byte stays the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import NamedTuple

from smidgen.ir import Graph, Value, memory_read, verify, virtual_sources
from smidgen.memory.layout import Working, padded
from smidgen.memory.planner import Life, lifetimes, loads_of, roots_of

STRETCH, STEP = 32, 16  # nodes ordered at once, and from one stretch to the next
STATES = 32  # of the search: sets of nodes done that are followed up, the best ones
ROUNDS = 3  # over the whole graph, while it gains


def candidates(graph: Graph, *, working: Working) -> tuple[Graph, ...]:
    """Return the graph and, where there is one, an order of it that promises less: the planned peak decides."""
    better = reorder(graph, working=working)
    return (graph,) if better is graph else (graph, better)


def reorder(graph: Graph, *, working: Working) -> Graph:
    """Return an order with a lower peak in some stretches and a higher one in none; the graph itself without one."""
    stretches = [(i, min(i + STRETCH, end)) for begin, end in _parts(graph) for i in range(begin, end, STEP)]
    open_ = set(stretches)  # what has changed since it was looked at
    sizes = {id(node): working(node, False) for node in graph.nodes}  # of nodes that stay the same in any order
    known = best = _Order(graph, lambda node, _: sizes[id(node)])
    for _ in range(ROUNDS):
        for first, end in stretches:
            if (first, end) not in open_:
                continue
            open_.remove((first, end))
            better = _better(best, first, end)
            if better is not best:
                best = better
                open_ |= {(a, b) for a, b in stretches if a < end and first < b and a != first}
    if best is known:
        return graph
    verify(best.graph)
    return best.graph


class _Order:
    """A graph in one order, and what is known of its memory, looked at once."""

    def __init__(self, graph: Graph, working: Working) -> None:
        self.graph, self.working = graph, working
        self.sources, self.roots, self.lives = virtual_sources(graph), roots_of(graph), lifetimes(graph)
        self.inputs = frozenset(graph.inputs)
        self.loads = tuple(loads_of(graph, working=working))

    def peaks(self, first: int, end: int) -> tuple[int, int]:
        """Return the most bytes alive in nodes [first, end), and in all others."""
        inside = max((load for i, load in self.loads if first <= i < end), default=0)
        return inside, max((load for i, load in self.loads if not first <= i < end), default=0)


def _parts(graph: Graph) -> Iterator[tuple[int, int]]:
    """Yield ranges [begin, end) within which nodes may move: a prediction runs all nodes before the label is read."""
    loss = graph.prediction_end
    yield 0, loss
    yield loss + 1, len(graph.nodes)


def _better(known: _Order, first: int, end: int) -> _Order:
    """Return the graph with nodes [first, end) in a better order, if the search finds one and the plan confirms it."""
    graph, (inside, outside) = known.graph, known.peaks(first, end)
    order = _Stretch(known, first, end).order(inside)
    if order is None:
        return known
    nodes = graph.nodes[first:end]
    moved = replace(graph, nodes=(*graph.nodes[:first], *(nodes[i] for i in order), *graph.nodes[end:]))
    changed = _Order(moved, known.working)
    now_inside, now_outside = changed.peaks(first, end)
    return changed if now_inside < inside and now_outside <= outside else known


@dataclass(frozen=True)
class _Held:
    """Memory that nodes of a stretch make or read; nodes are bits."""

    bytes: int
    readers: int
    outlives: bool  # the stretch


class _State(NamedTuple):
    """Nodes done, in this order, with the most bytes alive on the way and those alive now."""

    done: int
    peak: int
    alive: int
    order: tuple[int, ...]


class _Move(NamedTuple):
    """The cost of running a node: those it follows, as bits; its bytes; what it may be the last to read."""

    bit: int
    follows: int
    made: int
    working: int
    touched: tuple[tuple[int, int], ...]  # bytes and readers of what does not outlive the stretch
    donor: int  # the readers of what its first output may take the place of; -1 where that stays
    first: int  # bytes of its first output


class _Stretch:
    """Consecutive nodes of a graph, what they must follow and what memory they hold."""

    def __init__(self, known: _Order, first: int, end: int) -> None:
        graph, lives = known.graph, known.lives
        self.nodes, self.graph, self.roots = graph.nodes[first:end], graph, known.roots
        self.working = known.working
        memory = [tuple(memory_read(node, known.sources)) for node in self.nodes]
        self.reads = [tuple(dict.fromkeys(self.roots[v] for v in read if v in self.roots)) for read in memory]
        self.makes = [
            () if node.op.view else tuple(v for v in node.outs if self.roots.get(v) is v) for node in self.nodes
        ]
        self.held = dict(self._memory(lives, end))
        self.moves = [self._move(i, follows) for i, follows in enumerate(self._dependences(memory))]
        # Alive before and behind the stretch, and none of its nodes touches it.
        through = (
            v
            for v, life in lives.items()
            if life[1] > end and (life[0] < first or v in known.inputs) and v not in self.held
        )
        self.beside = sum(padded(v.type.bytes) for v in through)

    def _dependences(self, memory: Sequence[Sequence[Value]]) -> Iterator[int]:
        """Yield for each node the set of those it must follow, as bits; `memory` is what each reads."""
        maker = {v: i for i, node in enumerate(self.nodes) for v in node.outs}
        replaced = {new: old for old, new in self.graph.updates.items()}
        for index, node in enumerate(self.nodes):
            before = {maker[v] for v in node.ins if v in maker}
            if overwritten := {replaced[v] for v in node.outs if v in replaced}:
                before |= {i for i, read in enumerate(memory) if i != index and not overwritten.isdisjoint(read)}
            yield sum(1 << i for i in before)

    def _memory(self, lives: Mapping[Value, Life], end: int) -> Iterator[tuple[Value, _Held]]:
        for root in dict.fromkeys(v for group in (*self.reads, *self.makes) for v in group):
            readers = sum(1 << i for i, read in enumerate(self.reads) if root in read)
            yield root, _Held(padded(root.type.bytes), readers, lives[root][1] > end)

    def _move(self, i: int, follows: int) -> _Move:
        node, made = self.nodes[i], [self.held[v] for v in self.makes[i]]
        touched = [self.held[v] for v in dict.fromkeys((*self.reads[i], *self.makes[i]))]
        donor = node.op.donor(node)
        given = self.roots.get(node.ins[donor]) if donor is not None and made else None
        taken = self.held[given] if given is not None and given in (*self.reads[i], *self.makes[i]) else None
        return _Move(
            1 << i, follows, sum(held.bytes for held in made), self.working(node, False),
            tuple((held.bytes, held.readers) for held in touched if not held.outlives),
            taken.readers if taken is not None and not taken.outlives else -1, made[0].bytes if made else 0,
        )  # fmt: skip

    def order(self, limit: int) -> tuple[int, ...] | None:
        """Return the order found with the lowest peak, if that is below `limit`."""
        made = {v for outs in self.makes for v in outs}
        inherited = {root: held for root, held in self.held.items() if root not in made}
        states = [_State(0, 0, self.beside + sum(held.bytes for held in inherited.values()), ())]
        for _ in self.nodes:
            best: dict[int, _State] = {}
            for state in states:
                for following in self._next(state, limit):
                    known = best.get(following.done)
                    if known is None or following.peak < known.peak:
                        best[following.done] = following
            states = sorted(best.values(), key=itemgetter(1, 2, 3))[:STATES]
        return states[0].order if states else None

    def _next(self, state: _State, limit: int) -> Iterator[_State]:
        """Yield the state after each node that can run now, unless that takes `limit` bytes or more."""
        before, peak, alive, order = state
        waiting = ~before
        for i, (bit, follows, made, working, touched, donor, first) in enumerate(self.moves):
            if not waiting & bit or follows & waiting:
                continue
            left = waiting & ~bit
            during = alive + made + working
            if donor >= 0 and not donor & left:
                during -= first  # it takes the place of what is done with
            if during < limit:
                freed = sum([size for size, readers in touched if not readers & left])
                yield _State(before | bit, max(peak, during), alive + made - freed, (*order, i))
