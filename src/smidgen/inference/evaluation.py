"""Tests of a model on labelled samples: how often, or by how much, its predictions are wrong."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np
from rich.console import Group

from smidgen.callbacks import ignore
from smidgen.data import Data, Samples
from smidgen.data.audio import with_front_end
from smidgen.data.inputs import as_input
from smidgen.data.pixels import pixel_encoding
from smidgen.data.samples import match_classes
from smidgen.errors import InputError
from smidgen.inference import scores as meaning
from smidgen.inference.scores import InferenceProgress, ProgressCallback, Scored, class_count, names_of, real
from smidgen.ir import Array, Graph
from smidgen.quantization.pixels import TRIED, GivenPixels, PixelChoice, labels_for
from smidgen.tables import Brief, Matrix, Table, counted, measured, percent, rows_of
from smidgen.targets.device import FEWEST, Target
from smidgen.threads import in_order, threads_for

LONG = 30  # rows of a table that a page folds
NORMAL = ("normal", "ok", "good", "healthy", "regular")  # usual names for samples without a fault
Confusion = tuple[tuple[int, ...], ...]  # a row for each class of the samples, a column for each predicted class


@dataclass(frozen=True)
class ClassTested:
    """Precision and recall of a class; None where there is nothing to count."""

    name: str
    samples: int  # of this class
    precision: float | None  # share of the samples predicted as this class that are of it
    recall: float | None  # share of the samples of this class that are predicted as it


@dataclass(frozen=True)
class NumberTested:
    """Errors of one output against its label."""

    name: str
    mean_absolute: float
    root_mean_squared: float
    r_squared: float | None  # share of the variance explained; None where the label never changes


@dataclass(frozen=True)
class ClassError:
    """Reconstruction error of the samples of a class."""

    name: str
    samples: int
    error: float


@dataclass(frozen=True, repr=False)
class _Judged(Brief, ABC):
    """A model tested on samples."""

    model: str
    data: str
    target: str
    samples: int
    pixels: PixelChoice | None = field(default=None, kw_only=True)  # of a float32 model that is shown pictures

    @abstractmethod
    def _lines(self) -> tuple[str, ...]:
        """Return the result in sentences."""

    @abstractmethod
    def tables(self) -> tuple[Table | Matrix, ...]:
        """Return the tables below them."""

    def __str__(self) -> str:
        first = f"{self.model} on {self.target}, {self.samples:,} samples of {self.data}"
        return "\n".join((first, *filter(None, (str(self.pixels or ""), *self._lines()))))

    def __rich__(self) -> Group:
        return Group(str(self), *(part for table in self.tables() for part in ("", table)))


@dataclass(frozen=True, repr=False)
class ClassesTested(_Judged):
    """Accuracy over samples with class labels."""

    accuracy: float
    note: str  # on how the classes of the data were matched with the model's; may be empty
    classes: tuple[ClassTested, ...]
    confusion: Confusion
    rejected: float | None = None  # share of the samples that lie too far from all classes, where that is measured
    auc: float | None = None  # of a model that knows one class: how often a sample of the other lies further from it
    told: Literal["classes"] = "classes"

    def _lines(self) -> tuple[str, ...]:
        far = "" if self.rejected is None else f"{self.rejected:.2%} are none of the classes by their distance"
        area = "" if self.auc is None else f"area under the curve of distances {self.auc:.4f}"
        return _accuracy(self.accuracy, self.samples, "right"), self.note, far, area

    def tables(self) -> tuple[Table | Matrix, ...]:
        return _class_table(self.classes), Matrix(tuple(one.name for one in self.classes), self.confusion)


@dataclass(frozen=True, repr=False)
class CellsTested(_Judged):
    """Accuracy over the cells of maps."""

    cells: int  # with a known class
    accuracy: float
    classes: tuple[ClassTested, ...]
    confusion: Confusion
    told: Literal["maps"] = "maps"

    def _lines(self) -> tuple[str, ...]:
        return (_accuracy(self.accuracy, self.cells, "cells right"),)

    def tables(self) -> tuple[Table | Matrix, ...]:
        return _class_table(self.classes), Matrix(tuple(one.name for one in self.classes), self.confusion)


@dataclass(frozen=True, repr=False)
class LabelsTested(_Judged):
    """Accuracy of each of several yes-or-no outputs."""

    accuracy: float  # share of all outputs that are right
    outputs: tuple[ClassTested, ...]  # the samples of each are those labelled yes
    told: Literal["vectors"] = "vectors"

    def _lines(self) -> tuple[str, ...]:
        return (f"accuracy {self.accuracy:.2%} of {len(self.outputs)} outputs, each yes or no",)

    def tables(self) -> tuple[Table, ...]:
        return (_class_table(self.outputs, "output"),)


@dataclass(frozen=True, repr=False)
class NumbersTested(_Judged):
    """Errors of a model's outputs against vector labels."""

    mean_absolute: float
    root_mean_squared: float
    outputs: tuple[NumberTested, ...]
    told: Literal["vectors"] = "vectors"

    def _lines(self) -> tuple[str, ...]:
        return (f"mean absolute error {self.mean_absolute:.6g}, root mean squared {self.root_mean_squared:.6g}",)

    def tables(self) -> tuple[Table, ...]:
        rows = rows_of(
            (one.name, measured(one.mean_absolute), measured(one.root_mean_squared), measured(one.r_squared, ".4f"))
            for one in self.outputs
        )
        return (Table("Error of each output", ("Output", "MAE", "RMSE", "R²"), rows, len(rows) > LONG),)


