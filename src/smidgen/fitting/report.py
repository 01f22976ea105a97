"""The report of a fit: what was found in words, and pictures of what learns, how it learned and what it takes."""

from __future__ import annotations

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from smidgen.data.files import write_whole
from smidgen.fitting.made import Fitted, LearnedHere, ReportWritten
from smidgen.fitting.stages import REPORT, Stages
from smidgen.results.choosing import draw_contributions, draw_scheme
from smidgen.results.drawing import COLOURS, memory_figures, page_of
from smidgen.results.lifecycle import life_cycle
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
    classes, learned = len(stages.data.classes), fitted.learned
    title = f"{fitted.model.name} fitted to {stages.data.name}"
    said = (
        f"{classes} classes: top-1 {learned.before:.1%} before, {learned.accuracy:.1%} after; "
        f"{fitted.board.sram_bytes:,} bytes of SRAM on {fitted.board.board}, the budget is "
        f"{fitted.scheme.budget_bytes:,}."
    )
    write_whole(stages.folder / REPORT, page_of(title, said, figures, rows).encode())
    return ReportWritten(len(figures))


def draw_learning(chosen: ChosenRate, learned: LearnedHere) -> go.Figure:
    """The loss of the rates that were tried, and of the epochs at the one that was chosen."""
    titles = ("trials of learning rates", "the course at the rate chosen")
    figure = make_subplots(cols=2, subplot_titles=titles, horizontal_spacing=0.08)
    tried = [one for one in chosen.trials if one.loss is not None]
    picked = [COLOURS["gradient"] if one.learning_rate == chosen.best else COLOURS["state"] for one in tried]
    figure.add_trace(
        go.Scatter(
            x=[round(BATCH * one.learning_rate, 6) for one in tried], y=[one.loss for one in tried],
            customdata=[one.steps for one in tried], mode="lines+markers", line={"color": COLOURS["state"]},
            marker={"color": picked, "size": 10},
            hovertemplate="%{x:g}/256, %{customdata} steps: %{y:.3f}<extra></extra>",
        ),
        row=1, col=1,
    )  # fmt: skip
    epochs = list(range(1, len(learned.losses) + 1))
    figure.add_trace(
        go.Scatter(
            x=epochs, y=list(learned.losses), mode="lines+markers", line={"color": COLOURS["gradient"]},
            hovertemplate="epoch %{x}: %{y:.3f}<extra></extra>",
        ),
        row=1, col=2,
    )  # fmt: skip
    figure.update_layout(
        title="How it learned", height=420, template="plotly_white", showlegend=False, margin={"t": 90}
    )
    figure.update_xaxes(title_text="rate of a batch of 256", type="log", row=1, col=1)
    figure.update_xaxes(title_text="epoch", row=1, col=2)
    figure.update_yaxes(title_text="loss of images not learned from", row=1, col=1)
    figure.update_yaxes(title_text="mean loss", row=1, col=2)
    return figure
