"""Passes over training graphs: each a function from graph to graph, verified after, that keeps every byte computed."""

from collections.abc import Callable, Iterable
from dataclasses import fields, replace

from smidgen.ir import Builder, Graph, Node, Value, memory_read, verify, virtual_sources
from smidgen.ir.rewriting import producers, prune, rewrite, uses
from smidgen.ops.gradient import ParameterGrad
from smidgen.ops.rules import Rate
from smidgen.ops.state import Gather
from smidgen.ops.update import BiasStep, DenseStep, FusedBiasStep, FusedStep, FusedWeightStep, Step, WeightStep
from smidgen.ops.weighted import WeightGrad

Pass = Callable[[Graph], Graph]


def share(graph: Graph) -> Graph:
    """Compute once what two nodes would both compute (one mask, two readers): common-subexpression elimination."""
    known: dict[tuple[object, ...], Node] = {}
    kept = {*graph.outputs, *graph.updates.values()}

    def rule(g: Builder, node: Node) -> Node:
        key = (node.op, node.ins, tuple(v.type for v in node.outs))
        if key in known and kept.isdisjoint(node.outs):
            return known[key]
        known[key] = node
        return node

    return rewrite(graph, rule)


def slice_channels(graph: Graph) -> Graph:
    """Gather channels before a weight gradient, not after: some of its channels need those of the input alone."""
    made_by = producers(graph)

    def rule(g: Builder, node: Node) -> Node | None:
        source = made_by.get(node.ins[0])
        if source is None or not isinstance(node.op, Gather) or not isinstance(source.op, WeightGrad):
            return None
        x, dy = source.ins
        read = source.op.channels_read(node.op.channels, x.type, dy.type)
        if read is None:
            return None
        saved, part = read
        if part is not None:
            dy = g.emit(Gather(part), dy, name=f"{dy.name}.part")
        x = g.emit(Gather(saved), x, name=f"{x.name}.saved")
        return Node(source.op, (x, dy), node.outs)

    return prune(rewrite(graph, rule))


FUSED: dict[type[Step], type[FusedStep]] = {BiasStep: FusedBiasStep, WeightStep: FusedWeightStep}


def fuse_updates(graph: Graph) -> Graph:
    """Let an update compute the gradient that it alone reads, row by row, so that it is never stored."""
    made_by, used = producers(graph), uses(graph)

    def rule(g: Builder, node: Node) -> Node | None:
        if not isinstance(node.op, Step) or type(node.op) not in FUSED:
            return None
        parts = node.op.parts(node.ins)
        (sums,) = parts.sources
        source = made_by.get(sums)
        if source is None or used[sums] != 1 or not isinstance(source.op, ParameterGrad):
            return None
        shared = {f.name: getattr(node.op, f.name) for f in fields(node.op)}
        op = FUSED[type(node.op)](**shared, gradient=source.op)
        return Node(op, (*parts.states, *source.ins, parts.rate, parts.step_state), node.outs)

    return prune(rewrite(graph, rule))


def save_early(graph: Graph) -> Graph:
    """Take masks and gathered channels as soon as their tensor exists, so that its memory is free again."""
    return _move(graph, [node for node in graph.nodes if node.op.saved])


def update_early(graph: Graph) -> Graph:
    """Run every update as soon as its gradient exists and the last reader of the old value is done."""
    return _move(graph, [node for node in graph.nodes if isinstance(node.op, Rate | Step | DenseStep)])


def _move(graph: Graph, moved: Iterable[Node]) -> Graph:
    """Put each of these nodes right behind the last one it must follow."""
    order, sources, made_by = list(graph.nodes), virtual_sources(graph), producers(graph)
    replaced = {new: old for old, new in graph.updates.items()}
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in memory_read(node, sources):
            readers.setdefault(value, []).append(node)
    for node in moved:
        order.pop(next(index for index, other in enumerate(order) if other is node))
        overwritten = (replaced[v] for v in node.outs if v in replaced)
        followed = {id(made_by[v]) for v in node.ins if v in made_by}
        followed |= {id(other) for old in overwritten for other in readers.get(old, ())}
        last = next((index for index in reversed(range(len(order))) if id(order[index]) in followed), -1)
        order.insert(last + 1, node)
    return replace(graph, nodes=tuple(order))


TRAINING: tuple[Pass, ...] = (prune, share, slice_channels, fuse_updates, save_early, update_early)


def run(graph: Graph, passes: tuple[Pass, ...] = TRAINING) -> Graph:
    """Run the passes in order, and verify the graph after each."""
    for one in passes:
        graph = one(graph)
        verify(graph)
    return graph