@dataclass(frozen=True, repr=False)
class ReconstructionTested(_Judged):
    """Reconstruction errors of a model: mean squared, in the numbers that the input stands for."""

    error: float  # mean of all samples
    least: float
    largest: float
    classes: tuple[ClassError, ...]  # where samples have some
    normal: str | None  # of two classes the one that the model is to reconstruct well
    auc: float | None  # how often, of two samples, one of each class, the other class's has the larger error
    told: Literal["nothing"] = "nothing"

    def _lines(self) -> tuple[str, ...]:
        errors = f"reconstruction error {self.error:.6g} (mean squared), from {self.least:.6g} to {self.largest:.6g}"
        if self.auc is None:
            return (errors,)
        return errors, f"area under the curve {self.auc:.4f}, with {self.normal!r} as the normal samples"

    def tables(self) -> tuple[Table, ...]:
        rows = rows_of((one.name, counted(one.samples), measured(one.error)) for one in self.classes)
        return (Table("Error by class", ("Class", "Samples", "Error"), rows, folded=False),) if rows else ()


Tested = ClassesTested | CellsTested | LabelsTested | NumbersTested | ReconstructionTested
"""The result of `test`: of classes, of a class for each cell, of several labels, of numbers, or of reconstructions."""


def _accuracy(share: float, count: int, right: str) -> str:
    return f"accuracy {share:.2%}: {round(share * count):,} of {count:,} {right}"


def _class_table(classes: tuple[ClassTested, ...], what: str = "class") -> Table:
    rows = rows_of(
        (one.name, counted(one.samples), percent(one.precision, 2), percent(one.recall, 2)) for one in classes
    )
    columns = (what.capitalize(), "Samples", "Precision", "Recall")
    return Table(f"Precision and recall by {what}", columns, rows, folded=len(rows) > LONG)


