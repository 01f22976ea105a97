"""How good a model is, as found on samples of which the truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from rich.console import Group
from rich.table import Table

from smidgen.ir import Array

SHOWN_CLASSES = 20  # of a confusion matrix in the terminal


@dataclass(frozen=True)
class ClassTested:
    """How well a class is told from the others; None where there is nothing to count."""

    name: str
    samples: int  # that are of it
    precision: float | None  # of those that the model says are of it, the share that is
    recall: float | None  # of those that are of it, the share that the model says so of


@dataclass(frozen=True)
class ClassesTested:
    """How often the class of a sample is the one a model says."""

    model: str
    data: str
    target: str
    samples: int
    accuracy: float
    note: str  # on how the classes of the data were matched with the model's; empty where nothing is to be said
    classes: tuple[ClassTested, ...]
    confusion: tuple[tuple[int, ...], ...]  # a row for each class that samples are of, a column for each that was said
    told: Literal["classes"] = "classes"

    def __str__(self) -> str:
        right = round(self.accuracy * self.samples)
        lines = [
            f"{self.model} on {self.target}, {self.samples:,} samples of {self.data}",
            f"accuracy {self.accuracy:.2%}: {right:,} of {self.samples:,} right",
        ]
        return "\n".join([*lines, self.note] if self.note else lines)

    def __rich__(self) -> Group:
        return Group(str(self), "", class_table(self.classes), *confusion_tables(self.classes, self.confusion))


@dataclass(frozen=True)
class CellsTested:
    """How often the class of a cell is the one a model says."""

    model: str
    data: str
    target: str
    samples: int
    cells: int  # of which the class is known
    accuracy: float
    classes: tuple[ClassTested, ...]
    confusion: tuple[tuple[int, ...], ...]
    told: Literal["maps"] = "maps"

    def __str__(self) -> str:
        right = round(self.accuracy * self.cells)
        return (
            f"{self.model} on {self.target}, {self.samples:,} samples of {self.data}\n"
            f"accuracy {self.accuracy:.2%}: {right:,} of {self.cells:,} cells right"
        )

    def __rich__(self) -> Group:
        return Group(str(self), "", class_table(self.classes), *confusion_tables(self.classes, self.confusion))


@dataclass(frozen=True)
class LabelsTested:
    """How often each of several outputs says yes and no as it should, by itself."""

    model: str
    data: str
    target: str
    samples: int
    accuracy: float  # share of all outputs that are right
    outputs: tuple[ClassTested, ...]  # the samples of each are those of which yes is true
    told: Literal["vectors"] = "vectors"

    def __str__(self) -> str:
        return (
            f"{self.model} on {self.target}, {self.samples:,} samples of {self.data}\n"
            f"accuracy {self.accuracy:.2%} of {len(self.outputs)} outputs, each yes or no"
        )

    def __rich__(self) -> Group:
        return Group(str(self), "", class_table(self.outputs, "output"))


@dataclass(frozen=True)
class NumberTested:
    """How far an output is from the number it should be."""

    name: str
    mean_absolute: float
    root_mean_squared: float
    r_squared: float | None  # share of the variance explained; None where the number never changes


@dataclass(frozen=True)
class NumbersTested:
    """How far a model's outputs are from the vectors they should be."""

    model: str
    data: str
    target: str
    samples: int
    mean_absolute: float
    root_mean_squared: float
    outputs: tuple[NumberTested, ...]
    told: Literal["vectors"] = "vectors"

    def __str__(self) -> str:
        return (
            f"{self.model} on {self.target}, {self.samples:,} samples of {self.data}\n"
            f"mean absolute error {self.mean_absolute:.6g}, root mean squared {self.root_mean_squared:.6g}"
        )

    def __rich__(self) -> Group:
        table = _table("output", "MAE", "RMSE", "R²")
        for one in self.outputs:
            explained = "" if one.r_squared is None else f"{one.r_squared:.4f}"
            table.add_row(one.name, f"{one.mean_absolute:.6g}", f"{one.root_mean_squared:.6g}", explained)
        return Group(str(self), "", table)


