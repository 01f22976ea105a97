"""How good a model is, as a page: the confusion of classes, precision and recall, errors by output or class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from smidgen.inference import (
    CellsTested,
    ClassesTested,
    ClassTested,
    LabelsTested,
    NumbersTested,
    ReconstructionTested,
    Tested,
)
from smidgen.results.drawing import COLOURS
from smidgen.results.figures import Axis, Bars, Figure, Note, Panel, Unit
from smidgen.results.page import page_of

WRITTEN = 30  # classes, up to which the matrix has its numbers written into it
HEIGHTS = (420, 1200)  # pixels of a matrix, at least and at most
ROW = 26  # pixels of a class
GROUP = 0.8  # how wide the bars of a name are together
DARK = 0.6  # of a row's samples: numbers in darker cells are white


def draw_tested(tested: Tested) -> str:
    """A test as a page that needs nothing else."""
    title = f"{tested.model} tested on {tested.data}"
    lines = str(tested).splitlines()
    return page_of(title, ". ".join(lines) + ".", _figures(tested), _rows(tested))


def _figures(tested: Tested) -> list[Figure]:
    match tested:
        case ClassesTested() | CellsTested():
            return [_matrix(tested.classes, tested.confusion), _shares(tested.classes)]
        case LabelsTested():
            return [_shares(tested.outputs)]
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
        case LabelsTested():
            return [(one.name, _said(one)) for one in tested.outputs]
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


def _matrix(classes: tuple[ClassTested, ...], confusion: tuple[tuple[int, ...], ...]) -> Figure:
    """Rows are the true classes, from the top; the colour is the share of a row. Cells without samples are left out."""
    names, count = _names(classes), len(classes)
    cells = [(row, column, found) for row, line in enumerate(confusion) for column, found in enumerate(line) if found]
    shares = [found / max(sum(confusion[row]), 1) for row, _, found in cells]
    squares = Bars(
        "cells", tuple(float(column) for _, column, _ in cells), (1.0,) * len(cells),
        tuple(
            f"true {names[row]}, predicted {names[column]}: {found:,} ({share:.1%})"
            for (row, column, found), share in zip(cells, shares, strict=True)
        ),
        tuple(map(_shade, shares)), width=1.0, base=tuple(count - row - 1.5 for row, _, _ in cells), edges=True,
        legend=False,
    )  # fmt: skip
    numbers = [
        Note(column - 0.35, count - row - 1.0, f"{found:,}", "#ffffff" if share > DARK else "#000000")
        for (row, column, found), share in zip(cells, shares, strict=True)
        if count <= WRITTEN
    ]
    places = tuple(float(place) for place in range(count))
    panel = Panel(
        "Confusion: true class down, predicted across", (squares, *numbers),
        Axis("predicted", -0.5, count - 0.5, ticks=places, labels=names),
        Axis("true", -0.5, count - 0.5, ticks=places, labels=names[::-1]),
    )  # fmt: skip
    return Figure("", (panel,), min(max(ROW * count + 200, HEIGHTS[0]), HEIGHTS[1]))


def _names(classes: tuple[ClassTested, ...]) -> tuple[str, ...]:
    return tuple(f"{place}: {one.name}" for place, one in enumerate(classes))


def _shade(share: float) -> str:
    """White for none of a row's samples, the full colour for all of them."""
    full = COLOURS["activation"].removeprefix("#")
    parts = (255 + share * (int(full[at : at + 2], 16) - 255) for at in (0, 2, 4))
    return "#" + "".join(f"{round(part):02x}" for part in parts)


def _shares(classes: tuple[ClassTested, ...]) -> Figure:
    bars = {"precision": [one.precision for one in classes], "recall": [one.recall for one in classes]}
    return _bars("Precision and recall by class", _names(classes), bars, "share", "percent")


def _bars(
    title: str, names: Sequence[str], bars: Mapping[str, Sequence[float | None]], axis: str, unit: Unit = "number"
) -> Figure:
    """Bars side by side for each name; a value that is not known has none."""
    colours, width = (COLOURS["gradient"], COLOURS["saved"]), GROUP / len(bars)
    drawn = []
    for place, ((what, values), colour) in enumerate(zip(bars.items(), colours, strict=False)):
        known = [(float(x), y) for x, y in enumerate(values) if y is not None]
        said = tuple(f"{names[int(x)]}: {what} {f'{y:.2%}' if unit == 'percent' else f'{y:.4g}'}" for x, y in known)
        xs, ys = tuple(x for x, _ in known), tuple(y for _, y in known)
        drawn.append(Bars(what, xs, ys, said, (colour,), width=width, offset=place * width - GROUP / 2))
    places = tuple(float(place) for place in range(len(names)))
    high = 1.0 if unit == "percent" else None
    panel = Panel(
        title, tuple(drawn), Axis("", -0.5, len(names) - 0.5, ticks=places, labels=tuple(names)),
        Axis(axis, 0, high, unit=unit),
    )  # fmt: skip
    return Figure("", (panel,), 420)