def test(
    model: Graph,
    data: Data,
    *,
    target: str | Target | None = None,
    images: int | None = None,
    audio: str | None = None,
    preprocessing: GivenPixels = None,
    threads: int | None = None,
    on_progress: ProgressCallback = ignore,
) -> Tested:
    """Test a model on the data's test samples, or on at most `images` of them, evenly spaced.

    It runs where `predict` would. Classes are matched by name if the model and the data name the same ones, else by
    their order. Vectors are compared with the model's outputs, as yes and no if they hold only 0 and 1, maps with its
    cells. A model whose output has its input's shape is judged by how well it reconstructs samples, and by how well
    that distinguishes two classes. `audio` defines how audio becomes the input if the model does not, `preprocessing`
    how pixels do, which training samples may show. The result is the same for any number of `threads`, one per core.
    """
    if images is not None and images < 1:
        raise InputError(f"a model cannot be tested on {images} samples; give 1 or more")
    if images is not None and model.variables:
        raise InputError(
            f"{model.name} carries {len(model.variables)} variables from sample to sample: some of them, taken evenly, "
            "are no stream; test it on all"
        )
    samples = data.test if images is None else data.test.spread(images)
    model, where = with_front_end(model, samples.images, audio), meaning.where_to_run(model, target)
    tried, count = data.train.spread(TRIED), threads_for(len(samples), FEWEST, threads)
    known = labels_for(model, data, tried)
    model, pixels = meaning.with_pixels(model, tried.images, known, preprocessing, threads, on_progress)
    return replace(_Test(model, data, samples, where, count, on_progress).run(), pixels=pixels)


