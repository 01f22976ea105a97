"""Predictions of a model: the likeliest classes of each sample, cells of a map, numbers, or a reconstruction error."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Group

from smidgen.callbacks import ignore
from smidgen.data.audio import with_front_end
from smidgen.data.files import MEMORY
from smidgen.data.images import centre_box
from smidgen.data.inputs import as_input, kind_of
from smidgen.data.load import Shown, open_samples
from smidgen.data.pixels import pixel_encoding
from smidgen.data.samples import evenly
from smidgen.errors import InputError
from smidgen.inference import scores as meaning
from smidgen.inference.scores import InferenceProgress, Kind, ProgressCallback, Scored, names_of, real
from smidgen.ir import Array, Graph
from smidgen.quantization import GivenPixels, PixelChoice
from smidgen.quantization.pixels import TRIED, needs_trial
from smidgen.tables import Brief, Table, percent, rows_of
from smidgen.targets.device import FEWEST, Target
from smidgen.threads import in_order, threads_for

NONE = "none of these"
TOP = 3  # classes predicted for each sample
NUMBERS_SHOWN = 8


@dataclass(frozen=True)
class ClassProbability:
    """A class and its probability."""

    index: int
    name: str
    probability: float

    def __str__(self) -> str:
        return f"{self.name} {self.probability:.1%}"


@dataclass(frozen=True)
class MapCell:
    """A cell of a map with its class, and its centre as shares of the sample's width and height."""

    row: int
    column: int
    index: int
    name: str
    probability: float
    x: float
    y: float

    def __str__(self) -> str:
        return f"{self.name} {self.probability:.1%} at {self.x:.2f}, {self.y:.2f}"


@dataclass(frozen=True)
class Prediction:
    """The prediction for one sample; a model fills one of these fields, according to its kind."""

    sample: str
    classes: tuple[ClassProbability, ...] = ()  # likeliest first
    cells: tuple[MapCell, ...] = ()
    numbers: tuple[float, ...] = ()
    error: float | None = None  # mean squared, of the reconstruction
    distance: float | None = None  # from the nearest class, of a model that learned in one pass; above 1 none is near
    verdict: str = ""  # by the distance: none of these, or of a model that knows one class whether it is that

    @property
    def text(self) -> str:
        """The prediction in words."""
        if self.verdict:
            return ", ".join((f"{self.verdict} (distance {self.distance:.3g})", *map(str, self.classes)))
        if self.error is not None:
            return f"{self.error:.6g}"
        if self.numbers:
            more = ", …" if len(self.numbers) > NUMBERS_SHOWN else ""
            return ", ".join(f"{number:.6g}" for number in self.numbers[:NUMBERS_SHOWN]) + more
        return ", ".join(map(str, self.cells or self.classes)) or "nothing"


