"""A check that a model's own head fits some data: its classes by name, or else by how it scores training samples.

Where names are missing, the order of the classes is the assignment of outputs to classes under which most samples are
right. An assignment that was fitted to the samples it is judged on always looks good: with as many classes as samples
it explains labels drawn at random. So the order found on one half of each class's samples is judged on the other half.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from smidgen.callbacks import ignore
from smidgen.data import Data, Samples, as_input, pixel_encoding
from smidgen.data.inputs import kind_of
from smidgen.data.samples import evenly, renumbered
from smidgen.inference import scores as meaning
from smidgen.ir import Array, Graph
from smidgen.learning.models import in_order_of, listed, same_classes
from smidgen.pipeline import with_classes
from smidgen.quantization import CONVENTIONS, is_float
from smidgen.quantization.pixels import fitting, named_by_layers
from smidgen.targets.device import FEWEST
from smidgen.threads import in_order, threads_for
from smidgen.training import HeadStart
from smidgen.training.head import ending_of

SCORED, EACH = 200, 2  # training samples that are scored, or so many of each class where those are more
FEW = 40  # samples; with fewer, a head is not called useless
CLEAR = 0.001  # how probable evidence for another order may be where there is none
GUESSED = 0.01  # a head that guesses is right as often with at least this probability
TIE = 1e-6  # of a sample: what the order in hand is preferred by

Count = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class CheckedHead:
    """A model with the classes it scores by name, where they are known, the data in that order, and how to begin."""

    model: Graph
    data: Data
    start: HeadStart | None  # None: the model's head where the numbers of classes agree, else a new one
    note: str = ""  # for the user; empty where nothing changes

    @property
    def calibration(self) -> Data:
        """The data to quantize a float32 model with: without classes, where its scores are not of these."""
        strange = self.start == "new" and self.model.classes != self.data.classes
        return replace(self.data, classes=()) if strange else self.data


@dataclass(frozen=True, eq=False)
class Evidence:
    """The scores of some samples: which are right in the order in hand, and in the order found on others of them."""

    order: Array  # the output of each class, found on all samples
    plain: Array  # for each sample, whether it is right in the order in hand
    held: Array  # whether it is right in the order found on the other half
    right: float  # the share that is right in the order found on all
    chance: float  # of giving the most frequent class

    @property
    def is_clear(self) -> bool:
        """Return whether another order is clearly right: better than the one in hand and than chance."""
        better, worse = int((self.held & ~self.plain).sum()), int((self.plain & ~self.held).sum())
        return tail(better, better + worse, 0.5) < CLEAR and self._at_chance(self.held) < CLEAR

    @property
    def guesses(self) -> bool:
        """Return whether the scores are no better than chance in any order."""
        enough = len(self.plain) >= FEW
        return enough and min(self._at_chance(self.plain), self._at_chance(self.held)) >= GUESSED

    def _at_chance(self, right: Array) -> float:
        return tail(int(right.sum()), len(right), self.chance)


def check_head(
    model: Graph, data: Data, start: HeadStart | None = None, *, on_progress: Count = ignore, threads: int | None = None
) -> CheckedHead:
    """Match a model's classes with those of the data: by name, else by its scores of training samples.

    `start` is how the head is to begin: kept, new, or as fits (None). Test samples are not looked at. A float32 model
    that does not say how pixels become numbers is tried under each of the usual conventions.
    """
    kept, others = start == "keep", start is None and not same_classes(model, data)
    if not only_counts_agree(model, data, start):
        ordered = in_order_of(model, data) if kept else renumbered(data, model.classes)
        return CheckedHead(model, ordered, "new" if others else start)
    if others:
        note = f"{model.name} scores {listed(model.classes)}, and the data has other classes; a new head is begun"
        return CheckedHead(model, data, "new", note)
    found = _score(model, data, on_progress, threads)
    scored = f"{len(found.plain):,} training samples"
    if found.is_clear:
        names = tuple(data.classes[label] for label in np.argsort(found.order))
        note = (
            f"{found.right:.1%} of {scored} are right with the classes of {model.name} in this order: {listed(names)}; "
            f"{found.plain.mean():.1%} in the order of the data"
        )
        return CheckedHead(with_classes(model, names), data.arranged(names), start, note)
    if not found.guesses:
        return CheckedHead(model, data, start)
    best = max(found.plain.mean(), found.held.mean())
    note = (
        f"the head of {model.name} is no better than chance in any order of the classes, {best:.1%} of {scored} are "
        f"right and {found.chance:.1%} by chance; {'it is kept, as asked for' if kept else 'a new head is begun'}"
    )
    return CheckedHead(model, data, start if kept else "new", note)


def only_counts_agree(model: Graph, data: Data, start: HeadStart | None = None) -> bool:
    """Return whether a head that may be kept scores as many classes as the data has, and names do not match them.

    False where samples cannot be scored one by one: a streaming network, a map of scores.
    """
    if start == "new" or data.label_kind != "classes" or model.variables or len(model.inputs) != 1:
        return False
    if in_order_of(model, data).classes == model.classes or sorted(data.classes) == sorted(model.classes):
        return False
    ending = ending_of(model)
    return not ending.per_cell and max(ending.outputs, 2) == len(data.classes) == meaning.class_count(model)


def _score(model: Graph, data: Data, on_progress: Count, threads: int | None) -> Evidence:
    """Score training samples, spread over the classes, under the pixels that explain them best."""
    samples = _spread(data.train, len(data.classes))
    graphs = list(_readings(model, samples))
    found, done = list[Evidence](), 0
    for graph in graphs:
        encoding, count = pixel_encoding(graph), threads_for(len(samples), FEWEST, threads)
        inputs = in_order(partial(as_input, encoding=encoding), samples.images, count)
        rows = list[Array]()
        with np.errstate(all="ignore"):  # numbers the network was not made for may overflow, and lose
            for one in meaning.scores_of(graph, inputs, meaning.where_to_run(graph, None), count):
                rows.append(np.nan_to_num(meaning.probabilities(graph, one.scores).reshape(-1)))
                on_progress(done := done + 1, len(graphs) * len(samples))
        found.append(weigh(np.stack(rows), np.array(samples.labels)))
    return max(found, key=lambda one: max(one.plain.mean(), one.held.mean()))


def _readings(model: Graph, samples: Samples) -> Iterator[Graph]:
    """Yield a model as it reads pixels, or under each convention where a float32 one does not say how."""
    shown = kind_of(samples.images[0], model.image.type) == "picture"
    if not (shown and is_float(model) and model.preprocessing is None):
        yield model
        return
    usable = fitting(CONVENTIONS, model.image.type.shape[-1])
    implied = named_by_layers(model, usable)
    for name, usual in usable.items():
        if implied in (None, name):
            yield replace(model, preprocessing=usual)


def _spread(samples: Samples, classes: int) -> Samples:
    """Return training samples with as many of each class as there are, up to a share of all that are scored."""
    places = dict[int, list[int]]()
    for place, label in enumerate(samples.labels):
        places.setdefault(label, []).append(place)
    each = max(EACH, -(-SCORED // classes))
    return samples.at(place for label in sorted(places) for place in evenly(places[label], each))


def weigh(probabilities: Array, labels: Array) -> Evidence:
    """Find the order of the classes on all samples, and on each half of every class to be judged on the other."""
    chosen, classes = probabilities.argmax(axis=1), probabilities.shape[1]
    seen, half = dict[int, int](), np.zeros(len(labels), bool)
    for place, label in enumerate(labels.tolist()):
        seen[label] = seen.get(label, 0) + 1
        half[place] = seen[label] % 2 == 0
    held = np.zeros(len(labels), bool)
    for part in (half, ~half):
        held[part] = chosen[part] == _order(probabilities[~part], labels[~part])[labels[part]]
    order = _order(probabilities, labels)
    chance = max(float(np.bincount(labels).max() / len(labels)), 1 / classes)
    return Evidence(order, chosen == labels, held, float((chosen == order[labels]).mean()), chance)


def _order(probabilities: Array, labels: Array) -> Array:
    """Return the output of each class under which the samples are likeliest; where nothing speaks, the same number."""
    gains = TIE * np.eye(probabilities.shape[1])
    np.add.at(gains, labels, probabilities)
    return assign(gains)


def assign(gains: Array) -> Array:
    """Return a column for each row, no two the same, of the largest sum: the Hungarian method in O(n³).

    Each row in turn takes the cheapest path of reassignments to a free column (Dijkstra's, with potentials).
    """
    cost, n = gains.max() - gains, len(gains)
    rows, columns = np.zeros(n), np.zeros(n)
    owner = np.full(n + 1, -1)  # the row of each column; the last column is where a path begins
    for row in range(n):
        owner[n], at = row, n
        least, before, done = np.full(n, np.inf), np.full(n, n), np.zeros(n + 1, bool)
        while owner[at] >= 0:
            done[at] = True
            reach = cost[owner[at]] - rows[owner[at]] - columns
            nearer = (reach < least) & ~done[:n]
            least[nearer], before[nearer] = reach[nearer], at
            at = int(np.where(done[:n], np.inf, least).argmin())
            step = least[at]
            rows[owner[done]] += step
            columns[done[:n]] -= step
            least[~done[:n]] -= step
        while at != n:
            owner[at], at = owner[before[at]], int(before[at])
    found = np.empty(n, int)
    found[owner[:n]] = np.arange(n)
    return found


def tail(right: int, count: int, chance: float) -> float:
    """Return the probability of at least so many right answers of `count` that are each right by chance."""
    if right == 0 or chance >= 1:
        return 1.0
    whole, yes, no = math.lgamma(count + 1), math.log(chance), math.log1p(-chance)
    ways = (whole - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in range(right, count + 1))
    return sum(math.exp(way + k * yes + (count - k) * no) for k, way in enumerate(ways, right))
