"""Transposes that files of another layout hold: moved to where the next one undoes them."""

from __future__ import annotations

from smidgen import ops
from smidgen.ir import Builder, Graph, Node, Op, Value
from smidgen.ir.rewriting import prune, rewrite

Perm = tuple[int, ...]


def cancel_transposes(graph: Graph) -> Graph:
    """Transposes behind what works in any order, where the next undoes them; as before where that leaves no fewer."""
    moved = prune(rewrite(graph, _Sinking().rule))
    return moved if _count(moved) < _count(graph) else graph


def _count(graph: Graph) -> int:
    return sum(isinstance(node.op, ops.Transpose) for node in graph.nodes)


class _Sinking:
    """What is known of values that are transposed: of which value, and how."""

    def __init__(self) -> None:
        self.of: dict[Value, tuple[Value, Perm]] = {}

    def rule(self, g: Builder, node: Node) -> Node | Value | None:
        if isinstance(node.op, ops.Transpose):
            return self.transposed(node.ins[0], node.op.perm, node)
        sources = [self.of.get(v) for v in node.ins]
        if not sources or sources[0] is None:
            return None
        perm = sources[0][1]
        alike = [s[0] if s is not None and s[1] == perm else None for s in sources]
        ins = [v if s is None and v.type.size == 1 else s for s, v in zip(alike, node.ins, strict=True)]
        op = _in_order(node, perm)
        if op is None or any(v is None for v in ins):
            return None
        made = g.emit(op, *(v for v in ins if v is not None), q=node.out.type.q, name=f"{node.out.name}.first")
        return self.transposed(made, perm, node)

    def transposed(self, x: Value, perm: Perm, node: Node) -> Node | Value:
        """The node's output as a transpose of x, of what x is one of, or as x itself."""
        if x in self.of:
            x, first = self.of[x]
            perm = tuple(first[p] for p in perm)
        if perm == tuple(range(len(perm))):
            return x
        self.of[node.out] = x, perm
        long = [p for p in perm if x.type.shape[p] > 1]
        stays = long == sorted(long)  # only dimensions of one element move: memory stays as it is
        return Node(ops.Reshape(node.out.type.shape) if stays else ops.Transpose(perm), (x,), node.outs)


def _in_order(node: Node, perm: Perm) -> Op | None:
    """The op that does before a transpose what the node's does behind it; None where none does."""
    op = node.op
    if isinstance(op, ops.Concat):
        return ops.Concat(perm[op.axis])
    if isinstance(op, ops.Pad):
        return ops.Pad(_before(op.before, perm), _before(op.after, perm))
    if isinstance(op, ops.Crop):
        return ops.Crop(_before(op.start, perm), _before(op.stop, perm))
    whole = all(v.type.size in (1, node.out.type.size) for v in node.ins)
    return op if op.elementwise and whole else None


def _before(numbers: tuple[int, ...], perm: Perm) -> tuple[int, ...]:
    """One number for each dimension, as they are before a transpose."""
    return tuple(numbers[perm.index(i)] for i in range(len(perm)))
