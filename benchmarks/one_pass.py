"""Learning in one pass: accuracy, classes that arrive one after another, and what it costs on a chip.

    python benchmarks/one_pass.py accuracy [--data NAME…] [--network NAME…] [--weights zoo|released…] [--json]
    python benchmarks/one_pass.py sparse [--data NAME…] [--network NAME…] [--weights zoo|released…] [--json]
    python benchmarks/one_pass.py classes [--json]
    python benchmarks/one_pass.py chip [--json]

`accuracy` trains heads on 1, 5, 20 and all samples of each class: in one pass, by the nearest mean, and by 12 epochs of
steps from zero at the better of three rates. Features of the frozen layers are computed once for each network and data
set, by this machine's C on all its cores, and kept in build/one_pass; all heads are made of these. `sparse` trains the
published scheme of about 100 KB in this machine's C, from a new head and after one pass, at the better of two rates by
the test samples: 12 epochs, or as many as make 20,000 steps where there are many samples.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import smidgen as sm
from shared import NETWORKS, arguments_of, released, report, start
from smidgen.data import Data, Samples, as_input, pixel_encoding
from smidgen.ir import Array, Graph
from smidgen.ir.rewriting import prune
from smidgen.ir.text import fingerprint
from smidgen.learning import Course
from smidgen.numerics import one_pass
from smidgen.numerics.one_pass import Sums, products
from smidgen.targets.device import Device, share_out
from smidgen.threads import threads_for
from smidgen.training import Options
from smidgen.training.head import ending_of

sys.path.append(str(Path(__file__).parents[1]))
from experiments.paper.sources import DataSets, some_classes

KEPT = Path(__file__).parents[1] / "build" / "one_pass"
SETS = ("cifar10", "flowers102", "cars196", "vww")
EACH = (1, 5, 20, None)  # samples of a class; None: all
SEEDS = 3  # by which samples are drawn, where not all are taken
FLOWERS = (45, 50, 72, 73, 76, 77, 80, 87, 88, 93)  # as in benchmarks/incremental.py
EPOCHS, RATES = 12, (0.1, 0.4, 1.0)  # of a trained head; rates of a batch of 256
FEWEST = 64  # samples for each thread
SCHEMES = {"mbv2-w0.35": "99kb", "proxyless-w0.3": "98kb", "mcunet-5fps": "99kb"}
SPARSE_RATES, MOST_STEPS = (0.1, 1.0), 20_000


@dataclass(frozen=True)
class Features:
    """int8 features of a data set, less their zero point, by a network's frozen layers."""

    scale: float
    train: Array
    train_labels: Array
    test: Array
    test_labels: Array
    classes: int


@dataclass(frozen=True)
class Accuracy:
    """Top-1 of heads that learned from so many samples of each class, in percent, the mean of seeds."""

    network: str
    weights: str
    data: str
    each: int | None
    one_pass: float
    nearest_mean: float
    trained_head: float
    log_loss: float  # of one pass, on the test samples
    best_log_loss: float  # by the best temperature for these
    best_temperature: float  # times that of the rule


@dataclass(frozen=True)
class Sparse:
    """Top-1 of a scheme's steps from a new head, and of the same after one pass, in percent at the better rate."""

    network: str
    weights: str
    data: str
    each: int | None
    scheme: str
    from_new_head: float
    after_one_pass: float


@dataclass(frozen=True)
class ClassByClass:
    """Top-1 on all classes so far, in percent, after each class has arrived; nothing of earlier ones is stored."""

    data: str
    weights: str
    each: int | None
    after: tuple[float, ...]  # the mean of seeds
    deviation: float  # over seeds, of the last


@dataclass(frozen=True)
class Cost:
    """Instructions and SRAM of a program that learns in one pass, on an emulated Cortex-M7."""

    network: str
    scheme: str
    forward: int  # instructions
    observe: int  # with the forward pass
    solve: int
    distance: int
    sram_without: int  # arena and state of the same program without one pass
    sram: int


def features(network: Graph, data: Data) -> Features:
    """Compute the features of all samples, or take those that are kept."""
    value = ending_of(network).features
    front = prune(replace(network, outputs=(value,), classes=()))
    key = hashlib.sha256(f"{fingerprint(front)} {data.digest()}".encode()).hexdigest()[:24]
    path = KEPT / f"{key}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with sm.compile(front).start() as device:
            found = {
                part: _features(device, front, samples)
                for part, samples in (("train", data.train), ("test", data.test))
            }
        given = {f"{part}_labels": np.array(getattr(data, part).labels) for part in found}
        np.savez(path, **found, **given)  # type: ignore[arg-type]
    with np.load(path) as held:
        train, test = (held[part].astype(np.int64) - value.type.zero for part in ("train", "test"))
        labels = [held[f"{part}_labels"] for part in ("train", "test")]
    return Features(value.type.scale, train, labels[0], test, labels[1], len(data.classes))


