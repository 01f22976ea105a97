"""What `fit` keeps on data nothing was tuned on, beside the head, published and searched schemes, and everything.

Every way learns as long as `fit` would let it, at the rate that samples held back choose; all but what `fit` keeps
begin with a head at zero. All are runs of one bench, which computes what frozen layers make of a dozen views of each
sample once; the test samples judge at the end. Everything (`full`) takes the rate of the published scheme.
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
from smidgen.selection.choice import Row
from smidgen.selection.estimates import shipped_or_estimated
from smidgen.selection.folds import Fold
from smidgen.selection.judging import Recipe, Run, make_bench
from smidgen.selection.ladder import FROM_NEW, Effort, climb
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
    case: Case, graph: Graph, whole: Data, candidates: Sequence[Recipe], published: Sequence[str], workers: int
) -> Iterator[Way]:
    """Yield what `fit` keeps, the head, the searched scheme and published ones, each judged once by test samples."""
    data = some_of_each(whole, case.each, case.seed)
    options = Options(len(data.classes), seed=case.seed)
    course = Course(usual_epochs(len(data.train)), 0.0, augment=Augment(), seed=case.seed)
    steps = course.epochs * len(data.train)
    launcher = find_launcher(None, workers, None)
    fit = climb(graph, data, candidates, options, course, effort=case.effort, launcher=launcher)
    tried = [Trial("fit", fit.candidate, fit.learning_rate, fit.rows[fit.chosen] if fit.rows else None)]
    rows = {row.name: row for row in fit.rows}
    searched = [one for one in candidates if one.scheme.name.startswith("searched")][:1]
    for name, one in (("head", candidates[0]), *(("searched", one) for one in searched)):
        row = rows.get(one.name)
        rate = (row.learning_rate or 0.0) * math.sqrt(min(1.0, row.steps / steps)) if row else FROM_NEW[1]
        tried.append(Trial(name, one, rate, row))
    for name in published:
        one = Recipe(load_scheme(name, graph), "new head", 0)
        if name == "full" or not fit.rows:  # its trials take too long, or there is nothing to judge them with
            tried.append(Trial(name, one, tried[-1].rate, None))
        else:
            found = climb(graph, data, (one,), options, course, effort="quick", launcher=launcher)
            tried.append(Trial(name, one, found.learning_rate, found.rows[0]))
    train, test = data.train, limit_samples(data.test, TESTED, len(data.classes))
    both = Samples((*train.images, *test.images), (*train.labels, *test.labels))
    fold = Fold(tuple(range(len(train))), tuple(range(len(train), len(both))))
    with closing(make_bench(graph, options, course, tuple(t.recipe for t in tried), both, (fold,), steps)) as bench:
        for place, way in enumerate(tried):
            scores = bench.run(Run(place, way.rate, steps if way.recipe.steps else 0, 0))
            top1 = math.fsum(scores) / len(scores) if scores else 0.0
            judged, error = (way.row.score, way.row.error) if way.row else (None, 0.0)
            yield Way(case, way.name, way.recipe.name, way.rate, judged, error, top1, way.recipe.sram_bytes)


@dataclass(frozen=True)
class Trial:
    """A way that is to be judged: what learns, at which rate, and how samples held back judged it."""

    name: str
    recipe: Recipe
    rate: float
    row: Row | None
