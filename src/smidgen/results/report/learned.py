"""How a model learned and how good it is then, as sections of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from smidgen.data import Data
from smidgen.errors import InputError
from smidgen.inference import (
    CellsTested,
    ClassesTested,
    ClassTested,
    LabelsTested,
    NumbersTested,
    ReconstructionTested,
    Tested,
    test,
)
from smidgen.ir import Graph
from smidgen.learning import learned_graph
from smidgen.pipeline import Program
from smidgen.results.drawing import COLOURS
from smidgen.results.figures import Axis, Figure, Line, Panel
from smidgen.results.report.parts import (
    Block,
    Cell,
    Chart,
    KeyNumber,
    Matrix,
    Section,
    Table,
    counted,
    percent,
    rows_of,
)
from smidgen.results.report.showing import show_samples
from smidgen.selection.rates import BATCH, ChosenRate, RateTrial

LARGEST = 30  # classes of a matrix that a page has room for


@dataclass(frozen=True)
class EpochShown:
    """An epoch: its mean loss, and what the test after it gave, where there was one."""

    number: int
    loss: float
    accuracy: float | None = None
    error: float | None = None


def how_good(
    before: float | None, after: float | None, error_before: float | None, error: float | None, tests: str
) -> KeyNumber:
    """The share of right answers, or the error where there are none, before and after."""
    if after is not None and before is not None:
        return KeyNumber("Right after learning", f"{after:.1%}", f"{before:.1%} before, of {tests}", after)
    return KeyNumber("Error after learning", f"{error:.4g}", f"{error_before:.4g} before, of {tests}")


def learning_section(epochs: Sequence[EpochShown], chosen: ChosenRate | None) -> Section:
    """The loss over the epochs, the tests between them, and the rates that were tried before."""
    tables = [_epochs(epochs)]
    if chosen is not None:
        rows = rows_of((_rate(one), counted(one.steps), _loss(one.loss)) for one in chosen.trials)
        tables.append(Table("Learning rates that were tried", ("Rate of a batch of 256", "Steps", "Loss"), rows))
    chart = Chart(draw_learning(epochs, chosen), _seen(epochs, chosen), tuple(tables))
    said = "One sample at a time, as they come to a device; none of the test is among them."
    return Section("learning", "How it learned", said, (chart,))


def draw_learning(epochs: Sequence[EpochShown], chosen: ChosenRate | None) -> Figure:
    """The mean loss of each epoch, the tests where there are several, and the rates that were tried before."""
    panels = [_panel("course", "mean loss of the epoch", epochs, [one.loss for one in epochs], COLOURS["gradient"])]
    tested = [one for one in epochs if one.accuracy is not None]
    if len(tested) > 1:
        shares = [one.accuracy or 0.0 for one in tested]
        panels.append(_panel("tests", "share of right answers in the test", tested, shares, COLOURS["activation"]))
    if chosen is not None:
        panels.append(_trials(chosen))
    return Figure("The course of learning", tuple(panels), 340, (1.0,) * len(panels))


def _panel(name: str, title: str, epochs: Sequence[EpochShown], y: Sequence[float], colour: str) -> Panel:
    share = name == "tests"
    told = tuple(f"epoch {one.number}: {f'{v:.1%}' if share else f'{v:.3f}'}" for one, v in zip(epochs, y, strict=True))
    line = Line(name, tuple(one.number for one in epochs), tuple(y), told, colour, radius=4, legend=False)
    return Panel(title, (line,), Axis("epoch"), Axis("", 0 if share else None, unit="percent" if share else "number"))


def _trials(chosen: ChosenRate) -> Panel:
    """The loss of the rates that were tried; the one that the course follows stands out."""
    tried = [(round(BATCH * one.learning_rate, 6), one.loss, one) for one in chosen.trials if one.loss is not None]
    picked = tuple(COLOURS["gradient" if one.learning_rate == chosen.best else "state"] for _, _, one in tried)
    told = (f"{rate:g}/256, {one.steps} steps: {loss:.3f}" for rate, loss, one in tried)
    trials = Line(
        "trials", tuple(rate for rate, _, _ in tried), tuple(loss for _, loss, _ in tried), tuple(told),
        COLOURS["state"], radius=5, dots=picked, legend=False,
    )  # fmt: skip
    rates = Axis("rate of a batch of 256", log=True, ticks=trials.x)
    return Panel("before: loss of samples held back at each rate tried", (trials,), rates)


def _seen(epochs: Sequence[EpochShown], chosen: ChosenRate | None) -> str:
    first, last = epochs[0], epochs[-1]
    said = f"The mean loss went from {first.loss:.3f} in the first epoch to {last.loss:.3f} in the last."
    return said if chosen is None else f"{said} {_sentence(chosen.verdict)}"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _epochs(epochs: Sequence[EpochShown]) -> Table:
    rows = rows_of((counted(one.number), _loss(one.loss), percent(one.accuracy), _loss(one.error)) for one in epochs)
    return Table("Every epoch", ("Epoch", "Mean loss", "Right in the test", "Error of the test"), rows)


def _rate(trial: RateTrial) -> Cell:
    return Cell(f"{BATCH * trial.learning_rate:.4g}", trial.learning_rate)


def _loss(loss: float | None) -> Cell:
    return Cell("") if loss is None else Cell(f"{loss:.4f}", loss)


def before_learning(program: Program) -> Graph:
    """The model that a program is before its first step."""
    if program.training is None:
        raise InputError(f"{program.graph.name} was compiled without a scheme and does not learn; give one")
    return learned_graph(program.training, {value.name: array for value, array in program.graph.state.items()})


def quality_section(before: Graph, after: Graph, data: Data) -> Section:
    """How often the model is right after learning, what it takes for what, and samples before and after."""
    gallery = show_samples(before, after, data)
    try:
        tested = test(after, data)
    except InputError:  # what the model says cannot be judged by what the data tells
        said = "What it says of samples that it did not learn from."
        return Section("quality", "How good it is", said, (gallery,))
    said = " ".join(map(_sentence, str(tested).splitlines()[1:]))
    return Section("quality", "How good it is", said, (gallery, *_judged(tested)))


def _judged(tested: Tested) -> Iterator[Block]:
    match tested:
        case ClassesTested() | CellsTested():
            yield from _matrix(tested.classes, tested.confusion)
            yield _shares(tested.classes, "class")
        case LabelsTested():
            yield _shares(tested.outputs, "output")
        case NumbersTested():
            yield _errors(tested)
        case ReconstructionTested():
            if rows := rows_of((one.name, counted(one.samples), _loss(one.error)) for one in tested.classes):
                yield Table("Error by class", ("Class", "Samples", "Error"), rows, folded=False)


def _matrix(classes: tuple[ClassTested, ...], confusion: tuple[tuple[int, ...], ...]) -> list[Matrix]:
    """The matrix where a page has room for it, with what is mistaken most."""
    if len(classes) > LARGEST:
        return []
    names = tuple(one.name for one in classes)
    wrong = [(count, i, j) for i, row in enumerate(confusion) for j, count in enumerate(row) if i != j and count]
    said = "Nothing is mistaken."
    if wrong:
        worst = sorted(wrong, key=lambda one: (-one[0], one[1:]))[:3]
        listed = "; ".join(f"{names[i]} for {names[j]}, {count:,} of {sum(confusion[i]):,}" for count, i, j in worst)
        said = f"Mistaken most: {listed}."
    return [Matrix(names, confusion, said)]


def _shares(classes: tuple[ClassTested, ...], what: str) -> Table:
    rows = rows_of((one.name, percent(one.precision), percent(one.recall), counted(one.samples)) for one in classes)
    columns = (what.capitalize(), "Precision", "Recall", "Samples")
    return Table(f"Precision and recall by {what}", columns, rows, folded=len(classes) > LARGEST)


def _errors(tested: NumbersTested) -> Table:
    rows = rows_of(
        (one.name, _loss(one.mean_absolute), _loss(one.root_mean_squared), _loss(one.r_squared))
        for one in tested.outputs
    )
    columns = ("Output", "Mean absolute error", "Root mean squared error", "R²")
    return Table("Error of each output", columns, rows, folded=len(rows) > LARGEST)
