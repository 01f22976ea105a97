"""A program's memory as data and as pictures: the arena over time, bytes alive at each node, the cost of each layer."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

from smidgen.ir import Graph, Value
from smidgen.memory import Buffer, Memory, shared
from smidgen.pipeline import Program
from smidgen.results.figures import COLOURS, CRIMSON, STREAMED, Axis, Band, Bars, Figure, Mark, Note, Panel, Rule
from smidgen.results.report.page import page_of
from smidgen.training.head import layers
from smidgen.training.scheme import AnalyticMemory, Trained, layer_memory

NOTHING = AnalyticMemory(0, 0, 0, 0)
Kind = Literal["state", "saved", "activation", "gradient", "scratch"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LABELS: dict[Kind, str] = {
    "state": "state: what learns",
    "saved": "saved for the backward pass",
    "activation": "activations",
    "gradient": "gradients",
    "scratch": "working memory",
}


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
    """A layer's analytic cost: of training all of it, and of what the program trains."""

    name: str
    whole: AnalyticMemory
    trained: AnalyticMemory


@dataclass(frozen=True)
class LifeCycle:
    """The memory of a program from its first node to its last."""

    model: str
    memory: Memory
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
    """Return the lifetimes and places of a program's plan, node after node."""
    graph, plan, memory = program.graph, program.plan, program.memory
    kinds = kinds_of(graph, plan.buffers)
    tensors = []
    for (b, offset), kind in zip(plan.placed, kinds, strict=True):
        held = program.schedule.rows(b.values[0]) if b.values else None
        rows = None if held is None else (held, b.values[0].type.shape[1])
        names = tuple(v.name for v in b.values)
        tensors.append(ArenaTensor(b.name, kind, b.bytes, offset, b.start, b.end, names, rows))
    groups = tuple((group.first, group.end) for group in program.schedule.groups)
    nodes = tuple(_node_memories(graph, plan.buffers, kinds, memory.state))
    return LifeCycle(graph.name, memory, tuple(tensors), nodes, groups, _backward(graph), tuple(_layers(program)))


def _backward(graph: Graph) -> int | None:
    """Return the node after the loss."""
    return graph.prediction_end + 1 if graph.roles else None


def kinds_of(graph: Graph, buffers: tuple[Buffer, ...]) -> tuple[Kind, ...]:
    """Return what each buffer holds: gradients depend on the loss; what else the backward pass reads was saved."""
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


def _node_memories(
    graph: Graph, buffers: tuple[Buffer, ...], kinds: tuple[Kind, ...], state: int
) -> Iterator[NodeMemory]:
    for index, node in enumerate(graph.nodes):
        alive: dict[Kind, int] = dict.fromkeys(KINDS, 0) | {"state": state}
        for buffer, kind in zip(buffers, kinds, strict=True):
            if buffer.start <= index < buffer.end:
                alive[kind] += buffer.padded
        alive["activation"] -= sum(size for size, start, end in shared(buffers) if start <= index < end)
        yield NodeMemory(node.outs[0].name, node.op.title, alive)


def _layers(program: Program) -> Iterator[LayerCost]:
    graph = program.training.forward if program.training else program.graph
    trained = program.training.trained if program.training else ()
    learned = {layer.node.out: layer_memory(layer) for layer in trained}
    for index, node in enumerate(layers(graph)):
        every = tuple(range(node.ins[1].type.shape[-1]))
        yield LayerCost(node.out.name, layer_memory(Trained(index, node, True, every)), learned.get(node.out, NOTHING))


def draw_memory(program: Program) -> str:
    """Return a page with pictures of a program's memory."""
    cycle = life_cycle(program)
    memory = cycle.memory
    learns = f" and {memory.state:,} for what outlives a run" if memory.state else ""
    summary = (
        f"{memory.sram:,} bytes of SRAM: an arena of {memory.peak:,}{learns}; no plan for this order of "
        f"nodes can have an arena below {memory.lower_bound:,}. The arena at its peak: {memory.at_peak}."
    )
    figures = [draw_arena(cycle), *([draw_layers(cycle)] if cycle.layers else [])]
    return page_of(f"Memory of {cycle.model} for {program.target.name}", summary, figures)


