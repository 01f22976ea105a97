"""What is none of the classes: by which measure it shows, how often known ones are refused, and how sure scores are.

    python benchmarks/reject.py [--part train|test] [--data NAME…] [--network NAME] [--each N…] [--json]

Of some classes of a data set, drawn by a seed, samples are taken to learn from in one pass; others of the same classes
are known ones held back, those of all other classes unknown ones that are near, and another data set's far ones.
`--part train` takes all of them from the training images, by which the measure and the limit were chosen; `test` those
held back from the test images. Areas under the curve: how often an unknown sample lies further out than a known one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from one_pass import Features, features, logits_of, network, sums_of
from shared import arguments_of, report, start
from smidgen.inference.scores import area_under_curve
from smidgen.ir import Array
from smidgen.numerics import one_pass
from smidgen.numerics.one_pass import Sums

sys.path.append(str(Path(__file__).parents[1]))
from experiments.paper.sources import DataSets

SETS = {"flowers102": "vww", "cars196": "flowers102", "vww": "cars196", "cifar10": "flowers102"}  # and which is far
KNOWN, EACH, SEEDS, MOST, BINS = (1, 5, None), (5, 20), 4, 2000, 15
MEASURES = ("nearest mean", "Mahalanobis", "largest logit")


@dataclass(frozen=True)
class Rejected:
    """Areas under the curve by each measure, and rates by the limit that sums give; all in percent, means of seeds."""

    data: str
    known: int  # classes
    each: int  # samples of each to learn from
    near: tuple[float, ...]  # areas under the curve, by measure
    far: tuple[float, ...]
    refused: float  # known samples held back
    near_refused: float
    far_refused: float
    calibration: float  # expected error of the probabilities


@dataclass(frozen=True)
class Drawn:
    """Sums of samples to learn from, and known ones held back with their classes, near and far unknown ones."""

    sums: Sums
    held: Array
    labels: Array
    near: Array
    far: Array


def drawn(found: Features, other: Features, count: int, each: int, part: str, seed: int) -> Drawn | None:
    rng = np.random.default_rng(seed)
    known = rng.permutation(found.classes)[:count]
    places = [rng.permutation(np.flatnonzero(found.train_labels == c)) for c in known]
    if min(len(one) for one in places) < each + 3 * (part == "train"):
        return None
    taken = np.concatenate([one[:each] for one in places])
    place = np.full(found.classes, -1)
    place[known] = np.arange(count)
    x, y = (found.train, found.train_labels) if part == "train" else (found.test, found.test_labels)
    left = np.setdiff1d(np.arange(len(x)), taken) if part == "train" else np.arange(len(x))
    left = rng.permutation(left)
    held, near = left[place[y[left]] >= 0][:MOST], left[place[y[left]] < 0][:MOST]
    away = np.round((other.train if part == "train" else other.test)[:MOST] * other.scale / found.scale)
    far = np.clip(away, -one_pass.LARGEST, one_pass.LARGEST).astype(np.int64)
    sums = sums_of(found.train[taken], place[found.train_labels[taken]], count)
    return Drawn(sums, x[held], place[y[held]], x[near], far)


def mahalanobis(sums: Sums, x: Array) -> Array:
    """Squared distances to the nearest mean under the shrunk covariance, which would have to be kept."""
    covariance, divisor, _ = one_pass._covariance(sums, np.flatnonzero(sums.n[:-1]))
    lower = np.tril(covariance).astype(np.float64)
    inverse = np.linalg.inv(lower + np.tril(lower, -1).T) * divisor
    means = sums.m / sums.n[:-1, None]
    whole, of_means = (((one @ inverse) * one).sum(axis=1) for one in (x, means))
    found: Array = (whole[:, None] - 2 * x @ inverse @ means.T + of_means).min(axis=1)
    return found


def measured(sums: Sums, x: Array) -> dict[str, Array]:
    """How far out samples lie, by each measure."""
    most, several = one_pass.limit(sums), len(sums.m) > 1
    distance = np.array([one_pass.distance(sums.n, sums.m, one, most) for one in x])
    logit = -logits_of(sums, x).max(axis=1) if several else np.zeros(len(x))
    shares = distance, mahalanobis(sums, x), logit
    return dict(zip(MEASURES, shares, strict=True))


def calibration_error(logits: Array, labels: Array) -> float:
    z = logits.astype(np.float64)
    shares = np.exp(z - z.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    sure, right = shares.max(axis=1), shares.argmax(axis=1) == labels
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    inside = [bins == one for one in range(BINS)]
    return float(sum(abs(sure[one].mean() - right[one].mean()) * one.mean() for one in inside if one.any()))


def measure(data: Sequence[str], name: str, each: Sequence[int], part: str) -> Iterator[Rejected]:
    sets = DataSets()
    for one in data:
        found, other = (features(network(name, "released"), sets.load(each_)) for each_ in (one, SETS[one]))
        for known in sorted({min(count or found.classes, found.classes) for count in KNOWN}):
            for samples in each:
                seeds = range(SEEDS if known < 50 else 2)
                runs = (drawn(found, other, known, samples, part, seed) for seed in seeds)
                rows = [_row(run) for run in runs if run is not None]
                if rows:
                    mean = 100 * np.nanmean(np.array(rows), axis=0)
                    near, far = tuple(mean[: len(MEASURES)]), tuple(mean[len(MEASURES) : 2 * len(MEASURES)])
                    yield Rejected(one, known, samples, near, far, *map(float, mean[2 * len(MEASURES) :]))


def _row(run: Drawn) -> list[float]:
    held, far = measured(run.sums, run.held), measured(run.sums, run.far)
    near = measured(run.sums, run.near) if len(run.near) else None
    areas = [area_under_curve(held[one], near[one]) if near else float("nan") for one in MEASURES]
    areas += [area_under_curve(held[one], far[one]) for one in MEASURES]
    rates = [float((one[MEASURES[0]] > 1).mean()) if one else float("nan") for one in (held, near, far)]
    return [*areas, *rates, calibration_error(logits_of(run.sums, run.held), run.labels)]


def show(rows: Sequence[Rejected]) -> None:
    table = Table(title=f"areas under the curve by {', '.join(MEASURES)}; refused: known, near, far; in percent")
    for column in ("data", "classes", "each", "near", "far", "refused", "calibration error"):
        table.add_column(column)
    for row in rows:
        near, far = (" ".join(f"{area:5.1f}" for area in areas) for areas in (row.near, row.far))
        refused = f"{row.refused:4.1f} {row.near_refused:5.1f} {row.far_refused:5.1f}"
        table.add_row(row.data, str(row.known), str(row.each), near, far, refused, f"{row.calibration:.1f}")
    Console(width=160).print(table)


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--part", choices=("train", "test"), default="test")
    parser.add_argument("--data", nargs="*", default=list(SETS), help="data sets beside the checkout")
    parser.add_argument("--network", default="mcunet-5fps")
    parser.add_argument("--each", nargs="*", type=int, default=EACH, help="samples of each class to learn from")
    given = parser.parse_args()
    report(list(measure(given.data, given.network, given.each, given.part)), show, given.json)


if __name__ == "__main__":
    start(main)
