"""A model on samples of which the truth is known: how often, or by how much, it is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from smidgen.data import Data, Samples
from smidgen.data.audio import with_front_end
from smidgen.data.inputs import as_input
from smidgen.data.pixels import pixel_encoding
from smidgen.data.samples import match_classes
from smidgen.errors import InputError
from smidgen.inference.outputs import HALF, chosen, class_count, ending_of, kind_of, names_of, real
from smidgen.inference.predicting import reconstruction_error
from smidgen.inference.running import InferenceProgress, ProgressCallback, scores_of, target_name, where_to_run
from smidgen.inference.tested import (
    CellsTested,
    ClassError,
    ClassesTested,
    LabelsTested,
    NumbersTested,
    NumberTested,
    ReconstructionTested,
    count_confusion,
    judge_classes,
    judge_labels,
)
from smidgen.ir import Array, Graph
from smidgen.targets.device import FEWEST, Target
from smidgen.threads import in_order, threads_for

Tested = ClassesTested | CellsTested | LabelsTested | NumbersTested | ReconstructionTested
"""What `test` finds: of classes, of a class for each cell, of several labels, of numbers, or of reconstructions."""
NORMAL = ("normal", "ok", "good", "healthy", "regular")  # what people call samples without a fault


def test(
    model: Graph,
    data: Data,
    *,
    target: str | Target | None = None,
    images: int | None = None,
    audio: str | None = None,
    threads: int | None = None,
    on_progress: ProgressCallback = lambda _: None,
) -> Tested:
    """How good a model is on the samples that the data keeps to test with, or on so many of them, evenly.

    It runs where `predict` would. Classes are matched by name where the model and the data name the same ones, by
    their order otherwise. Vectors are compared with the model's outputs, as yes
    and no where they hold 0 and 1 alone, maps with its cells; a model whose output has
    its input's shape is judged by how well it reconstructs samples, and by how well that tells two classes apart.
    `audio` says how sound becomes the input where the model does not. Many samples are shared out among all cores
    of this machine, or so many `threads`: the result is the same.
    """
    if images is not None and images < 1:
        raise InputError(f"a model cannot be tested on {images} samples; give 1 or more")
    if images is not None and model.variables:
        raise InputError(
            f"{model.name} carries {len(model.variables)} variables from sample to sample: some of them, taken evenly, "
            "are no stream; test it on all"
        )
    samples = data.test if images is None else data.test.spread(images)
    model = with_front_end(model, samples.images, audio)
    count = threads_for(len(samples), FEWEST, threads)
    run = _Test(model, data, samples, where_to_run(model, target), count, on_progress)
    kind = kind_of(model)
    if kind == "reconstruction" and data.label_kind in ("classes", "nothing"):
        return run.reconstruction()
    if data.label_kind == "vectors":
        return run.numbers()
    if data.label_kind == "maps" and kind == "cells":
        return run.cells()
    if data.label_kind == "classes" and kind == "classes":
        return run.classes()
    if data.label_kind == "classes" and kind == "numbers" and len(data.classes) == class_count(model):
        return run.classes()
    raise _mismatch(model, data)


def _mismatch(model: Graph, data: Data) -> InputError:
    labels = {"classes": "a class", "vectors": "a vector", "maps": "a map of classes", "nothing": "no label"}
    return InputError(
        f"{data.name} has {labels[data.label_kind]} for each sample, the output of {model.name} is "
        f"{list(model.scores.type.shape)}: they cannot be compared; give data of what the model was made for"
    )


class _Test:
    """A test under way."""

    def __init__(
        self,
        model: Graph,
        data: Data,
        samples: Samples,
        target: str | Target,
        threads: int,
        on_progress: ProgressCallback,
    ) -> None:
        self.model, self.data, self.samples, self.target = model, data, samples, target
        self.threads, self.on_progress = threads, on_progress
        self.names = (model.name, data.name, target_name(target))

    def scores(self) -> Iterator[Array]:
        """The model's scores for each sample in turn."""
        inputs = in_order(partial(as_input, encoding=pixel_encoding(self.model)), self.samples.images, self.threads)
        for done, scores in enumerate(scores_of(self.model, inputs, self.target, self.threads), start=1):
            yield scores
            self.on_progress(InferenceProgress(done, len(self.samples)))

    def classes(self) -> ClassesTested:
        count = class_count(self.model)
        matched = match_classes(self.data.classes, self.data.names, self.model.classes, count, self.model.name)
        truth = np.array([matched.places[label] for label in self.samples.labels])
        said = np.array([int(chosen(self.model, scores.reshape(-1))) for scores in self.scores()])
        confusion = count_confusion(truth, said, count)
        return ClassesTested(
            *self.names, len(truth), float((truth == said).mean()), matched.note,
            judge_classes(matched.names, confusion), confusion,
        )  # fmt: skip

    def cells(self) -> CellsTested:
        count, shape = class_count(self.model), self.model.scores.type.shape[1:3]
        if any(target.shape != shape for target in self.samples.targets):
            other = next(target.shape for target in self.samples.targets if target.shape != shape)
            raise InputError(
                f"{self.data.name} holds a map of {list(other)} cells, {self.model.name} gives {list(shape)}; give "
                "maps of the model's size"
            )
        truth = np.stack(self.samples.targets).astype(np.int64).ravel()
        said = np.stack([chosen(self.model, scores[0]) for scores in self.scores()]).ravel()
        known = truth < count  # the others are of cells that nothing is known of
        if not known.any():
            raise InputError(f"the maps of {self.data.name} hold none of the {count} classes of {self.model.name}")
        confusion = count_confusion(truth[known], said[known], count)
        return CellsTested(
            *self.names, len(self.samples), int(known.sum()), float((truth == said)[known].mean()),
            judge_classes(names_of(self.model), confusion), confusion,
        )  # fmt: skip

    def numbers(self) -> NumbersTested | LabelsTested:
        type_, wanted = self.model.scores.type, np.stack(self.samples.targets).astype(np.float64)
        if wanted.shape[1] != type_.size:
            raise _mismatch_of_sizes(self.model, self.data, wanted.shape[1])
        got = np.stack([real(scores, type_).ravel() for scores in self.scores()])
        named = self.model.classes if len(self.model.classes) == type_.size else tuple(map(str, range(type_.size)))
        if all(np.isin(one, (0, 1)).all() for one in (*self.data.train.targets, *self.data.test.targets)):
            truth, said = wanted == 1, got > (HALF if ending_of(self.model) == "sigmoid" else 0)
            right = float((truth == said).mean())
            return LabelsTested(*self.names, len(wanted), right, judge_labels(named, truth, said))
        off = got - wanted
        return NumbersTested(
            *self.names, len(wanted), float(np.abs(off).mean()), float(np.sqrt(np.square(off).mean())),
            tuple(_judged(name, off[:, i], wanted[:, i]) for i, name in enumerate(named)),
        )  # fmt: skip

    def reconstruction(self) -> ReconstructionTested:
        encoding = pixel_encoding(self.model)
        given = (as_input(sample, encoding) for sample in self.samples.images)
        errors = np.array([reconstruction_error(self.model, y, x) for y, x in zip(self.scores(), given, strict=True)])
        labels, found = np.array(self.samples.labels), list[ClassError]()
        for label, name in enumerate(self.data.classes):
            if (labels == label).any():
                found.append(ClassError(name, int((labels == label).sum()), float(errors[labels == label].mean())))
        normal = _normal(self.data.classes) if len(found) == len(self.data.classes) == 2 else None
        auc = None if normal is None else area_under_curve(errors[labels == normal], errors[labels != normal])
        return ReconstructionTested(
            *self.names, len(errors), float(errors.mean()), float(errors.min()), float(errors.max()), tuple(found),
            None if normal is None else self.data.classes[normal], auc,
        )  # fmt: skip


def _mismatch_of_sizes(model: Graph, data: Data, wanted: int) -> InputError:
    return InputError(
        f"{data.name} tells {wanted} numbers of each sample, {model.name} gives {model.scores.type.size}; give data of "
        "what the model was made for"
    )


def _judged(name: str, off: Array, wanted: Array) -> NumberTested:
    spread = float(np.square(wanted - wanted.mean()).sum())
    explained = 1 - float(np.square(off).sum()) / spread if spread else None
    return NumberTested(name, float(np.abs(off).mean()), float(np.sqrt(np.square(off).mean())), explained)


def _normal(classes: tuple[str, ...]) -> int:
    """Of two classes the one whose samples have no fault, by its name; the first where no name says so."""
    return next((place for place, name in enumerate(classes) if name.casefold() in NORMAL), 0)


def area_under_curve(normal: Array, others: Array) -> float:
    """How often one of the others is larger than one of the normal numbers, ties counted by half."""
    ordered = np.sort(normal)
    below = np.searchsorted(ordered, others, "left") + np.searchsorted(ordered, others, "right")
    return float(below.mean() / 2 / len(normal))
