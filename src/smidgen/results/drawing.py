"""A program's memory in pictures: the arena over time, what is alive at each node, what learning each layer costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from smidgen.pipeline import Program
from smidgen.results.figures import Axis, Band, Bars, Figure, Mark, Note, Panel, Rule
from smidgen.results.lifecycle import KINDS, ArenaTensor, Kind, LifeCycle, life_cycle
from smidgen.results.page import page_of
from smidgen.training.scheme import AnalyticMemory

LABELS: dict[Kind, str] = {
    "state": "state: what learns",
    "saved": "saved for the backward pass",
    "activation": "activations",
    "gradient": "gradients",
    "scratch": "working memory",
}
COLOURS: dict[Kind, str] = {
    "state": "#8c7fb8",
    "saved": "#e69f00",
    "activation": "#56a0d3",
    "gradient": "#009e73",
    "scratch": "#9a9a9a",
}
STREAMED = "#f0e442"
CRIMSON = "#dc143c"


def draw_memory(program: Program) -> str:
    """The pictures as a page that needs nothing else."""
    cycle = life_cycle(program)
    return page_of(f"Memory of {cycle.model} for {program.target.name}", _summary(cycle), memory_figures(cycle))


def memory_figures(cycle: LifeCycle) -> list[Figure]:
    """The arena over time, and what learning each layer costs."""
    return [draw_arena(cycle), *([draw_layers(cycle)] if cycle.layers else [])]


def _summary(cycle: LifeCycle) -> str:
    learns = f" and {cycle.state:,} for what outlives a run" if cycle.state else ""
    bound = f"no plan for this order of nodes can have an arena below {cycle.lower_bound:,}"
    held = f"The arena at its peak: {cycle.at_peak}."
    return f"{cycle.arena + cycle.state:,} bytes of SRAM: an arena of {cycle.arena:,}{learns}; {bound}. {held}"


def draw_arena(cycle: LifeCycle) -> Figure:
    """The arena above, the bytes alive below, over the same nodes."""
    kinds = [(kind, [tensor for tensor in cycle.tensors if tensor.kind == kind]) for kind in KINDS]
    places = [_rectangles(cycle, kind, tensors) for kind, tensors in kinds if tensors]
    nodes = Axis("node", 0, len(cycle.nodes) + 1)
    marks = tuple(_marks(cycle))
    arena = Panel(
        "The arena: where each tensor lies, and when", (*marks, *places, *_levels(cycle)), replace(nodes, title=""),
        Axis("bytes from the arena's start", 0, unit="bytes"),
    )  # fmt: skip
    most = 1.15 * max(cycle.arena + cycle.state, 1)
    alive = Panel(
        "Bytes alive at each node", (*_stacked(cycle), *marks, *_peak(cycle)), nodes,
        Axis("bytes of SRAM", 0, most, unit="bytes"),
    )  # fmt: skip
    return Figure("", (arena, alive), 900)


def _rectangles(cycle: LifeCycle, kind: Kind, tensors: list[ArenaTensor]) -> Bars:
    return Bars(
        LABELS[kind], tuple(t.start for t in tensors), tuple(t.bytes for t in tensors),
        tuple(_described(cycle, t) for t in tensors), (COLOURS[kind],),
        width=tuple(t.end - t.start for t in tensors), offset=0, base=tuple(t.offset for t in tensors), edges=True,
        legend=False,
    )  # fmt: skip


def _described(cycle: LifeCycle, tensor: ArenaTensor) -> str:
    """A tensor in words."""
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
    """What is alive at each node, kind upon kind."""
    below = [0] * len(cycle.nodes)
    for kind in KINDS:
        sizes = [step.alive[kind] for step in cycle.nodes]
        if any(sizes):
            told = (
                f"node {i}, {step.name} ({step.op}), {step.bytes:,} in all\n{LABELS[kind]}: {step.alive[kind]:,}"
                for i, step in enumerate(cycle.nodes)
            )
            places = tuple(range(len(sizes)))
            yield Bars(LABELS[kind], places, tuple(sizes), tuple(told), (COLOURS[kind],), 1, 0, tuple(below))
            below = [base + size for base, size in zip(below, sizes, strict=True)]


def _marks(cycle: LifeCycle) -> Iterator[Mark]:
    """Streamed groups, and the step from forward to backward."""
    for index, (first, end) in enumerate(cycle.groups):
        yield Band(first, end, STREAMED, "" if index else "streamed row by row")
    if cycle.backward is not None:
        yield Rule("x", cycle.backward, words=("forward", "backward"))


def _peak(cycle: LifeCycle) -> Iterator[Mark]:
    if cycle.nodes:
        step, right = cycle.nodes[cycle.peak], cycle.peak < len(cycle.nodes) / 2  # of the peak is more room
        yield Rule("x", cycle.peak + 0.5, CRIMSON, dashed=True)
        words = f"peak: {step.bytes:,} bytes at node {cycle.peak}, {step.name}"
        yield Note(cycle.peak + 0.5, step.bytes, words, CRIMSON, right)


def _levels(cycle: LifeCycle) -> Iterator[Rule]:
    """How far plan and bound reach."""
    yield Rule("y", cycle.arena, dashed=True, words=(f"arena {cycle.arena:,}",))
    if cycle.lower_bound < cycle.arena:
        yield Rule("y", cycle.lower_bound, dashed=True, words=(f"lower bound {cycle.lower_bound:,}",))


def draw_layers(cycle: LifeCycle) -> Figure:
    """What learning costs, layer by layer, counted as the paper does: pale for all of a layer, full for what learns."""
    names = [f"{index}: {layer.name}" for index, layer in enumerate(cycle.layers)]
    whole = [_cost(layer.whole) for layer in cycle.layers]
    learned = [_cost(layer.trained) for layer in cycle.layers]
    columns = []
    for part, (what, colour) in enumerate((("activations", COLOURS["saved"]), ("weights", COLOURS["state"]))):
        for costs, how, opacity in ((whole, "all of the layer", 0.35), (learned, "what learns", 1.0)):
            if any(map(any, costs)):
                y = [cost[part] for cost in costs]
                columns.append(_columns(f"{what}, {how}", names, y, colour, 0.4 * (part - 1), opacity))
    title = "What learning a layer costs (analytic: inputs saved and mask bits; weights and biases that change)"
    return Figure(title, (Panel("", tuple(columns), Axis("convolution"), Axis("bytes", 0, unit="bytes")),), 500)


def _cost(memory: AnalyticMemory | None) -> tuple[int, int]:
    """Bytes for activations and for weights."""
    return (0, 0) if memory is None else (memory.saved + memory.masks, memory.weights + memory.biases)


def _columns(name: str, names: Sequence[str], y: list[int], colour: str, side: float, opacity: float) -> Bars:
    told = tuple(f"{layer}\n{name}: {size:,}" for layer, size in zip(names, y, strict=True))
    return Bars(name, tuple(range(len(y))), tuple(y), told, (colour,), 0.4, side, opacity=opacity)