def draw_arena(cycle: LifeCycle) -> Figure:
    """Draw the arena above, the bytes alive below, over the same nodes."""
    kinds = [(kind, [tensor for tensor in cycle.tensors if tensor.kind == kind]) for kind in KINDS]
    places = [_rectangles(cycle, kind, tensors) for kind, tensors in kinds if tensors]
    nodes = Axis("node", 0, len(cycle.nodes) + 1)
    marks, levels, top = tuple(_marks(cycle)), list[Rule](), list[Mark]()
    peak, bound = cycle.memory.peak, cycle.memory.lower_bound
    levels.append(Rule("y", peak, dashed=True, words=(f"arena {peak:,}",)))
    if bound < peak:
        levels.append(Rule("y", bound, dashed=True, words=(f"lower bound {bound:,}",)))
    if cycle.nodes:
        step, right = cycle.nodes[cycle.peak], cycle.peak < len(cycle.nodes) / 2  # the side with more room
        words = f"peak: {step.bytes:,} bytes at node {cycle.peak}, {step.name}"
        top.append(Rule("x", cycle.peak + 0.5, CRIMSON, dashed=True))
        top.append(Note(cycle.peak + 0.5, step.bytes, words, CRIMSON, right))
    arena = Panel(
        "The arena: where each tensor lies, and when", (*marks, *places, *levels), replace(nodes, title=""),
        Axis("bytes from the arena's start", 0, unit="bytes"),
    )  # fmt: skip
    most = 1.15 * max(cycle.memory.sram, 1)
    alive = Panel(
        "Bytes alive at each node", (*_stacked(cycle), *marks, *top), nodes,
        Axis("bytes of SRAM", 0, most, unit="bytes"),
    )  # fmt: skip
    return Figure("The arena over time", (arena, alive), 900)


def _rectangles(cycle: LifeCycle, kind: Kind, tensors: list[ArenaTensor]) -> Bars:
    return Bars(
        LABELS[kind], tuple(t.start for t in tensors), tuple(t.bytes for t in tensors),
        tuple(_described(cycle, t) for t in tensors), (COLOURS[kind],),
        width=tuple(t.end - t.start for t in tensors), offset=0, base=tuple(t.offset for t in tensors), edges=True,
        legend=False,
    )  # fmt: skip


def _described(cycle: LifeCycle, tensor: ArenaTensor) -> str:
    """Describe a tensor."""
    held = f" ({tensor.rows[0]} of {tensor.rows[1]} rows)" if tensor.rows else ""
    last = min(tensor.end, len(cycle.nodes)) - 1
    until = "the caller" if tensor.end > len(cycle.nodes) else f"node {last}, {cycle.nodes[last].name}"
    lines = [
        f"{tensor.name}: {LABELS[tensor.kind]}",
        f"{tensor.bytes:,} bytes{held} at {tensor.offset:,}",
        f"from node {tensor.start}, {cycle.nodes[tensor.start].name}, to {until}" if cycle.nodes else "",
        f"in turn: {', '.join(tensor.values)}" if len(tensor.values) > 1 else "",
    ]
    return "\n".join(line for line in lines if line)


def _stacked(cycle: LifeCycle) -> Iterator[Bars]:
    """Yield the bytes alive at each node, kind upon kind."""
    below = [0] * len(cycle.nodes)
    for kind in KINDS:
        sizes = [step.alive[kind] for step in cycle.nodes]
        if any(sizes):
            notes = (
                f"node {i}, {step.name} ({step.op}), {step.bytes:,} in all\n{LABELS[kind]}: {step.alive[kind]:,}"
                for i, step in enumerate(cycle.nodes)
            )
            places = tuple(range(len(sizes)))
            yield Bars(LABELS[kind], places, tuple(sizes), tuple(notes), (COLOURS[kind],), 1, 0, tuple(below))
            below = [base + size for base, size in zip(below, sizes, strict=True)]


def _marks(cycle: LifeCycle) -> Iterator[Mark]:
    """Yield streamed groups, and the step from forward to backward."""
    for index, (first, end) in enumerate(cycle.groups):
        yield Band(first, end, STREAMED, "" if index else "streamed row by row")
    if cycle.backward is not None:
        yield Rule("x", cycle.backward, words=("forward", "backward"))


def draw_layers(cycle: LifeCycle) -> Figure:
    """Draw the cost of training each layer, counted as in the paper: pale for the whole layer, full for what learns."""
    names = [f"{index}: {layer.name}" for index, layer in enumerate(cycle.layers)]
    whole = [(layer.whole.activations, layer.whole.parameters) for layer in cycle.layers]
    learned = [(layer.trained.activations, layer.trained.parameters) for layer in cycle.layers]
    columns = []
    for part, (what, colour) in enumerate((("activations", COLOURS["saved"]), ("weights", COLOURS["state"]))):
        for costs, how, opacity in ((whole, "all of the layer", 0.35), (learned, "what learns", 1.0)):
            if any(map(any, costs)):
                y, name = tuple(cost[part] for cost in costs), f"{what}, {how}"
                notes = tuple(f"{layer}\n{name}: {size:,}" for layer, size in zip(names, y, strict=True))
                side = 0.4 * (part - 1)
                columns.append(Bars(name, tuple(range(len(y))), y, notes, (colour,), 0.4, side, opacity=opacity))
    title = "What learning a layer costs (analytic: inputs saved and mask bits; weights and biases that change)"
    return Figure(title, (Panel("", tuple(columns), Axis("convolution"), Axis("bytes", 0, unit="bytes")),), 500)
