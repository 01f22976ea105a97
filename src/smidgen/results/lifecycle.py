"""A program's memory as data: every tensor's place, lifetime and kind, what is alive at each node, what layers cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from smidgen.ir import Graph, Value
from smidgen.memory import Buffer, PeakParts, shared
from smidgen.pipeline import Program
from smidgen.training.head import layers
from smidgen.training.scheme import AnalyticMemory, Trained, layer_memory

Kind = Literal["state", "saved", "activation", "gradient", "scratch"]
KINDS: tuple[Kind, ...] = ("state", "saved", "activation", "gradient", "scratch")


@dataclass(frozen=True)
class ArenaTensor:
    """A piece of the arena in use over nodes [start, end), and the values that use it in turn."""

    name: str
    kind: Kind
    bytes: int
    offset: int
    start: int
    end: int
    values: tuple[str, ...]
    rows: tuple[int, int] | None  # rows held and rows in all, of a map that passes through a ring buffer


@dataclass(frozen=True)
class NodeMemory:
    """A node, and the bytes alive while it runs."""

    name: str
    op: str
    alive: dict[Kind, int]

    @property
    def bytes(self) -> int:
        return sum(self.alive.values())


@dataclass(frozen=True)
class LayerCost:
    """A convolution's analytic cost: of learning all of it, and of what the program learns of it."""

    name: str
    whole: AnalyticMemory
    trained: AnalyticMemory | None


@dataclass(frozen=True)
class LifeCycle:
    """The memory of a program from its first node to its last."""

    model: str
    arena: int
    state: int
    lower_bound: int
    at_peak: PeakParts
    tensors: tuple[ArenaTensor, ...]
    nodes: tuple[NodeMemory, ...]
    groups: tuple[tuple[int, int], ...]  # streamed nodes [first, end)
    backward: int | None  # the first node of the backward pass; None where the program only infers
    layers: tuple[LayerCost, ...]

    @property
    def peak(self) -> int:
        """The node at which most bytes are alive."""
        return max(range(len(self.nodes)), key=lambda i: self.nodes[i].bytes, default=0)


def life_cycle(program: Program) -> LifeCycle:
    """What a program's plan says, node after node."""
    graph, plan, state = program.graph, program.plan, program.memory.state
    backward = _backward(graph)
    kinds = kinds_of(graph, plan.buffers)
    tensors = tuple(
        ArenaTensor(b.name, kind, b.bytes, offset, b.start, b.end, tuple(v.name for v in b.values), _rows(program, b))
        for (b, offset), kind in zip(plan.placed, kinds, strict=True)
    )
    groups = tuple((group.first, group.end) for group in program.schedule.groups)
    nodes = tuple(_node_memories(graph, plan.buffers, kinds, state))
    layers = tuple(_layers(program))
    parts = program.memory.at_peak
    return LifeCycle(graph.name, plan.peak, state, plan.lower_bound, parts, tensors, nodes, groups, backward, layers)


def _backward(graph: Graph) -> int | None:
    """The node behind the loss."""
    return graph.prediction_end + 1 if graph.roles else None


def kinds_of(graph: Graph, buffers: tuple[Buffer, ...]) -> tuple[Kind, ...]:
    """What each buffer holds: gradients depend on the loss; what else the backward pass reads was saved for it."""
    backward = _backward(graph)
    behind = graph.nodes[backward:] if backward is not None else ()
    gradients: set[Value] = set(graph.nodes[backward - 1].outs) if backward is not None else set()
    for node in behind:
        if gradients & set(node.ins):
            gradients |= set(node.outs)
    read = {v for node in behind for v in node.ins}

    def kind(buffer: Buffer) -> Kind:
        if not buffer.values:
            return "scratch"
        if buffer.values[0] in gradients:
            return "gradient"
        return "saved" if read & set(buffer.values) else "activation"

    return tuple(kind(buffer) for buffer in buffers)


def _rows(program: Program, buffer: Buffer) -> tuple[int, int] | None:
    for value in buffer.values[:1]:
        held = program.schedule.rows(value)
        return None if held is None else (held, value.type.shape[1])
    return None


def _node_memories(
    graph: Graph, buffers: tuple[Buffer, ...], kinds: tuple[Kind, ...], state: int
) -> Iterator[NodeMemory]:
    for index, node in enumerate(graph.nodes):
        alive: dict[Kind, int] = dict.fromkeys(KINDS, 0) | {"state": state}
        for buffer, kind in zip(buffers, kinds, strict=True):
            if buffer.start <= index < buffer.end:
                alive[kind] += buffer.padded
        for size, start, end in shared(buffers):
            if start <= index < end:
                alive["activation"] -= size
        yield NodeMemory(node.outs[0].name, node.op.title, alive)


def _layers(program: Program) -> Iterator[LayerCost]:
    graph = program.training.forward if program.training else program.graph
    trained = program.training.trained if program.training else ()
    learned = {layer.node.out: layer_memory(layer) for layer in trained}
    for index, node in enumerate(layers(graph)):
        every = tuple(range(node.ins[1].type.shape[-1]))
        yield LayerCost(node.out.name, layer_memory(Trained(index, node, True, every)), learned.get(node.out))