@dataclass(frozen=True)
class ClassError:
    """How well samples of a class are reconstructed."""

    name: str
    samples: int
    error: float


@dataclass(frozen=True)
class ReconstructionTested:
    """How well a model gives its input back: mean squared errors, in the numbers that the input stands for."""

    model: str
    data: str
    target: str
    samples: int
    error: float  # mean of all samples
    least: float
    largest: float
    classes: tuple[ClassError, ...]  # where samples have some
    normal: str | None  # of two classes the one that the model is to reconstruct well
    auc: float | None  # how often a sample of the other class has the larger error of two, one of each
    told: Literal["nothing"] = "nothing"

    def __str__(self) -> str:
        lines = [
            f"{self.model} on {self.target}, {self.samples:,} samples of {self.data}",
            f"reconstruction error {self.error:.6g} (mean squared), from {self.least:.6g} to {self.largest:.6g}",
        ]
        if self.auc is not None:
            lines.append(f"area under the curve {self.auc:.4f}, with {self.normal!r} as the normal samples")
        return "\n".join(lines)

    def __rich__(self) -> Group:
        table = _table("class", "samples", "error")
        for one in self.classes:
            table.add_row(one.name, f"{one.samples:,}", f"{one.error:.6g}")
        return Group(str(self), *(("", table) if self.classes else ()))


def count_confusion(truth: Array, said: Array, classes: int) -> tuple[tuple[int, ...], ...]:
    """How often each class, a row, was said to be each other, a column."""
    counted = np.bincount(truth * classes + said, minlength=classes * classes).reshape(classes, classes)
    return tuple(tuple(map(int, row)) for row in counted)


def judge_classes(names: Sequence[str], confusion: tuple[tuple[int, ...], ...]) -> tuple[ClassTested, ...]:
    """Precision and recall of each class."""
    said = [sum(column) for column in zip(*confusion, strict=True)]
    return tuple(
        ClassTested(name, sum(row), _share(row[place], said[place]), _share(row[place], sum(row)))
        for place, (name, row) in enumerate(zip(names, confusion, strict=True))
    )


def judge_labels(names: Sequence[str], truth: Array, said: Array) -> tuple[ClassTested, ...]:
    """Precision and recall of each output that says yes or no, from truths [samples, outputs] and what was said."""
    both = (truth & said).sum(axis=0).tolist()
    called, are = said.sum(axis=0).tolist(), truth.sum(axis=0).tolist()
    return tuple(
        ClassTested(name, are[place], _share(both[place], called[place]), _share(both[place], are[place]))
        for place, name in enumerate(names)
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def class_table(classes: tuple[ClassTested, ...], head: str = "class") -> Table:
    table = _table(head, "samples", "precision", "recall")
    for one in classes:
        shares = ("" if share is None else f"{share:.2%}" for share in (one.precision, one.recall))
        table.add_row(one.name, f"{one.samples:,}", *shares)
    return table


def confusion_tables(
    classes: tuple[ClassTested, ...], confusion: tuple[tuple[int, ...], ...]
) -> tuple[str | Table, ...]:
    """The matrix, where a terminal has room for it."""
    if len(classes) > SHOWN_CLASSES:
        return ("", f"the confusion matrix of {len(classes)} classes is in --json and in the page that -o writes")
    table = _table("true")
    for place, one in enumerate(classes):
        table.add_column(str(place) if len(classes) > SHOWN_CLASSES // 2 else one.name, justify="right")
    for place, (one, row) in enumerate(zip(classes, confusion, strict=True)):
        numbered = f"{place} {one.name}" if len(classes) > SHOWN_CLASSES // 2 else one.name
        table.add_row(numbered, *(f"{count:,}" if count else "·" for count in row))
    return "", "confusion: true class down, predicted across", table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(first, overflow="fold")
    for head in others:
        table.add_column(head, justify="right")
    return table
