"""How good a model is, as a page: the confusion of classes, precision and recall, errors by output or class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from smidgen.inference import CellsTested, ClassesTested, ClassTested, NumbersTested, ReconstructionTested, Tested
from smidgen.results.drawing import COLOURS, page_of

WRITTEN = 30  # classes, up to which the matrix has its numbers written into it
HEIGHTS = (420, 1200)  # pixels of a matrix, at least and at most
ROW = 26  # pixels of a class


def draw_tested(tested: Tested) -> str:
    """A test as a page that needs nothing else."""
    title = f"{tested.model} tested on {tested.data}"
    lines = str(tested).splitlines()
    return page_of(title, ". ".join(lines) + ".", _figures(tested), _rows(tested))


def _figures(tested: Tested) -> list[go.Figure]:
    match tested:
        case ClassesTested() | CellsTested():
            return [_matrix(tested.classes, tested.confusion), _shares(tested.classes)]
        case NumbersTested():
            names = [one.name for one in tested.outputs]
            return [
                _bars("Error of each output", names, {
                    "mean absolute": [one.mean_absolute for one in tested.outputs],
                    "root mean squared": [one.root_mean_squared for one in tested.outputs],
                }, "error"),
            ]  # fmt: skip
        case ReconstructionTested():
            names = [one.name for one in tested.classes] or ["all samples"]
            errors = [one.error for one in tested.classes] or [tested.error]
            return [_bars("Reconstruction error", names, {"mean squared": errors}, "mean squared error")]


def _rows(tested: Tested) -> list[tuple[str, str]]:
    match tested:
        case ClassesTested() | CellsTested():
            return [(one.name, _said(one)) for one in tested.classes]
        case NumbersTested():
            return [
                (one.name, f"MAE {one.mean_absolute:.6g}, RMSE {one.root_mean_squared:.6g}"
                 + ("" if one.r_squared is None else f", R² {one.r_squared:.4f}"))
                for one in tested.outputs
            ]  # fmt: skip
        case ReconstructionTested():
            return [(one.name, f"{one.samples:,} samples, mean error {one.error:.6g}") for one in tested.classes]


def _said(one: ClassTested) -> str:
    shares = (("precision", one.precision), ("recall", one.recall))
    known = [f"{what} {share:.2%}" for what, share in shares if share is not None]
    return ", ".join([f"{one.samples:,} samples", *known])


def _matrix(classes: tuple[ClassTested, ...], confusion: tuple[tuple[int, ...], ...]) -> go.Figure:
    """Rows are the true classes, from the top; the colour is the share of a row."""
    names = [f"{place}: {one.name}" for place, one in enumerate(classes)]
    shares = [[count / max(sum(row), 1) for count in row] for row in confusion]
    written = [[f"{count:,}" if count else "" for count in row] for row in confusion]
    figure = go.Figure(
        go.Heatmap(
            z=shares, x=names, y=names, customdata=confusion, zmin=0, zmax=1,
            colorscale=[[0, "white"], [1, COLOURS["activation"]]],
            text=written if len(classes) <= WRITTEN else None,
            texttemplate="%{text}" if len(classes) <= WRITTEN else None,
            hovertemplate="true %{y}<br>predicted %{x}<br>%{customdata:,} (%{z:.1%})<extra></extra>",
            colorbar={"title": "share of a row", "tickformat": ".0%"},
        )
    )  # fmt: skip
    height = min(max(ROW * len(classes) + 200, HEIGHTS[0]), HEIGHTS[1])
    figure.update_layout(title="Confusion: true class down, predicted across", height=height, template="plotly_white")
    figure.update_xaxes(title_text="predicted", type="category")
    figure.update_yaxes(title_text="true", type="category", autorange="reversed")
    return figure


def _shares(classes: tuple[ClassTested, ...]) -> go.Figure:
    names = [f"{place}: {one.name}" for place, one in enumerate(classes)]
    bars = {"precision": [one.precision for one in classes], "recall": [one.recall for one in classes]}
    figure = _bars("Precision and recall by class", names, bars, "share")
    figure.update_yaxes(range=[0, 1], tickformat=".0%")
    return figure


def _bars(title: str, names: list[str], bars: Mapping[str, Sequence[float | None]], axis: str) -> go.Figure:
    colours = (COLOURS["gradient"], COLOURS["saved"])
    figure = go.Figure(
        [
            go.Bar(
                name=name, x=names, y=list(y), marker_color=colour,
                hovertemplate="%{x}<br>" + name + " %{y:.4g}<extra></extra>",
            )
            for (name, y), colour in zip(bars.items(), colours, strict=False)
        ]
    )  # fmt: skip
    figure.update_layout(title=title, height=420, template="plotly_white", barmode="group")
    figure.update_xaxes(type="category")
    figure.update_yaxes(title_text=axis)
    return figure