def _features(device: Device, front: Graph, samples: Samples) -> Array:
    encoding = pixel_encoding(front)

    def run(one: Device, image: Array) -> Array:
        return one.run(as_input(image, encoding))[0].reshape(-1)

    with closing(share_out(device, run, samples.images, threads_for(len(samples), FEWEST, None))) as results:
        return np.stack(list(results))


def sums_of(x: Array, labels: Array, classes: int) -> Sums:
    n, m = np.zeros(classes + 1, np.int64), np.zeros((classes, x.shape[1]), np.int64)
    np.add.at(n, labels, 1)
    np.add.at(m, labels, x)
    return Sums(n.astype(np.int32), m.astype(np.int32), products(x).astype(np.int32))


def logits_of(sums: Sums, x: Array) -> Array:
    classes, d = sums.m.shape
    first = np.zeros((classes, d), np.float32), np.zeros(classes, np.float32)
    code, w, b = one_pass.solve(sums, 1.0, *first)
    assert code == one_pass.DONE
    logits: Array = x.astype(np.float32) @ w.T + b
    return logits


def nearest(sums: Sums, x: Array) -> Array:
    means = sums.m / np.maximum(sums.n[:-1, None], 1)
    distance = (means**2).sum(axis=1) - 2 * x @ means.T
    found: Array = np.where(sums.n[:-1] > 0, distance, np.inf).argmin(axis=1)
    return found


def trained(found: Features, chosen: Array) -> float:
    """A head that begins at zero and learns one sample at a time, at the better of some rates."""
    x, labels = (found.train[chosen] * found.scale).astype(np.float32), found.train_labels[chosen]
    test, best = (found.test * found.scale).astype(np.float32), 0.0
    for rate in RATES:
        w, b = np.zeros((found.classes, x.shape[1]), np.float32), np.zeros(found.classes, np.float32)
        rng, steps, at = np.random.default_rng(0), EPOCHS * len(x), 0
        for _ in range(EPOCHS):
            for i in rng.permutation(len(x)):
                now = np.float32(rate / 256 * (1 + np.cos(np.pi * at / steps)) / 2)
                z = w @ x[i] + b
                p = np.exp(z - z.max())
                p /= p.sum()
                p[labels[i]] -= 1
                w -= now * p[:, None] * x[i]
                b -= now * p
                at += 1
        best = max(best, float(((test @ w.T + b).argmax(axis=1) == found.test_labels).mean()))
    return best


def log_loss(logits: Array, labels: Array, factor: float) -> float:
    z = logits.astype(np.float64) * factor
    z -= z.max(axis=1, keepdims=True)
    return float((np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(z)), labels]).mean())


def drawn(found: Features, each: int | None, seed: int) -> Array:
    """Places of training samples, so many of each class."""
    order = np.random.default_rng(seed).permutation(len(found.train))
    if each is None:
        return order
    labels = found.train_labels[order]
    return np.concatenate([order[labels == c][:each] for c in range(found.classes)])


def accuracy(name: str, weights: str, data: str, found: Features, each: int | None, heads: bool) -> Accuracy:
    figures = []
    factors = np.geomspace(0.1, 10, 21)
    for seed in range(1 if each is None else SEEDS):
        chosen = drawn(found, each, seed)
        sums = sums_of(found.train[chosen], found.train_labels[chosen], found.classes)
        logits, labels = logits_of(sums, found.test), found.test_labels
        losses = [log_loss(logits, labels, float(f)) for f in factors]
        figures.append(
            (
                (logits.argmax(axis=1) == labels).mean() * 100,
                (nearest(sums, found.test) == labels).mean() * 100,
                100 * trained(found, chosen) if heads else float("nan"),
                log_loss(logits, labels, 1.0),
                min(losses),
                float(factors[int(np.argmin(losses))]),
            )
        )
    return Accuracy(name, weights, data, each, *(round(float(v), 4) for v in np.mean(figures, axis=0)))


def network(name: str, weights: str) -> Graph:
    return released(name) if weights == "released" else sm.load(name)


def measure(data: Sequence[str], names: Sequence[str], kinds: Sequence[str], heads: bool) -> Iterator[Accuracy]:
    sets = DataSets()
    for weights in kinds:
        for name in names:
            for one in data:
                found = features(network(name, weights), sets.load(one))
                for each in EACH:
                    row = accuracy(name, weights, one, found, each, heads)
                    print(row, file=sys.stderr, flush=True)
                    yield row


