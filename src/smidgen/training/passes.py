"""Passes over training graphs: each a function from graph to graph, verified after, that keeps every byte computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import fields, replace

from smidgen.ir import Builder, Graph, Node, Value, memory_read, verify, virtual_sources
from smidgen.ops.conv_grad import ConvGradWeight, DepthwiseGradWeight
from smidgen.ops.gradient import Gather, Mask, ParameterGrad
from smidgen.ops.loss import Rate
from smidgen.ops.update import BiasStep, DenseStep, FusedBiasStep, FusedStep, FusedWeightStep, Step, WeightStep

Pass = Callable[[Graph], Graph]


def prune(graph: Graph) -> Graph:
    """Drop the nodes no output and no update depends on, and the constants nobody reads."""
    needed, kept = {*graph.outputs, *graph.updates.values()}, []
    for node in reversed(graph.nodes):
        if needed & set(node.outs):
            kept.append(node)
            needed |= set(node.ins)
    constants = {v: data for v, data in graph.constants.items() if v in needed}
    return replace(graph, nodes=tuple(reversed(kept)), constants=constants)


def share(graph: Graph) -> Graph:
    """Compute once what two nodes would compute alike (two readers of one mask, say)."""
    known: dict[tuple[object, ...], tuple[Value, ...]] = {}
    same: dict[Value, Value] = {}
    kept = []
    for node in graph.nodes:
        node = replace(node, ins=tuple(same.get(v, v) for v in node.ins))
        key = (node.op, node.ins, tuple(v.type for v in node.outs))
        if key in known and not set(node.outs) & {*graph.outputs, *graph.updates.values()}:
            same.update(zip(node.outs, known[key], strict=True))
        else:
            known[key] = node.outs
            kept.append(node)
    return replace(graph, nodes=tuple(kept))


def slice_channels(graph: Graph) -> Graph:
    """Some channels of a weight gradient need those channels of the input alone: gather before, not after."""
    producer = {v: node for node in graph.nodes for v in node.outs}
    g = Builder.upon(graph)
    g.nodes = []
    for node in graph.nodes:
        source = producer.get(node.ins[0])
        if (
            source is None
            or not isinstance(node.op, Gather)
            or not isinstance(source.op, ConvGradWeight | DepthwiseGradWeight)
        ):
            g.nodes.append(node)
            continue
        x, dy = source.ins
        if isinstance(source.op, DepthwiseGradWeight):
            times = dy.type.shape[3] // x.type.shape[3]  # channels of the output for each of the input
            saved = tuple(c // times for c in node.op.channels)
            dy = g.emit(node.op, dy, name=f"{dy.name}.part")
        else:
            wide = x.type.shape[3] // source.op.groups  # channels of a group
            saved = tuple(first + c for first in range(0, x.type.shape[3], wide) for c in node.op.channels)
        x = g.emit(Gather(saved), x, name=f"{x.name}.saved")
        g.nodes.append(Node(source.op, (x, dy), node.outs))
    return prune(replace(graph, nodes=tuple(g.nodes)))


FUSED: dict[type[Step], type[FusedStep]] = {BiasStep: FusedBiasStep, WeightStep: FusedWeightStep}


def fuse_updates(graph: Graph) -> Graph:
    """A gradient only its update reads is never stored: the update computes it row by row."""
    readers = Counter(v for node in graph.nodes for v in node.ins)
    producer = {v: node for node in graph.nodes for v in node.outs}
    nodes = []
    for node in graph.nodes:
        if isinstance(node.op, Step) and type(node.op) in FUSED:
            sums = node.ins[-3]
            source = producer.get(sums)
            if source is not None and readers[sums] == 1 and isinstance(source.op, ParameterGrad):
                shared = {f.name: getattr(node.op, f.name) for f in fields(node.op)}
                op = FUSED[type(node.op)](**shared, gradient=source.op)
                node = Node(op, (*node.ins[:-3], *source.ins, *node.ins[-2:]), node.outs)
        nodes.append(node)
    return prune(replace(graph, nodes=tuple(nodes)))


def save_early(graph: Graph) -> Graph:
    """Masks and gathered channels are taken as soon as their tensor exists, so that the tensor itself can go."""
    return _move(graph, [node for node in graph.nodes if isinstance(node.op, Mask | Gather)])


def update_early(graph: Graph) -> Graph:
    """Every update runs as soon as its gradient exists and the last reader of the old value is done."""
    return _move(graph, [node for node in graph.nodes if isinstance(node.op, Rate | Step | DenseStep)])


def _move(graph: Graph, moved: Iterable[Node]) -> Graph:
    """Put each of these nodes right behind the last one it must follow."""
    order, sources = list(graph.nodes), virtual_sources(graph)
    replaced = {new: old for old, new in graph.updates.items()}
    for node in moved:
        order.remove(node)
        overwritten = {replaced[v] for v in node.outs if v in replaced}
        must_follow = [
            index
            for index, other in enumerate(order)
            if set(other.outs) & set(node.ins) or overwritten & set(memory_read(other, sources))
        ]
        order.insert(max(must_follow, default=-1) + 1, node)
    return replace(graph, nodes=tuple(order))


TRAINING: tuple[Pass, ...] = (prune, share, slice_channels, fuse_updates, save_early, update_early)


def run(graph: Graph, passes: tuple[Pass, ...] = TRAINING) -> Graph:
    """The passes in order, the graph verified after each."""
    for one in passes:
        graph = one(graph)
        verify(graph)
    return graph