HEADS: dict[Kind, str] = {
    "classes": "likeliest classes", "cells": "cells above 50 %: class and centre (x, y)", "numbers": "output",
    "reconstruction": "reconstruction error (mean squared)", "distance": "verdict (distance: 1 is the limit)",
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class Predictions(Brief):
    """Predictions for some samples."""

    model: str
    target: str
    kind: Kind
    predictions: tuple[Prediction, ...]
    pixels: PixelChoice | None = None  # of a float32 model that is shown pictures

    def __str__(self) -> str:
        return "\n".join(f"{one.sample}: {one.text}" for one in self.predictions)

    def tables(self) -> tuple[Table, ...]:
        """Return a row for each sample: its likeliest classes, or what the model says in words."""
        ranks = range(max((len(one.classes) for one in self.predictions), default=0))
        columns = [("class", "second", "third")[rank] if rank < TOP else f"{rank + 1}th" for rank in ranks]
        if self.kind != "classes":
            rows = [(one.sample, one.text) for one in self.predictions]
            return (Table("", ("sample", HEADS[self.kind]), rows_of(rows)),)
        shown = []
        for one in self.predictions:
            cells = [cell for rank in one.classes for cell in (rank.name, percent(rank.probability))]
            cells = [one.verdict, "", *cells][: max(len(cells), 2)] if one.verdict else cells
            shown.append((one.sample, *cells))
        names = (name for column in columns for name in (column, ""))
        return (Table("", ("sample", *names), rows_of(shown)),)

    def __rich__(self) -> Group:
        pixels = [str(self.pixels)] if self.pixels else []
        return Group(f"{self.model} on {self.target}", *pixels, "", *self.tables())


def predict(
    model: Graph,
    samples: str | Path | Array | Sequence[Array],
    *,
    target: str | Target | None = None,
    top: int = TOP,
    numbers: bool = False,
    label: str | None = None,
    audio: str | None = None,
    preprocessing: GivenPixels = None,
    memory: int = MEMORY,
    threads: int | None = None,
    on_progress: ProgressCallback = ignore,
) -> Predictions:
    """Predict samples: those of a file or folder, one array, or several.

    The model runs in C on this machine, on a board by name, or in numpy ("reference"), the default for float32 models.
    The result has the `top` likeliest classes of each sample, with the names that the model carries; with `numbers`
    its plain outputs, for a model whose several outputs are not classes. `label` names columns of a table that are not
    for the model, `audio` and `preprocessing` how audio and pixels become the input if the model does not define it; if
    nothing does, of a float32 model the pictures themselves may show it, as for `quantize`. The result is the same for
    any number of `threads`, by default one per core.
    """
    if top < 1:
        raise InputError(f"the {top} likeliest classes cannot be shown; ask for 1 or more")
    kind: Kind = "numbers" if numbers else meaning.kind_of(model)
    target = meaning.where_to_run(model, target)
    made, waiting = list[Prediction](), deque[tuple[str, Array, Array]]()
    with _opened(samples, model, memory, label) as found:
        some = tuple(one.read() for one in evenly(found, TRIED if needs_trial(model, preprocessing) else 1))
        model = with_front_end(model, some, audio)
        model, pixels = meaning.with_pixels(model, some, None, preprocessing, threads, on_progress)
        encoding, count = pixel_encoding(model), threads_for(len(found), FEWEST, threads)

        def read(sample: Shown) -> tuple[str, Array, Array]:
            array = sample.read()
            return sample.name, array, as_input(array, encoding)

        def inputs() -> Iterator[Array]:
            for one in in_order(read, found, count):
                waiting.append(one)
                yield one[-1]

        for scored in meaning.scores_of(model, inputs(), target, count):
            name, array, one = waiting.popleft()
            made.append(_prediction(model, name, kind, top, scored, array, one))
            on_progress(InferenceProgress(len(made), len(found)))
    return Predictions(model.name, target if isinstance(target, str) else target.name, kind, tuple(made), pixels)


def _opened(
    samples: str | Path | Array | Sequence[Array], model: Graph, memory: int, label: str | None
) -> AbstractContextManager[tuple[Shown, ...]]:
    if isinstance(samples, str | Path):
        return open_samples(samples, model.image.type, memory, label)
    arrays = (samples,) if isinstance(samples, np.ndarray) else tuple(samples)
    return nullcontext(tuple(Shown(str(at), partial(arrays.__getitem__, at)) for at in range(len(arrays))))


def _prediction(
    model: Graph, name: str, kind: Kind, top: int, scored: Scored, sample: Array, given: Array
) -> Prediction:
    scores, far = scored.scores, scored.distance
    if kind == "distance":
        return Prediction(name, distance=far, verdict=names_of(model)[meaning.chosen_by(model, scored)])
    if kind == "reconstruction":
        return Prediction(name, error=meaning.reconstruction_error(model, scores, given))
    if kind == "numbers":
        return Prediction(name, numbers=tuple(map(float, real(scores, model.scores.type).ravel())))
    if kind == "cells":
        return Prediction(name, cells=tuple(_cells(model, scores, sample)))
    shares, names = meaning.probabilities(model, scores).ravel(), names_of(model)
    best = np.argsort(-shares, kind="stable")[:top]
    ranked = tuple(ClassProbability(int(i), names[i], float(shares[i])) for i in best)
    return Prediction(name, ranked, distance=far, verdict=NONE if far is not None and far > 1 else "")


def _cells(model: Graph, scores: Array, sample: Array) -> Iterator[MapCell]:
    """Yield the cells with a probability above one half of a class other than the first, the background."""
    shares, names = meaning.probabilities(model, scores)[0], names_of(model)
    rows, columns, _ = shares.shape
    left, top, right, bottom, encoding = 0.0, 0.0, 1.0, 1.0, pixel_encoding(model)
    if kind_of(sample, encoding.type) == "picture":  # of which a model sees a part
        height, width = sample.shape[:2]
        ends = centre_box(height, width, encoding)
        left, top, right, bottom = ends[0] / width, ends[1] / height, ends[2] / width, ends[3] / height
    for row, column, index in np.argwhere(shares > meaning.HALF).tolist():
        if index:
            x = left + (right - left) * (column + 0.5) / columns
            y = top + (bottom - top) * (row + 0.5) / rows
            yield MapCell(row, column, index, names[index], float(shares[row, column, index]), round(x, 4), round(y, 4))
