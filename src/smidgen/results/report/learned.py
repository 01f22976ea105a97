"""Sections of a report on how a model learned and how good it is afterwards, and the page of a test."""

from collections.abc import Iterator, Sequence

from smidgen.data import Data, Samples
from smidgen.data.samples import data_address
from smidgen.errors import InputError
from smidgen.inference import Prediction, Tested, predict, test
from smidgen.ir import Graph
from smidgen.learning import Epoch, learned_graph
from smidgen.learning import Tested as CourseTested
from smidgen.pipeline import Program
from smidgen.results.figures import BLACK, CRIMSON, Axis, Figure, Note, Panel, Polyline
from smidgen.results.report import page
from smidgen.selection.rates import BATCH, ChosenRate
from smidgen.tables import Matrix, Table, counted, measured, percent, rows_of

LARGEST = 30  # classes of a matrix that a page has room for
SHOWN = 12  # samples
LONGEST = 90  # letters of an answer


def how_good(before: CourseTested, after: CourseTested, tests: str) -> page.KeyNumber:
    """Return the share of right answers, or the error where there are none, before and after."""
    if after.accuracy is not None:
        right = f"{before.accuracy:.1%} before, of {tests}"
        return page.KeyNumber("Right after learning", f"{after.accuracy:.1%}", right, after.accuracy)
    return page.KeyNumber("Error after learning", f"{after.error:.4g}", f"{before.error:.4g} before, of {tests}")


def learning_section(before: CourseTested, epochs: Sequence[Epoch], chosen: ChosenRate | None) -> page.Section:
    """Show the loss over the epochs, the tests between them, and the rates that were tried before."""
    rows = rows_of(
        (counted(one.number), measured(one.loss, ".4f"), percent(one.accuracy), measured(one.error, ".4f"))
        for one in epochs
    )
    tables = [Table("Every epoch", ("Epoch", "Mean loss", "Right in the test", "Error of the test"), rows)]
    caption = f"The mean loss went from {epochs[0].loss:.3f} in the first epoch to {epochs[-1].loss:.3f} in the last."
    if chosen is not None:
        rows = rows_of(
            (measured(BATCH * one.learning_rate, ".4g"), counted(one.steps), measured(one.loss, ".4f"))
            for one in chosen.trials
        )
        tables.append(Table("Learning rates that were tried", ("Rate of a batch of 256", "Steps", "Loss"), rows))
        caption += f" {_sentence(chosen.verdict)}"
    chart = page.Chart(draw_learning(before, epochs, chosen), caption, tuple(tables))
    intro = "One sample at a time, as they come to a device; none of the test is among them."
    return page.Section("learning", "How it learned", intro, (chart,))


def draw_learning(before: CourseTested, epochs: Sequence[Epoch], chosen: ChosenRate | None) -> Figure:
    """Draw the mean loss of each epoch, the tests where there are several, and the rates that were tried before."""
    panels = [_panel("course", "mean loss of the epoch", [(one.number, one.loss) for one in epochs])]
    tested = [(one.number, one.accuracy) for one in epochs if one.accuracy is not None]
    if tested and before.accuracy is not None:
        panels.append(_panel("tests", "share of right answers in the test", [(0, before.accuracy), *tested]))
    if chosen is not None:
        panels.append(_trials(chosen))
    return Figure("The course of learning", tuple(panels), 340, (1.0,) * len(panels))


def _panel(name: str, title: str, points: Sequence[tuple[int, float]]) -> Panel:
    """Draw a number for each epoch; epoch 0 is before learning."""
    share = name == "tests"
    notes = tuple(
        f"{f'epoch {epoch}' if epoch else 'before'}: {f'{y:.1%}' if share else f'{y:.3f}'}" for epoch, y in points
    )
    epochs, values = zip(*points, strict=True)
    line = Polyline(name, epochs, values, notes, BLACK, radius=4, legend=False)
    return Panel(title, (line,), Axis("epoch"), Axis("", 0 if share else None, unit="percent" if share else "number"))