@dataclass(frozen=True)
class _Test:
    """A test under way."""

    model: Graph
    data: Data
    samples: Samples
    target: str | Target
    threads: int
    on_progress: ProgressCallback

    @property
    def names(self) -> tuple[str, str, str]:
        return self.model.name, self.data.name, self.target if isinstance(self.target, str) else self.target.name

    def run(self) -> Tested:
        """Compare the model's output with the labels that the samples have."""
        model, data, kind = self.model, self.data, meaning.kind_of(self.model)
        if kind == "reconstruction" and data.label_kind in ("classes", "nothing"):
            return self.reconstruction()
        if data.label_kind == "vectors":
            return self.numbers()
        if data.label_kind == "maps" and kind == "cells":
            return self.cells()
        binary = kind == "numbers" and len(data.classes) == class_count(model)
        if data.label_kind == "classes" and (kind in ("classes", "distance") or binary):
            return self.classes()
        labels = {"classes": "a class", "vectors": "a vector", "maps": "a map of classes", "nothing": "no label"}
        raise InputError(
            f"{data.name} has {labels[data.label_kind]} for each sample, the output of {model.name} is "
            f"{list(model.scores.type.shape)}: they cannot be compared; give data of what the model was made for"
        )

    def scores(self) -> Iterator[Array]:
        return (one.scores for one in self.scored())

    def scored(self) -> Iterator[Scored]:
        """Yield the model's scores for each sample in turn."""
        inputs = in_order(partial(as_input, encoding=pixel_encoding(self.model)), self.samples.images, self.threads)
        for done, scored in enumerate(meaning.scores_of(self.model, inputs, self.target, self.threads), start=1):
            yield scored
            self.on_progress(InferenceProgress(done, len(self.samples)))

    def classes(self) -> ClassesTested:
        count = class_count(self.model)
        matched = match_classes(self.data.classes, self.data.names, self.model.classes, count, self.model.name)
        truth = np.array([matched.places[label] for label in self.samples.labels])
        scored = list(self.scored())
        predicted = np.array([meaning.chosen_by(self.model, one) for one in scored])
        far = np.array([one.distance for one in scored if one.distance is not None])
        confusion, usual = count_confusion(truth, predicted, count), meaning.usual_class(self.model)
        both = usual is not None and len(set(truth.tolist())) == 2
        return ClassesTested(
            *self.names, len(truth), float((truth == predicted).mean()), matched.note,
            judge_classes(matched.names, confusion), confusion, float((far > 1).mean()) if far.size else None,
            meaning.area_under_curve(far[truth == usual], far[truth != usual]) if both else None,
        )  # fmt: skip

    def cells(self) -> CellsTested:
        count, shape = class_count(self.model), self.model.scores.type.shape[1:3]
        other = next((target.shape for target in self.samples.targets if target.shape != shape), None)
        if other is not None:
            raise InputError(
                f"{self.data.name} holds a map of {list(other)} cells, {self.model.name} gives {list(shape)}; give "
                "maps of the model's size"
            )
        truth = np.stack(self.samples.targets).astype(np.int64).ravel()
        predicted = np.stack([meaning.chosen(self.model, scores[0]) for scores in self.scores()]).ravel()
        known = truth < count  # other cells have no label
        if not known.any():
            raise InputError(f"the maps of {self.data.name} hold none of the {count} classes of {self.model.name}")
        confusion = count_confusion(truth[known], predicted[known], count)
        return CellsTested(
            *self.names, len(self.samples), int(known.sum()), float((truth == predicted)[known].mean()),
            judge_classes(names_of(self.model), confusion), confusion,
        )  # fmt: skip

    def numbers(self) -> NumbersTested | LabelsTested:
        type_, wanted = self.model.scores.type, np.stack(self.samples.targets).astype(np.float64)
        if wanted.shape[1] != type_.size:
            raise InputError(
                f"{self.data.name} has {wanted.shape[1]} numbers for each sample, {self.model.name} gives "
                f"{type_.size}; give data of what the model was made for"
            )
        got = np.stack([real(scores, type_).ravel() for scores in self.scores()])
        named = self.model.classes if len(self.model.classes) == type_.size else tuple(map(str, range(type_.size)))
        if all(np.isin(one, (0, 1)).all() for one in (*self.data.train.targets, *self.data.test.targets)):
            truth, predicted = wanted == 1, got > meaning.yes_above(self.model)
            right = float((truth == predicted).mean())
            counts = (counted.sum(axis=0).tolist() for counted in (truth & predicted, predicted, truth))
            return LabelsTested(*self.names, len(wanted), right, _judge(named, *counts))
        off, outputs = got - wanted, list[NumberTested]()
        for name, by, true in zip(named, off.T, wanted.T, strict=True):
            spread = float(np.square(true - true.mean()).sum())
            explained = 1 - float(np.square(by).sum()) / spread if spread else None
            outputs.append(
                NumberTested(name, float(np.abs(by).mean()), float(np.sqrt(np.square(by).mean())), explained)
            )
        whole = float(np.abs(off).mean()), float(np.sqrt(np.square(off).mean()))
        return NumbersTested(*self.names, len(wanted), *whole, tuple(outputs))

    def reconstruction(self) -> ReconstructionTested:
        encoding, classes = pixel_encoding(self.model), self.data.classes
        given = (as_input(sample, encoding) for sample in self.samples.images)
        errors = np.array(
            [meaning.reconstruction_error(self.model, y, x) for y, x in zip(self.scores(), given, strict=True)]
        )
        labels, found = np.array(self.samples.labels), list[ClassError]()
        for label, name in enumerate(classes):
            if (labels == label).any():
                found.append(ClassError(name, int((labels == label).sum()), float(errors[labels == label].mean())))
        normal, auc = None, None
        if len(found) == len(classes) == 2:  # the class without a fault, the first if no name shows which
            place = next((place for place, name in enumerate(classes) if name.casefold() in NORMAL), 0)
            normal, auc = classes[place], meaning.area_under_curve(errors[labels == place], errors[labels != place])
        return ReconstructionTested(
            *self.names, len(errors), float(errors.mean()), float(errors.min()), float(errors.max()), tuple(found),
            normal, auc,
        )  # fmt: skip


def count_confusion(truth: Array, predicted: Array, classes: int) -> Confusion:
    """Count how often each class, a row, was predicted as each other, a column."""
    counted = np.bincount(truth * classes + predicted, minlength=classes * classes).reshape(classes, classes)
    return tuple(tuple(map(int, row)) for row in counted)


def judge_classes(names: Sequence[str], confusion: Confusion) -> tuple[ClassTested, ...]:
    """Return the precision and recall of each class."""
    right = [row[place] for place, row in enumerate(confusion)]
    return _judge(names, right, [sum(column) for column in zip(*confusion, strict=True)], list(map(sum, confusion)))


def _judge(names: Sequence[str], right: list[int], predicted: list[int], true: list[int]) -> tuple[ClassTested, ...]:
    return tuple(
        ClassTested(name, are, hits / called if called else None, hits / are if are else None)
        for name, hits, called, are in zip(names, right, predicted, true, strict=True)
    )
