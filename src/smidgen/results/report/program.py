"""Sections of a report on what learns, what each part adds, and what the program takes on its board."""

from collections.abc import Iterator

from smidgen.ir import Graph
from smidgen.results.choices import draw_contributions, draw_pareto, draw_scheme
from smidgen.results.inspection import LayerSummary, describe
from smidgen.results.memory import LABELS, LifeCycle, draw_arena, draw_layers
from smidgen.results.profile import NOTE, Profile
from smidgen.results.report.page import Block, Chart, Part, Section, Stack
from smidgen.selection.contributions import Contributions
from smidgen.selection.found import Pareto
from smidgen.tables import Cell, Table, counted, rows_of
from smidgen.targets.boards import Board
from smidgen.training import Options
from smidgen.training.scheme import Scheme, Trained, layer_memory, resolve

FLASH_PARTS = 4  # named beside the rest


def network_section(graph: Graph, scheme: Scheme, options: Options) -> Section:
    """Show the layers from the image to the classifier: which learn, how much of each, and what that takes."""
    summary = describe(graph)
    trained = {one.layer: one for one in resolve(scheme, graph, options.seed)}
    table, learns = summary.table(), (_learns(one, trained) for one in summary.layers)
    rows = tuple((*row, *more) for row, more in zip(table.rows, rows_of(learns), strict=True))
    nodes = Table("Every node of the network", (*table.columns, "learns", "bytes to learn"), rows)
    partly = sum(bool(one.channels) for one in trained.values())
    intro = (
        f"{graph.name} has {len(summary.layers)} nodes, {summary.macs:,} multiply-accumulates and "
        f"{summary.parameters:,} parameters. Of these the biases of the last {len(trained)} layers learn, weights in "
        f"{partly} of them, and the classifier."
    )
    caption = (
        "A column for each layer: above how much of its weights learns, and a dot if biases do; below what it takes."
    )
    chart = Chart(draw_scheme(graph, scheme, options), caption, (nodes,))
    return Section("network", "What learns", intro, (chart,))


def _learns(layer: LayerSummary, trained: dict[int, Trained]) -> tuple[Cell | str, ...]:
    """Return what a layer learns, and the bytes that takes."""
    one = trained.get(layer.number) if layer.number is not None else None
    if one is None:
        return "", ""
    channels = f"{len(one.channels)} of {one.node.ins[1].type.shape[-1]} channels"
    return ", ".join(["bias"] * one.bias + [channels] * bool(one.channels)), counted(layer_memory(one).total)


def contributions_section(contributions: Contributions, pareto: Pareto | None = None) -> Section:
    """Show what each part adds, and what each amount of memory buys where that is known."""
    given = contributions.conditions
    intro = (
        f"Measured on {given.data}, judged with {given.judged_with:,} images held back."
        if given.judged_with
        else "By rule, not measured: layers that do not narrow are taken to add something, later ones more."
    )
    caption = (
        "To the left the last biases, more and more of them; to the right the weights of each layer, by their share."
    )
    depths = [
        (f"the last {one.biases} biases", "all", _points(contributions.biases_gain(one.biases)))
        for one in contributions.depths
    ]
    shares = [
        (f"weights of layer {one.layer}", str(one.share), _points(contributions.weights_gain(one.layer, one.share)))
        for one in contributions.shares
    ]
    gains = Table("What each part adds, in points of top-1", ("Part", "Share", "Gain"), rows_of((*depths, *shares)))
    charts = [Chart(draw_contributions(contributions), caption, (gains,))]
    if pareto is not None:
        bought = "Each dot is the best scheme that fits the memory below it, by the gains above."
        rows = rows_of(
            (counted(one.cost), _points(one.gain), counted(one.scheme.biases), counted(one.weight_bits), one.weights)
            for one in pareto.points
        )
        columns = ("Bytes", "Gain in points", "Biases", "Bits of a weight", "Weights, layer:share")
        charts.append(Chart(draw_pareto(pareto), bought, (Table("What memory buys", columns, rows),)))
    return Section("contributions", "What each part adds", intro, tuple(charts))


def _points(gain: float) -> Cell:
    return Cell(f"{100 * gain:+.2f}", gain)


