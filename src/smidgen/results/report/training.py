"""Sections on what learns and what a program takes, the report of a training run, and how to make it again."""

import hashlib
import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from smidgen.data import Data
from smidgen.ir import Graph
from smidgen.ir.text import fingerprint
from smidgen.learning import Course, Learned
from smidgen.pipeline import Program
from smidgen.results.choices import draw_contributions, draw_pareto, draw_scheme
from smidgen.results.inspection import LayerSummary, describe
from smidgen.results.memory import LABELS, LifeCycle, draw_arena, draw_layers, life_cycle
from smidgen.results.profile import NOTE, Profile
from smidgen.results.report.learned import before_learning, how_good, learning_section, quality_section
from smidgen.results.report.page import Block, Chart, Fact, Facts, KeyNumber, Part, Report, Section, Stack
from smidgen.selection.choice import Choice
from smidgen.selection.contributions import Contributions
from smidgen.selection.found import Pareto
from smidgen.selection.rates import ChosenRate
from smidgen.tables import Cell, Table, counted, rows_of
from smidgen.targets.boards import BOARDS, KIB, Board
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
        charts.append(Chart(draw_pareto(pareto), bought, pareto.tables()))
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


def course_facts(course: Course) -> tuple[tuple[str, str], ...]:
    """Return the settings of a course, by name."""
    changed = course.augment
    crops = "samples unchanged"
    if changed is not None:
        flips = ", flipped half of the time" if changed.flip else ""
        crops = f"random crops of {changed.scale[0]:.0%} to {changed.scale[1]:.0%} of a picture{flips}"
    rate = f"{course.learning_rate:.6g} a sample, {course.schedule}" if course.learning_rate else course.schedule
    return (("Seed", str(course.seed)), ("Course", f"{course.epochs} epochs; learning rate {rate}; {crops}"))


def reproduce_section(
    command: str, model: Graph, data: Data, settings: Iterable[tuple[str, str]], files: Iterable[Path]
) -> Section:
    """Show the command, its input, and the digests that a second run must give."""
    facts = [Fact("Command", "", command)] if command else []
    facts += [Fact(*one) for one in settings]
    made_by = f"Smidgen {version('smidgen')}, Python {platform.python_version()}, numpy {np.__version__}"
    facts.append(Fact("Versions", made_by))
    facts += [
        Fact("Model", f"{model.name}, its fingerprint", fingerprint(model)),
        Fact(
            "Data", f"{data.name}, {len(data.train):,} samples to learn from, {len(data.test):,} to test", data.digest()
        ),
    ]
    facts += [Fact(path.name, "SHA-256", hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]
    intro = "The same input gives the same bytes: a second run ends with these digests."
    return Section("reproduce", "Do it again", intro, (Facts(tuple(facts)),))


def candidates_section(choice: Choice) -> Section:
    """Show every candidate with its score on samples held back, what it costs, and why one was kept."""
    intro = f"Kept: {choice}. "
    if choice.rows:
        intro += (
            f"Each candidate learned from some of {choice.samples:,} training samples and was judged on the rest. The "
            "test samples decided nothing."
        )
    tables = (choice.table(),) if choice.rows else ()
    return Section("candidates", "What was tried on your samples", intro, tables)


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """A finished run: the model it began with, the scheme, the data, the course, and the result."""

    graph: Graph
    scheme: Scheme
    options: Options
    program: Program
    data: Data
    course: Course
    chosen: ChosenRate | None  # None where the rate was given
    learned: Learned
    command: str
    files: tuple[Path, ...]  # that the run wrote
    choice: Choice | None = None  # of what learns; None where a scheme was given
    profile: Profile | None = None  # of a board; None where nothing was measured


def report_training(run: TrainingRun) -> Report:
    """Return the report of a run."""
    learned, where = run.learned, run.program.target.name
    labels = f"{len(run.data.classes)} classes" if run.data.classes else f"loss {run.options.loss}"
    summary = (
        f"{labels}, {run.scheme.name} on {where}: {learned.first} before, {learned.last} after {len(learned.record)} "
        f"epochs of {len(run.data.train):,} samples, one at a time."
    )
    title = f"{run.graph.name} trained on {run.data.name}"
    return Report(title, "Smidgen train", summary, tuple(_numbers(run)), learned.warnings, tuple(_sections(run)))


def _numbers(run: TrainingRun) -> Iterator[KeyNumber]:
    """Yield how good, how small, how much was learned, and how the loss went."""
    record = run.learned.record
    yield how_good(run.learned.first, run.learned.last, f"{len(run.data.test):,} test samples")
    memory, count = run.program.memory, len(run.data.train)
    planned, where = memory.sram / KIB, run.program.target.name
    if run.profile is not None:
        planned, board = run.profile.sram_bytes / KIB, BOARDS[where]
        room = f"of {board.sram.bytes / KIB:.0f} KB on {where}"
        yield KeyNumber("SRAM", f"{planned:.1f} KB", room, run.profile.sram_bytes / board.sram.bytes)
    else:
        yield KeyNumber("Memory to learn", f"{planned:.1f} KB", f"arena and state, as planned for {where}")
    yield KeyNumber("Steps", f"{len(record) * count:,}", f"{len(record)} epochs of {count:,} samples")
    yield KeyNumber("Loss of the last epoch", f"{record[-1].loss:.3f}", f"{record[0].loss:.3f} in the first")


def _sections(run: TrainingRun) -> Iterator[Section]:
    board = None if run.profile is None else BOARDS[run.profile.target]
    yield quality_section(before_learning(run.program), run.learned.model, run.data)
    yield network_section(run.graph, run.scheme, run.options)
    if run.choice is not None:
        yield candidates_section(run.choice)
    yield learning_section(run.learned.first, run.learned.record, run.chosen)
    yield memory_section(life_cycle(run.program), run.profile, board)
    if run.profile is not None:
        yield instructions_section(run.profile)
    yield reproduce_section(run.command, run.graph, run.data, course_facts(run.course), run.files)