def _trials(chosen: ChosenRate) -> Panel:
    """Draw the loss of the rates that were tried; the one that the course follows stands out."""
    tried = [(round(BATCH * one.learning_rate, 6), one.loss, one) for one in chosen.trials if one.loss is not None]
    picked = tuple(CRIMSON if one.learning_rate == chosen.best else BLACK for _, _, one in tried)
    marked = (Note(rate, loss, "chosen", CRIMSON) for rate, loss, one in tried if one.learning_rate == chosen.best)
    notes = (f"{rate:g}/256, {one.steps} steps: {loss:.3f}" for rate, loss, one in tried)
    trials = Polyline(
        "trials", tuple(rate for rate, _, _ in tried), tuple(loss for _, loss, _ in tried), tuple(notes),
        BLACK, radius=5, dots=picked, legend=False,
    )  # fmt: skip
    rates = Axis("rate of a batch of 256", log=True, ticks=trials.x)
    return Panel("before: loss at each rate tried", (trials, *marked), rates)


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def before_learning(program: Program) -> Graph:
    """Return the model that a program is before its first step."""
    if program.training is None:
        raise InputError(f"{program.graph.name} was compiled without a scheme and does not learn; give one")
    return learned_graph(program.training, {value.name: array for value, array in program.graph.state.items()})


def quality_section(before: Graph, after: Graph, data: Data) -> page.Section:
    """Show how often the model is right after learning, what it mistakes, and samples before and after."""
    gallery = show_samples(before, after, data)
    try:
        tested = test(after, data)
    except InputError:  # the data has no labels that this model's output can be compared with
        intro = "The model's answers for samples that it did not learn from."
        return page.Section("quality", "How good it is", intro, (gallery,))
    intro = " ".join(map(_sentence, str(tested).splitlines()[1:]))
    return page.Section("quality", "How good it is", intro, (gallery, *_judged(tested)))


def draw_tested(tested: Tested) -> str:
    """Return the page of a test: the confusion of classes, precision and recall, errors by output or class."""
    summary = ". ".join(str(tested).splitlines()) + "."
    section = page.Section("quality", "How good it is", "", tuple(_judged(tested)))
    return page.render(
        page.Report(f"{tested.model} tested on {tested.data}", "Smidgen test", summary, (), (), (section,))
    )


def _judged(tested: Tested) -> Iterator[page.Block]:
    """Show the results of a test: of a matrix with too many classes its mistakes."""
    for block in tested.tables():
        yield block.mistakes() if isinstance(block, Matrix) and len(block.names) > LARGEST else block


def show_samples(before: Graph, after: Graph, data: Data) -> page.Gallery:
    """Show the first samples of each class, in turn, with the answers of two models; of a stream its beginning."""
    streams = bool(after.variables)
    places = list(range(min(SHOWN, len(data.test))) if streams else _in_turn(data.test, len(data.classes)))
    samples = data.test.at(places)
    found = (predict(model, samples.images, top=1) for model in (before, after))
    first, last = (one.predictions for one in found)
    shown = tuple(_shown(data, samples, row, place, first[row], last[row]) for row, place in enumerate(places))
    caption = "The model's answers for samples that it did not learn from, before it learned and after."
    if data.label_kind == "classes":
        right_before, right_after = sum(bool(s.before.right) for s in shown), sum(bool(s.after.right) for s in shown)
        caption += f" Of these {len(shown)}, {right_before} were right before and {right_after} are after."
    return page.Gallery(shown, caption)


def _in_turn(samples: Samples, classes: int) -> Iterator[int]:
    """Yield the first of each class, then the second of each, until there are enough."""
    if classes < 2 or samples.targets:
        yield from range(min(SHOWN, len(samples)))
        return
    seen: dict[int, int] = {}
    ranked = []
    for place, label in enumerate(samples.labels):
        seen[label] = seen.get(label, 0) + 1
        ranked.append((seen[label], label, place))
    yield from (place for _, _, place in sorted(ranked)[:SHOWN])


def _shown(
    data: Data, samples: Samples, row: int, place: int, before: Prediction, after: Prediction
) -> page.ShownSample:
    label = samples.labels[row] if data.label_kind == "classes" else None
    truth = "" if label is None else data.classes[label]
    if data.label_kind == "vectors":
        truth = _shortened(", ".join(f"{number:.4g}" for number in samples.targets[row]))
    answers = (
        page.Answer(_shortened(one.text), one.classes[0].index == label if one.classes and label is not None else None)
        for one in (before, after)
    )
    return page.ShownSample(f"test sample {place}", data_address(samples.images[row]), truth, *answers)


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