def sparse(network_: str, weights: str, name: str, each: int | None) -> Sparse:
    """Train a scheme's steps on samples of each class, from a new head and after one pass."""
    data, graph, scheme = DataSets().load(name), network(network_, weights), SCHEMES[network_]
    labels = np.array(data.train.labels)
    order = np.random.default_rng(0).permutation(len(labels))
    chosen = np.concatenate([order[labels[order] == c][:each] for c in range(len(data.classes))])
    some = replace(data, train=data.train.at(chosen.tolist()))
    epochs = min(EPOCHS, -(-MOST_STEPS // len(chosen)))
    best = []
    for one in (False, True):
        program = sm.compile(graph, scheme, options=Options(len(data.classes)), one_pass=one)
        courses = [Course(epochs, rate / 256, test_every=epochs) for rate in SPARSE_RATES]
        tested = [sm.learn(program, some, course, threads=1).last.accuracy for course in courses]
        best.append(round(100 * max(found for found in tested if found is not None), 2))
    return Sparse(network_, weights, name, each, scheme, *best)


def class_by_class(weights: str) -> Iterator[ClassByClass]:
    """Classes in an order that the seed draws, as many samples of each as benchmarks/incremental.py takes, and all."""
    sets = DataSets()
    for name, each in (("cifar10", 100), ("cifar10", None), ("flowers102", None)):
        data = some_classes(sets.load(name), FLOWERS) if name == "flowers102" else sets.load(name)
        found = features(network("mcunet-5fps", weights), data)
        runs = np.array([_arrivals(found, each, seed) for seed in range(SEEDS)])
        after = tuple(round(float(v), 1) for v in runs.mean(axis=0))
        yield ClassByClass(name, weights, each, after, round(float(runs[:, -1].std()), 1))


def _arrivals(found: Features, each: int | None, seed: int) -> list[float]:
    sums, after = Sums.empty(found.classes, found.train.shape[1]), []
    order, chosen = np.random.default_rng(seed).permutation(found.classes), drawn(found, each, seed)
    for count, c in enumerate(order, 1):
        own = chosen[found.train_labels[chosen] == c]
        code, sums = one_pass.merge(sums, sums_of(found.train[own], found.train_labels[own], found.classes))
        assert code == one_pass.DONE
        seen = np.isin(found.test_labels, order[:count])
        right = logits_of(sums, found.test[seen]).argmax(axis=1) == found.test_labels[seen]
        after.append(100 * float(right.mean()))
    return after


def cost(name: str, scheme: str | None) -> Cost:
    from smidgen.targets.firmware import BoardDevice  # here, since only this needs an emulator

    graph, options = sm.load(name), Options(10)
    without = sm.compile(graph, scheme or "head", "cortex-m7", options=options, streamed_input=True)
    program = sm.compile(graph, scheme, "cortex-m7", options=options, streamed_input=True, one_pass=True)
    rng, counts = np.random.default_rng(0), dict[str, int]()
    with program.start() as device:
        assert isinstance(device, BoardDevice)
        images = [rng.integers(-128, 128, graph.image.type.shape).astype(np.int8) for _ in range(11)]
        device.predict(images[0])
        counts["forward"] = device.counts().total
        for label, image in enumerate(images):
            device.observe(image, label % 10)
        counts["observe"] = counts["forward"] + device.counts().total
        device.solve()
        counts["solve"] = device.counts().total
        device.predict(images[0])
        device.distance()
        counts["distance"] = device.counts().total
    sram = [one.memory.peak + one.memory.state for one in (without, program)]
    return Cost(name, scheme or "head", **counts, sram_without=sram[0], sram=sram[1])


def show(rows: Sequence[Accuracy | Sparse | ClassByClass | Cost]) -> None:
    table = Table()
    for column in rows[0].__dataclass_fields__:
        table.add_column(column)
    for row in rows:
        table.add_row(*(str(getattr(row, column)) for column in row.__dataclass_fields__))
    Console(width=220).print(table)


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("what", choices=("accuracy", "sparse", "classes", "chip"))
    parser.add_argument("--data", nargs="*", default=SETS, help="data sets beside the checkout")
    parser.add_argument("--network", nargs="*", default=NETWORKS)
    parser.add_argument("--weights", nargs="*", default=("zoo", "released"), choices=("zoo", "released"))
    parser.add_argument("--no-heads", action="store_true", help="leave out heads trained by steps, which take longest")
    given = parser.parse_args()
    rows: list[Accuracy | Sparse | ClassByClass | Cost] = []
    if given.what == "accuracy":
        rows.extend(measure(given.data, given.network, given.weights, not given.no_heads))
    elif given.what == "sparse":
        cases = product(given.network, given.weights, given.data, EACH)
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            for done in as_completed([pool.submit(sparse, *case) for case in cases]):
                print(done.result(), file=sys.stderr, flush=True)
                rows.append(done.result())
    elif given.what == "classes":
        rows = [row for weights in given.weights for row in class_by_class(weights)]
    else:
        rows = [cost(name, scheme) for name in given.network for scheme in (None, SCHEMES[name])]
    report(rows, show, given.json)


if __name__ == "__main__":
    start(main)
