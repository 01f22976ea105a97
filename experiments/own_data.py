"""Every candidate of `fit` at every rate, judged by samples held back and by the test samples.

The runs of all cases of a network are fleets on a GPU: runs behind the same cut, of as many steps, take those steps
together, whichever case they belong to. What `fit` would choose is worked out from their scores, so that a rule can be
judged without any new run, and beside it stand the head, searched and published schemes, and the searched scheme as it
learned before heads began at zero (`drawn head`).
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from smidgen.data import Augment, Data, Samples
from smidgen.ir import Array, Graph
from smidgen.learning import Course
from smidgen.learning.testing import score_samples
from smidgen.selection.analysis import usual_epochs
from smidgen.selection.estimates import shipped_or_estimated
from smidgen.selection.folds import Fold, make_folds
from smidgen.selection.judging import Bench, Recipe, Run, make_bench
from smidgen.selection.ladder import FINALISTS, FROM_NEW, FROM_ONE_PASS, JUDGES, SAMPLES, STEPS, Effort
from smidgen.selection.proposals import propose
from smidgen.selection.trials import limit_samples
from smidgen.simulation.courses import Lane, learn_apart
from smidgen.targets import find
from smidgen.targets.boards import parse_size
from smidgen.training import Options, build_training, passes
from smidgen.training.scheme import load_scheme
from smidgen.training.weights import with_drawn_head

TESTED = 1_000  # test samples, at most
BOARD = "cortex-m7"
LANES = 160  # devices of a fleet, at most
DRAWN = "drawn head"  # what a new head began as before it began at zero
Part = Literal["whole", "course"]


@dataclass(frozen=True)
class Case:
    """A network, a data set, and how many samples of each class are learned from; None for all of them."""

    network: str
    weights: str
    data: str
    each: int | None
    seed: int
    budget: str = "128KB"
    effort: Effort = "normal"


@dataclass(frozen=True)
class Arm:
    """One run of a case: a candidate at a rate, and which samples that judged it were right; None where it diverged."""

    case: Case
    candidate: str
    start: str
    scheme: str
    biases: int
    sram_bytes: int
    promised: bool
    rate: float  # of the trial of all steps; those of the other parts follow from it
    part: Part
    steps: int
    fold: int
    count: int  # samples that judged
    right: str | None  # hexadecimal, a bit for each


def some_of_each(data: Data, each: int | None, seed: int) -> Data:
    """Return data with so many training samples of each class, drawn by the seed."""
    if each is None:
        return data
    name = int.from_bytes(hashlib.sha256(data.name.encode()).digest()[:4])
    rng, of_class = np.random.default_rng((name, each, seed)), dict[int, list[int]]()
    for place, label in enumerate(data.train.labels):
        of_class.setdefault(label, []).append(place)
    kept = [place for places in of_class.values() for place in rng.permutation(places)[:each]]
    return replace(data, train=data.train.at(sorted(int(place) for place in kept)))


def offered(case: Case, graph: Graph, classes: int, published: Sequence[str]) -> tuple[Recipe, ...]:
    """Return the candidates of a fit, then published schemes."""
    options = Options(classes, seed=case.seed)
    found = propose(graph, shipped_or_estimated(graph), parse_size(case.budget), find(BOARD), options).candidates
    return (*found, *(Recipe(load_scheme(name, graph), "new head", 0) for name in published))


@dataclass(frozen=True, eq=False)
class Bed:
    """A case ready to run: its bench, whose last fold is judged by the test samples, and its runs."""

    case: Case
    bench: Bench
    runs: tuple[tuple[Recipe, float, Part, Run, bool], ...]  # the last: from a drawn head
    graphs: dict[int, Any] = field(default_factory=dict)

    def lane(self, run: Run, drawn: bool) -> Lane:
        lane = self.bench._lane(run)
        if not drawn:
            return lane
        return replace(lane, state=dict(lane.state) | _drawn(lane.graph, self.case.seed))


def _drawn(graph: Graph, seed: int) -> dict[str, Array]:
    return {value.name: array for value, array in with_drawn_head(graph, seed).state.items()}


def bed_of(case: Case, graph: Graph, whole: Data, candidates: Sequence[Recipe], device: str) -> Bed:
    """Compute what frozen layers make of all samples of a case."""
    data = some_of_each(whole, case.each, case.seed)
    classes = len(data.classes)
    options = Options(classes, seed=case.seed)
    course = Course(usual_epochs(len(data.train)), 0.0, augment=Augment(), seed=case.seed)
    train = limit_samples(data.train, SAMPLES[case.effort], classes)
    test = limit_samples(data.test, TESTED, classes)
    folds = make_folds(train, classes, case.seed)
    both = Samples((*train.images, *test.images), (*train.labels, *test.labels))
    judge = Fold(tuple(range(len(train))), tuple(range(len(train), len(both))))
    steps = course.epochs * len(data.train)
    recipes = tuple(candidates)
    first = min(len(folds), -(-JUDGES // len(folds[0].held)))
    deep = [one for one in recipes if one.scheme.biases and one.steps]
    rates = sum(len(FROM_ONE_PASS if one.start == "one pass" else FROM_NEW) for one in deep)
    work = rates * first / 4 + min(FINALISTS, rates) * len(folds)
    trial = max(min(int(STEPS[case.effort] / work), steps), 64)
    bench = make_bench(graph, options, course, recipes, both, (*folds, judge), steps)
    for one, back in zip(recipes, bench.backs, strict=True):
        if device != "host" and one.scheme not in bench.programs:  # a fleet needs the graph alone
            training = build_training(back.model, back.scheme(one.scheme), options, bench._examples(back))
            bench.programs[one.scheme] = SimpleNamespace(graph=passes.run(training.step))  # type: ignore[assignment]
    return Bed(case, bench, tuple(_runs(recipes, len(folds), trial, steps)))


def _runs(
    recipes: tuple[Recipe, ...], folds: int, trial: int, steps: int
) -> Iterator[tuple[Recipe, float, Part, Run, bool]]:
    """Yield every run: trials on every fold, and the course."""
    for place, one in enumerate(recipes):
        taken = (trial if one.scheme.biases else steps) if one.steps else 0
        once = one.start == "one pass"
        for rate in (FROM_ONE_PASS if once else FROM_NEW) if one.steps else (0.0,):
            for drawn in (False, True) if one.most and one.start == "new head" else (False,):
                for fold in range(folds):
                    yield one, rate, "whole", Run(place, rate, taken, fold), drawn
                longer = math.sqrt(min(1.0, taken / steps)) if taken else 1.0
                yield one, rate, "course", Run(place, rate * longer, steps if taken else 0, folds), drawn


def measure(beds: Iterable[Bed], device: str, end: float = math.inf) -> Iterator[Arm]:
    """Run everything of some cases of one network and one set of classes, in fleets or one after another in C."""
    alike: dict[object, list[tuple[Bed, Recipe, float, Part, Run, bool]]] = {}
    for bed in beds:
        for recipe, rate, part, run, drawn in bed.runs:
            alike.setdefault((run.steps, bed.bench.backs[run.candidate].value), []).append(
                (bed, recipe, rate, part, run, drawn)
            )
    for some in alike.values():
        for at in range(0, len(some), LANES):
            if time.time() > end:
                return
            group = some[at : at + LANES]
            if device == "host":
                for bed, recipe, rate, part, run, drawn in group:
                    yield _arm(bed, recipe, rate, part, run, drawn, _on_host(bed, run, drawn))
                continue
            lanes = [bed.lane(run, drawn) for bed, *_, run, drawn in group]
            for (bed, recipe, rate, part, run, drawn), found in zip(group, learn_apart(lanes, device), strict=True):
                labels = (bed.bench.samples.labels[place] for place in bed.bench.folds[run.fold].held)
                right = None if found is None else [c == label for c, label in zip(found, labels, strict=True)]
                yield _arm(bed, recipe, rate, part, run, drawn, right)


def _on_host(bed: Bed, run: Run, drawn: bool) -> list[bool] | None:
    """Run the program's C, and return which samples that judge are right; None where it diverged."""
    bench = bed.bench
    with bench._device(run) as device:
        drawn_head = _drawn(device.graph, bed.case.seed) if drawn else {}
        device.restore(bench._start(run, device.graph) | drawn_head)
        if not bench._learn(device, run):
            return None
        held = bench._held(bench.backs[run.candidate], bench.folds[run.fold].held)
        return [bool(score) for score in score_samples(device, held)]


def _arm(bed: Bed, recipe: Recipe, rate: float, part: Part, run: Run, drawn: bool, right: Sequence[bool] | None) -> Arm:
    shown = None if right is None else f"{int(''.join('1' if one else '0' for one in right), 2):x}"
    return Arm(
        bed.case, recipe.name, DRAWN if drawn else recipe.start, recipe.scheme.name, recipe.scheme.biases,
        recipe.sram_bytes, recipe.most, rate, part, run.steps, run.fold, len(bed.bench.folds[run.fold].held), shown,
    )  # fmt: skip
