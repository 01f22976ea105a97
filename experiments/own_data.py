"""What `fit` keeps on data nothing was tuned on, beside the head, published and searched schemes, and everything.

Every way learns as long as `fit` would let it, from a head at zero, at the rate that samples held back choose. All are
runs of one bench, which computes what frozen layers make of a dozen views of each sample once; the test samples judge
at the end. Everything (`full`) takes the rate of the way before it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from smidgen.data import Augment, Data, Samples
from smidgen.ir import Graph
from smidgen.learning import Course
from smidgen.selection.analysis import usual_epochs
from smidgen.selection.estimates import shipped_or_estimated
from smidgen.selection.judging import Fold, Recipe, Run, make_bench
from smidgen.selection.ladder import Effort, climb
from smidgen.selection.launchers import find_launcher
from smidgen.selection.proposals import propose
from smidgen.selection.trials import limit_samples
from smidgen.targets import find
from smidgen.targets.boards import parse_size
from smidgen.training import Options
from smidgen.training.scheme import load_scheme

TESTED = 2_000  # test samples, at most
BOARD = "cortex-m7"


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
class Way:
    """One way to learn in a case: top-1 of the test samples, and what samples held back had shown."""

    case: Case
    way: str
    kept: str  # the candidate that the samples held back chose
    learning_rate: float
    judged: float | None
    error: float
    top1: float
    sram_bytes: int


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


def offered(case: Case, graph: Graph, classes: int) -> tuple[Recipe, ...]:
    """Return the candidates of a fit."""
    options = Options(classes, seed=case.seed)
    return propose(graph, shipped_or_estimated(graph), parse_size(case.budget), find(BOARD), options).candidates


def ways_of(
    case: Case, graph: Graph, whole: Data, candidates: Sequence[Recipe], named: Sequence[str], workers: int
) -> Iterator[Way]:
    """Yield what `fit` keeps, then the head, the searched scheme and named ones, each judged once by test samples."""
    data = some_of_each(whole, case.each, case.seed)
    options = Options(len(data.classes), seed=case.seed)
    course = Course(usual_epochs(len(data.train)), 0.0, augment=Augment(), seed=case.seed)
    searched = [one for one in candidates if one.scheme.name.startswith("searched")][:1]
    others = [("head", candidates[0]), *(("searched", one) for one in searched)]
    others += [(name, Recipe(load_scheme(name, graph), "new head", 0)) for name in named]
    launcher = find_launcher(None, workers, None)
    choices = [("fit", climb(graph, data, candidates, options, course, effort=case.effort, launcher=launcher))]
    for name, one in others:
        if name == "full":  # whose trials take too long
            choices.append((name, replace(choices[-1][1], candidate=one, rows=())))
        else:
            choices.append((name, climb(graph, data, (one,), options, course, effort="quick", launcher=launcher)))
    train, test = data.train, limit_samples(data.test, TESTED, len(data.classes))
    both = Samples((*train.images, *test.images), (*train.labels, *test.labels))
    fold = Fold(tuple(range(len(train))), tuple(range(len(train), len(both))))
    steps, kept = course.epochs * len(train), tuple(choice.candidate for _, choice in choices)
    with closing(make_bench(graph, options, course, kept, both, (fold,), steps)) as bench:
        for place, (name, choice) in enumerate(choices):
            one = choice.candidate
            scores = bench.run(Run(place, choice.learning_rate, steps if one.steps else 0, 0))
            row = choice.rows[choice.chosen] if choice.rows else None
            top1 = math.fsum(scores) / len(scores) if scores else 0.0
            judged, error = (row.score, row.error) if row else (None, 0.0)
            yield Way(case, name, one.name, choice.learning_rate, judged, error, top1, one.sram_bytes)