def memory_section(
    cycle: LifeCycle, profile: Profile | None = None, board: Board | None = None, budget: int | None = None
) -> Section:
    """Show SRAM and flash beside what the board has, where one was measured, and where each tensor lies, and when."""
    blocks: list[Block] = []
    if profile is not None and board is not None:
        used, largest = profile.sram, sorted(profile.flash.parts, key=lambda part: -part.bytes)
        sram = (
            Part("arena", used.arena, "part-0"), Part("what learns", used.state, "tone-state"),
            Part("stack", used.stack, "part-1"), Part("other data", used.other, "part-2"),
        )  # fmt: skip
        blocks.append(Stack(f"SRAM on {board.name}", sram, board.sram.bytes, "of SRAM", budget))
        named = [(part.what, part.bytes) for part in largest[:FLASH_PARTS]]
        named.append(("all else", sum(part.bytes for part in largest[FLASH_PARTS:])))
        parts = tuple(Part(*one, f"part-{place}") for place, one in enumerate(named))
        blocks.append(Stack(f"Flash on {board.name}", parts, board.flash.bytes, "of flash"))
    caption = (
        "Above, every tensor is a rectangle: its height is its bytes, its width the nodes during which it is needed. "
        "Below, the bytes alive at each node. The forward pass comes first, the backward pass after it."
    )
    blocks.append(Chart(draw_arena(cycle), caption, tuple(_over_time(cycle))))
    if cycle.layers:
        pale = "Pale is all of the layer, full what learns here: inputs and masks that are saved, weights and biases."
        learning = (
            (
                one.name, counted(one.whole.activations), counted(one.trained.activations),
                counted(one.whole.parameters), counted(one.trained.parameters),
            )
            for one in cycle.layers
        )  # fmt: skip
        columns = ("Layer", "Inputs saved, all", "Inputs saved, here", "Weights, all", "Weights, here")
        costs = Table("What learning each layer costs", columns, rows_of(learning))
        blocks.append(Chart(draw_layers(cycle), pale, (costs,)))
    memory = cycle.memory
    bound = "a smaller one" if memory.peak <= memory.lower_bound else f"one below {memory.lower_bound:,}"
    intro = (
        f"An arena of {memory.peak:,} bytes holds every tensor in turn, no plan for this order of nodes can have "
        f"{bound}; what learns takes {memory.state:,} more."
    )
    return Section("memory", "Memory", intro, tuple(blocks))


def _over_time(cycle: LifeCycle) -> Iterator[Table]:
    """Yield the tensors of the arena, and the bytes alive at each node."""
    tensors = (
        (
            one.name, LABELS[one.kind], counted(one.bytes), counted(one.offset), counted(one.start),
            counted(one.end - 1), "" if one.rows is None else f"{one.rows[0]} of {one.rows[1]}",
        )
        for one in cycle.tensors
    )  # fmt: skip
    columns = ("Tensor", "Holds", "Bytes", "Offset", "First node", "Last node", "Rows held")
    yield Table("Every tensor of the arena", columns, rows_of(tensors))
    most = max((node.bytes for node in cycle.nodes), default=1)
    alive = (
        (f"{place} {node.name}", node.op, counted(node.bytes, node.bytes / most))
        for place, node in enumerate(cycle.nodes)
    )
    yield Table("Bytes alive at each node", ("Node", "Op", "Bytes"), rows_of(alive))


def instructions_section(profile: Profile) -> Section:
    """Show what takes the time, by op and node by node."""
    counts, time = profile.instructions, profile.time
    step = "" if counts.step is None else f", {counts.step:,} for a training step"
    exact = (
        f"{profile.exact.steps} steps gave the bytes of the numpy reference."
        if profile.exact.equal
        else f"NOT the bytes of the numpy reference: {profile.exact.differs} differs."
    )
    intro = f"{counts.forward:,} instructions for a prediction{step}: {time}, an estimate. {NOTE} {exact}"
    what = "a prediction" if counts.step is None else "a training step"
    by_op = counts.table(f"Instructions of {what}, by op", counts.by_op, folded=False)
    by_node = counts.table(f"Instructions of {what}, node by node", counts.by_node)
    return Section("instructions", "Instructions", intro, (by_op, by_node))
