"""The report of a fit: what was found in words, and pictures of what learns, how it learned and what it takes."""

from __future__ import annotations

from smidgen.data.files import write_whole
from smidgen.fitting.made import Fitted, LearnedHere, ReportWritten
from smidgen.fitting.stages import REPORT, Stages
from smidgen.results.choosing import draw_contributions, draw_scheme
from smidgen.results.drawing import COLOURS, memory_figures
from smidgen.results.figures import Axis, Figure, Line, Panel
from smidgen.results.lifecycle import life_cycle
from smidgen.results.page import page_of
from smidgen.selection.rates import BATCH, ChosenRate


def make_report(stages: Stages, fitted: Fitted) -> ReportWritten:
    """Write the page, of which every picture is drawn from what the stages left."""
    figures = [
        draw_scheme(stages.graph, stages.scheme, stages.options),
        draw_learning(stages.chosen_rate, fitted.learned),
        draw_contributions(stages.contributions),
        *memory_figures(life_cycle(stages.there)),
    ]
    rows = [(one.stage, one.said) for one in fitted.stages]
    classes = len(stages.data.classes)
    told = f"{classes} classes" if classes else f"loss {stages.options.loss}"
    title = f"{fitted.model.name} fitted to {stages.data.name}"
    said = (
        f"{told}: {fitted.learned.tested} after; "
        f"{fitted.board.sram_bytes:,} bytes of SRAM on {fitted.board.board}, the budget is "
        f"{fitted.scheme.budget_bytes:,}."
    )
    write_whole(stages.folder / REPORT, page_of(title, said, figures, rows).encode())
    return ReportWritten(len(figures))


def draw_learning(chosen: ChosenRate, learned: LearnedHere) -> Figure:
    """The loss of the rates that were tried, and of the epochs at the one that was chosen."""
    tried = [(round(BATCH * one.learning_rate, 6), one.loss, one) for one in chosen.trials if one.loss is not None]
    picked = tuple(COLOURS["gradient" if one.learning_rate == chosen.best else "state"] for _, _, one in tried)
    told = (f"{rate:g}/256, {one.steps} steps: {loss:.3f}" for rate, loss, one in tried)
    trials = Line(
        "trials", tuple(rate for rate, _, _ in tried), tuple(loss for _, loss, _ in tried), tuple(told),
        COLOURS["state"], radius=5, dots=picked, legend=False,
    )  # fmt: skip
    epochs = tuple(range(1, len(learned.losses) + 1))
    went = tuple(f"epoch {epoch}: {loss:.3f}" for epoch, loss in zip(epochs, learned.losses, strict=True))
    course = Line("course", epochs, learned.losses, went, COLOURS["gradient"], radius=3, legend=False)
    panels = (
        Panel(
            "trials of learning rates", (trials,), Axis("rate of a batch of 256", log=True),
            Axis("loss of images not learned from"),
        ),
        Panel("the course at the rate chosen", (course,), Axis("epoch"), Axis("mean loss")),
    )  # fmt: skip
    return Figure("How it learned", panels, 420, (1.0, 1.0))
