"""A network for whoever has none: a small one trained from nothing on windows or rows, or the zoo's best for pictures.

A few shapes are planned for the target. Those whose program fits the budget with a head that learns are trained in
float32 on the training samples of each fold and judged on the rest. The best is kept, or the smallest that is worse by
no more than the standard error of their difference and by no more than a point. It is trained again on all training
samples and quantized. Networks of the zoo are judged by a head made in one pass. Test samples decide nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from smidgen.callbacks import ignore
from smidgen.data import Data, DataError, Samples
from smidgen.data.audio import is_audio
from smidgen.data.inputs import shows_image
from smidgen.errors import InputError
from smidgen.fitting.float_network import Network, draw_network, train_network
from smidgen.fitting.shapes import Shape, Standard, as_batch, quantized, shapes_for
from smidgen.ir import Array, Graph
from smidgen.ir.log_mel import LogMel
from smidgen.learning import Course
from smidgen.ops.loss import Loss
from smidgen.quantization.recipe import FEWEST
from smidgen.results.inspection import describe
from smidgen.selection.folds import Fold, make_folds
from smidgen.selection.ladder import POINT, SAMPLES, Effort
from smidgen.selection.other_networks import judge_network, least_sram
from smidgen.selection.trials import limit_samples
from smidgen.selection.workers import share_out
from smidgen.targets.device import Target
from smidgen.threads import cores
from smidgen.training import Options
from smidgen.zoo import NAMES, load_zoo

SEEN: Mapping[Effort, int] = {"quick": 10_000, "normal": 20_000, "thorough": 60_000}  # samples shown in a trial
LONGER = 3  # times as many for the network that is kept
ShowProgress = Callable[[str, int, int], None]  # what is done, how much of it, of how much


@dataclass(frozen=True)
class NetworkRow:
    """A network as judged, and its cost."""

    name: str
    score: float | None  # mean over samples held back: top-1, or minus the mean squared error; None: over the budget
    error: float  # standard error of the score
    judged_with: int  # samples
    sram_bytes: int | None  # of a program that learns the head, planned; None without a plan
    weight_bytes: int  # of flash, beside the code
    macs: int

    @property
    def least(self) -> float:
        """The least budget of SRAM that it fits, endless without a plan."""
        return math.inf if self.sram_bytes is None else self.sram_bytes

    @property
    def shown(self) -> str:
        """The score in words."""
        if self.score is None:
            return "over the budget"
        if self.score <= 0:
            return f"{-self.score:.3f} ± {self.error:.3f}"
        return f"{100 * self.score:.1f} ± {100 * self.error:.1f} %"


@dataclass(frozen=True)
class NetworkMade:
    """Networks that were tried, the one that is kept, and what the user should know."""

    rows: tuple[NetworkRow, ...]
    chosen: int  # row
    trained: bool  # here, from nothing; else it is of the zoo
    folds: int
    notes: tuple[str, ...] = ()

    @property
    def kept(self) -> NetworkRow:
        return self.rows[self.chosen]

    def __str__(self) -> str:
        kept, tried = self.kept, sum(row.score is not None for row in self.rows)
        how = "trained from nothing" if self.trained else "of the zoo, with a head made in one pass"
        return (
            f"{kept.name}, {how}: {kept.shown} on {kept.judged_with:,} samples held back; {tried} of {len(self.rows)} "
            "networks fit the budget"
        )

    def table(self) -> str:
        """Return every network as a line of text."""
        lines = [f"  {'network':<24}{'held back':>17}{'SRAM':>12}{'weights':>12}{'MACs':>14}"]
        for place, row in enumerate(self.rows):
            sram = "no plan" if row.sram_bytes is None else f"{row.sram_bytes:,}"
            costs = f"{sram:>12}{row.weight_bytes:>12,}{row.macs:>14,}"
            lines.append(f"{'→ ' if place == self.chosen else '  '}{row.name:<24}{row.shown:>17}{costs}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Found:
    """A network, and how it was found."""

    graph: Graph
    made: NetworkMade


@dataclass(frozen=True)
class Limits:
    """The room that a network has, and how much work goes into finding it."""

    budget: int  # bytes of SRAM
    target: Target
    effort: Effort
    workers: int | None = None  # cores; None: all


def find_network(data: Data, limits: Limits, options: Options, on_progress: ShowProgress = ignore) -> Found:
    """Train a small network on windows or rows, or choose one of the zoo for pictures or sound, within a budget.

    The same data and options give the same network. What cannot be learned is refused before any work.
    """
    data.check_several()
    sample = data.train.images[0]
    if shows_image(sample) or is_audio(sample):
        return _from_zoo(data, limits, options, on_progress)
    _check_labels(data)
    return _from_nothing(data, limits, options, on_progress)


def _check_labels(data: Data) -> None:
    """Raise DataError unless samples are numbers with labels that a network can be trained and judged by."""
    name, sample = data.name, np.squeeze(data.train.images[0])
    if data.label_kind in ("nothing", "maps"):
        raise DataError(
            f"{name} has {data.label_text}; a network is built for classes or numbers, so give each sample one, or "
            "give a model instead of auto"
        )
    if sample.ndim > 2 or sample.dtype == np.int8:
        raise DataError(
            f"a sample of {name} is {sample.dtype}{list(sample.shape)}; a network is built for rows or for windows "
            "[moments, channels] of float32 numbers, so give those, or a model instead of auto"
        )
    if len(data.train) < FEWEST:
        raise DataError(f"{name} holds {len(data.train)} training samples; a network needs {FEWEST} or more")
    counts = Counter(data.train.labels) if data.classes else {}
    for label, what in enumerate(data.classes):
        if counts[label] < 2:
            raise DataError(
                f"{name} holds {counts[label]} training samples of {what!r}; a network needs two or more of each "
                "class, one to learn from and one to be judged by"
            )
    x = as_batch(data.train.images)
    still = np.flatnonzero((x == x[:1, :1]).all(axis=(0, 1)))
    if still.size:
        kind = "channel" if x.shape[1] > 1 else "column"
        raise DataError(
            f"{kind} {still[0] + 1} of {x.shape[2]} in {name} never changes from {x[0, 0, still[0]]:g} in "
            f"{len(x):,} training samples; leave it out{f', and {still.size - 1} others' if still.size > 1 else ''}"
        )


@dataclass(frozen=True, eq=False)
class _Bench:
    """Everything that trials share."""

    x: Array  # [samples, moments, channels]
    targets: Array  # [samples, outputs]: one-hot, yes and no, or standardized numbers
    loss: Loss
    shapes: tuple[Shape, ...]
    folds: tuple[Fold, ...]
    seen: int
    seed: int

    def train(self, shape: Shape, places: Sequence[int], seen: int, on_seen: Callable[[int], None] = ignore) -> Network:
        x, targets = self.x[list(places)], self.targets[list(places)]
        layers = shape.with_head(targets.shape[1])
        return train_network(layers, Standard.of(x).apply(x), targets, self.loss, seen, self.seed, on_seen)


def _trial(bench: _Bench, item: tuple[int, int]) -> Array:
    """Train a shape on a fold, and return the score of each sample that judges."""
    shape, fold = bench.shapes[item[0]], bench.folds[item[1]]
    held, wanted = bench.x[list(fold.held)], bench.targets[list(fold.held)]
    scores = bench.train(shape, fold.train, bench.seen).scores(Standard.of(bench.x[list(fold.train)]).apply(held))
    if bench.loss == "softmax":
        return np.asarray(scores.argmax(axis=1) == wanted.argmax(axis=1), float)
    if bench.loss == "sigmoid":
        return np.asarray(((scores > 0) == (wanted > 0)).mean(axis=1))
    return np.asarray(-((scores - wanted) ** 2).mean(axis=1), float)


def _from_nothing(data: Data, limits: Limits, options: Options, on_progress: ShowProgress) -> Found:
    classes = len(data.classes)
    samples = limit_samples(data.train, SAMPLES[limits.effort], max(classes, 1))
    loss, targets, back = _targets(data, samples)
    folds = make_folds(samples, classes, options.seed)[: 1 if limits.effort == "quick" else None]
    x = as_batch(samples.images)
    shapes = shapes_for(x.shape[1])
    bench = _Bench(x, targets, loss, shapes, folds, SEEN[limits.effort], options.seed)
    graphs = [_untrained(shape, bench, data) for shape in shapes]
    chosen = replace(options, classes=targets.shape[1], loss=loss, head=None, head_dtype=None)
    rows = [_planned(graph, limits.target, chosen) for graph in graphs]
    fitting = [place for place, row in enumerate(rows) if row.least <= limits.budget]
    _check_room(rows, fitting, limits)
    scores = _judged(bench, fitting, limits.workers, on_progress)
    for place, found in scores.items():
        error = float(found.std(ddof=1) / math.sqrt(found.size)) if found.size > 1 else 0.0
        rows[place] = replace(rows[place], score=float(found.mean()), error=error, judged_with=found.size)
    kept = _cheapest_of_best(scores, rows, POINT if classes else math.inf)
    whole = replace(bench, x=as_batch(data.train.images), targets=_targets(data, data.train)[1])
    network = _trained(whole, shapes[kept], on_progress)
    graph = quantized(rows[kept].name, back(network), whole.x, Standard.of(whole.x), data.classes)
    note = (
        f"{rows[kept].name} was trained on all training samples, which also judge below what goes on learning: to "
        f"expect of new samples is {rows[kept].shown}, judged by networks that had not seen them"
    )
    return Found(graph, NetworkMade(tuple(rows), kept, True, len(folds), (note,)))


def _targets(data: Data, samples: Samples) -> tuple[Loss, Array, Callable[[Network], Network]]:
    """Return the loss for the labels, the targets of samples, and what undoes their standardization in a network."""
    if data.classes:
        return "softmax", np.eye(len(data.classes), dtype=np.float32)[list(samples.labels)], lambda network: network
    numbers, every = np.stack(samples.targets), np.stack((*data.train.targets, *data.test.targets))
    if ((every == 0) | (every == 1)).all():
        return "sigmoid", numbers, lambda network: network
    standard = Standard.of(np.stack(data.train.targets))

    def back(network: Network) -> Network:
        w, b = network.weights[-1]
        raw = (w * standard.deviation).astype(np.float32), b * standard.deviation + standard.mean
        return replace(network, weights=(*network.weights[:-1], (raw[0], raw[1].astype(np.float32))))

    return "mse", standard.apply(numbers), back


def _untrained(shape: Shape, bench: _Bench, data: Data) -> Graph:
    """Return a shape with random weights, which takes as much memory as a trained one."""
    some = bench.x[:FEWEST]
    network = draw_network(shape.with_head(bench.targets.shape[1]), some.shape[2], bench.seed)
    return quantized(f"auto-{shape.name}", network, some, Standard.of(bench.x), data.classes)


def _planned(graph: Graph, target: Target, options: Options) -> NetworkRow:
    weights, sram = sum(array.nbytes for array in graph.constants.values()), least_sram(graph, target, options)
    planned = int(sram) if math.isfinite(sram) else None
    return NetworkRow(graph.name, None, 0.0, 0, planned, weights, describe(graph).macs)


def _check_room(rows: Sequence[NetworkRow], fitting: Sequence[int], limits: Limits) -> None:
    if not fitting:
        least = min(rows, key=lambda row: row.least)
        raise InputError(
            f"a budget of {limits.budget:,} bytes is too small: {least.name}, the smallest of {len(rows)} networks, "
            f"takes {least.least:,.0f} on {limits.target.name} with a head that learns; give at least that"
        )


def _judged(bench: _Bench, fitting: Sequence[int], workers: int | None, on_progress: ShowProgress) -> dict[int, Array]:
    """Return the scores of every shape that fits, over all folds."""
    trials = [(shape, fold) for shape in fitting for fold in range(len(bench.folds))]
    found = dict[tuple[int, int], Array]()
    on_progress(f"trying {len(fitting)} shapes", 0, len(trials))
    with closing(share_out(_trial, bench, trials, workers or cores())) as results:
        for trial, scores in results:
            found[trial] = scores
            on_progress(f"trying {len(fitting)} shapes", len(found), len(trials))
    return {shape: np.concatenate([found[shape, fold] for fold in range(len(bench.folds))]) for shape in fitting}


def _cheapest_of_best(scores: Mapping[int, Array], rows: Sequence[NetworkRow], point: float) -> int:
    """Return the network of the best mean score, or the one of least SRAM that is level with it."""
    best = max(scores, key=lambda place: float(scores[place].mean()))

    def level(place: int) -> bool:
        worse = scores[best] - scores[place]
        error = float(worse.std(ddof=1)) / math.sqrt(worse.size) if worse.size > 1 else 0.0
        return float(worse.mean()) <= min(error, point)

    return min((place for place in scores if level(place)), key=lambda place: rows[place].least)


def _trained(bench: _Bench, shape: Shape, on_progress: ShowProgress) -> Network:
    """Train the network that is kept, on all samples and for longer."""
    seen, total = 0, LONGER * bench.seen

    def show(count: int) -> None:
        nonlocal seen
        seen += count
        on_progress(f"training {shape.name}", seen, total)

    return bench.train(shape, range(len(bench.x)), total, show)


def _from_zoo(data: Data, limits: Limits, options: Options, on_progress: ShowProgress) -> Found:
    """Choose the network of the zoo whose head of one pass does best on samples held back, of those that fit."""
    data.check_classes("networks of the zoo are judged")
    sound = is_audio(data.train.images[0])
    networks = [one for one in map(load_zoo, NAMES) if isinstance(one.preprocessing, LogMel) == sound]
    if not networks:
        raise InputError(
            f"{data.name} holds sound, and no network of the zoo takes it; bring a model that does, such as MLPerf "
            "Tiny's kws_ref_model.tflite"
        )
    plain = replace(options, classes=len(data.classes), head="new", head_dtype=None, loss="softmax")
    rows = [_planned(network, limits.target, plain) for network in networks]
    fitting = [place for place, row in enumerate(rows) if row.least <= limits.budget]
    _check_room(rows, fitting, limits)
    for count, place in enumerate(fitting):
        on_progress(f"judging {rows[place].name}", count, len(fitting))
        row = judge_network(networks[place], data, plain, Course(1, 0.0, augment=None, seed=options.seed))
        if row is None or row.score is None:
            raise DataError(f"{data.name} holds one training sample of each class, none to judge by; add some")
        rows[place] = replace(rows[place], score=row.score, error=row.error, judged_with=row.judged_with)
    kept = max(fitting, key=lambda place: (rows[place].score or 0.0, -rows[place].least))
    return Found(networks[kept], NetworkMade(tuple(rows), kept, False, 1))
