"""Rewriting graphs: who makes and who reads each value, dead-code elimination, and a graph rebuilt by a rule.

A pass is a function from graph to graph. Most are a rule that gives what takes a node's place:

    def drop_idle(graph: Graph) -> Graph:
        def rule(g: Builder, node: Node) -> Value | None:
            return node.ins[0] if node.op == Activate("none") else None

        return rewrite(graph, rule)
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from smidgen.ir.building import Builder
from smidgen.ir.graph import Graph, Node, Value

Rule = Callable[[Builder, Node], Node | Value | None]


def producers(graph: Graph) -> dict[Value, Node]:
    """Return the node that makes each value; inputs, constants and state have none."""
    return {v: node for node in graph.nodes for v in node.outs}


def readers(graph: Graph) -> dict[Value, tuple[Node, ...]]:
    """Return the nodes that read each value, in order; a value nobody reads has no entry."""
    found: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in dict.fromkeys(node.ins):
            found.setdefault(value, []).append(node)
    return {value: tuple(nodes) for value, nodes in found.items()}


def uses(graph: Graph) -> Counter[Value]:
    """Return how often each value is used: as an input of a node, and as an output of the graph."""
    return Counter(v for node in graph.nodes for v in node.ins) + Counter(graph.outputs)


def needed(graph: Graph, *values: Value) -> tuple[Node, ...]:
    """Return the nodes that some values depend on, in order."""
    wanted, kept = set(values), []
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(node.outs):
            kept.append(node)
            wanted.update(node.ins)
    return tuple(reversed(kept))


def prune(graph: Graph) -> Graph:
    """Drop the nodes no output and no update depends on, and the constants nobody reads: dead-code elimination."""
    nodes = needed(graph, *graph.outputs, *graph.updates.values())
    read = {*graph.outputs, *(v for node in nodes for v in node.ins)}
    constants = {v: data for v, data in graph.constants.items() if v in read}
    return replace(graph, nodes=nodes, constants=constants)


def rewrite(graph: Graph, rule: Rule, absorbed: Collection[Node] = ()) -> Graph:
    """Rebuild the graph, node by node, without those that others absorb.

    The rule gives what takes a node's place: a node, a value instead of its only output, or None for the node itself.
    Other nodes it needs it emits into the builder. A node it gives may have other outputs than the one replaced,
    which are read instead from there on: those of an absorbed node, or of a node that stands already.
    """
    g, became, made = Builder.before(graph), dict[Value, Value](), set[Value]()
    g.reserve(*(v for node in graph.nodes for v in node.outs))

    def now(values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(became.get(v, v) for v in values)

    for node in graph.nodes:
        if node in absorbed:
            continue
        node = replace(node, ins=now(node.ins))
        instead = rule(g, node) or node
        if isinstance(instead, Value):
            became[node.out] = instead
            continue
        became.update((old, new) for old, new in zip(node.outs, instead.outs, strict=True) if old != new)
        if made.isdisjoint(instead.outs):
            g.append(replace(instead, ins=now(instead.ins)))
            made.update(instead.outs)
    g.update(graph.updates, now(graph.updates.values()))
    return g.graph(*now(graph.outputs), roles=graph.roles and graph.roles.after(became))


def fuse(graph: Graph, join: Callable[[Node, Node], Node | None]) -> Graph:
    """Join nodes with the one before where nobody else reads the value between; `join` gives both as one, or None."""
    made_by, used, joined, absorbed = producers(graph), uses(graph), dict[Value, Node](), set[Node]()
    for node in graph.nodes:
        before = made_by.get(node.ins[0])
        if before is not None and used[node.ins[0]] == 1 and (both := join(before, node)) is not None:
            joined[node.out] = both
            absorbed.add(before)
    return rewrite(graph, lambda g, node: joined.get(node.outs[0]), absorbed)
