"""What `smidgen fit` gives beside what people would try by hand: on few photographs, and on networks of their own.

`five-flowers`: a folder of 100 photographs, 20 of each of five flowers, and MCUNet-5FPS at 128 KB; beside it a sweep of
learning rates × `last:K`, each as long. All are judged with the other photographs of these flowers, the sweep by the
best of them. `networks`: ResNet-8 and EfficientNet-Lite0, trained on half of CIFAR-10's classes, are fitted to the
others at 256 KB; beside it `head`, the deepest `last:K` that takes no more SRAM than the fit, and the deepest that the
budget allows, each at a rate chosen the same way. Several seeds share one analysis, and the mean is shown.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

import smidgen as sm
from shared import SHARED, arguments_of, report, start, there
from smidgen.data import Augment, Data, Samples, examples, pixel_encoding
from smidgen.fitting import FitProgress, fit
from smidgen.ir import Graph
from smidgen.learning import top1
from smidgen.selection.analysis import usual_epochs
from smidgen.selection.contributions import Contributions, read_contributions
from smidgen.selection.rates import BATCH, choose_rate
from smidgen.selection.searching import Planner
from smidgen.targets import find
from smidgen.training.head import layers
from smidgen.training.scheme import Scheme, load_scheme

sys.path.append(str(Path(__file__).parents[1]))
from experiments.agreement import Course as Pretraining
from experiments.agreement import learn as pretrain
from experiments.paper.sources import DataSets, some_classes
from experiments.tasks import build, task_of

NETWORK, BOARD = "mcunet-5fps", "cortex-m7"
FLOWERS, EACH = (45, 50, 72, 76, 88), 20  # classes with many photographs besides; photographs of each to learn from
RATES = (0.1, 0.4, 1.0, 2.0)  # of a batch of 256
DEPTHS = (3, 6, 12)
WIDTHS = {"resnet8": 1.0, "efficientnet-lite0": 0.35}
OLD, NEW = (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)  # classes of CIFAR-10: a network knows the ones and is to learn the others
TAKEN = 1000  # images of the new classes to learn from; of fewer than 800 contributions are taken by rule


@dataclass(frozen=True)
class Tried:
    """One way to learn: top-1 in percent of the images judged with, and planned SRAM."""

    what: str
    scheme: str
    rate: float  # of a batch of 256
    top1: float
    sram_bytes: int | None


def say(words: object) -> None:
    print(words, file=sys.stderr, flush=True)


def announce(at: FitProgress) -> None:
    if at.last is not None:
        say(at.last)


def train_by_hand(
    graph: Graph, data: Data, scheme: str, rate: float | None, epochs: int, augment: Augment, seed: int = 0
) -> Tried:
    """As `smidgen train` does; top-1 of the data's test images after the last epoch."""
    images = examples(data.train, pixel_encoding(graph))
    program = sm.compile(graph, scheme, options=sm.Options(len(data.classes), seed=seed), images=images)
    course = sm.Course(epochs, (rate or 0.0) / BATCH, augment=augment, test_every=epochs, seed=seed)
    if rate is None:
        course = replace(course, learning_rate=choose_rate(program, data, course).learning_rate)
    try:
        accuracy = sm.learn(program, data, course).accuracy
    except sm.LearningError:  # its loss is not a number
        accuracy = 0.0
    return Tried("by hand", scheme, round(course.learning_rate * BATCH, 6), 100 * accuracy, None)


def judge(model: Graph, samples: Samples) -> float:
    """Top-1 of a learned model in percent."""
    with sm.compile(model).start() as device:
        return 100 * top1(device, samples)


def write_photographs(samples: Samples, names: tuple[str, ...], folder: Path) -> None:
    for place, (image, label) in enumerate(zip(samples.images, samples.labels, strict=True)):
        file = folder / names[label] / f"{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)


def five_flowers(jobs: int, network: str, budget: str) -> Iterator[Tried]:
    """The fit, then the sweep; both are judged with photographs that neither saw."""
    flowers = some_classes(sm.load_data(there(SHARED / "data" / "flowers102.zip")), FLOWERS)
    graph = sm.load(network)
    with tempfile.TemporaryDirectory() as folder:
        photographs = Path(folder) / "photographs"
        write_photographs(flowers.train, flowers.classes, photographs)
        data = sm.load_data(photographs)
        order = tuple(flowers.classes.index(name) for name in data.classes)
        places = {label: new for new, label in enumerate(order)}
        rest = Samples(flowers.test.images, tuple(places[label] for label in flowers.test.labels))
        began = time.monotonic()
        found = fit(graph, data, Path(folder) / "out", budget=budget, target=BOARD, on_progress=announce)
        learned = judge(sm.load(Path(folder) / "out" / "learned.smg"), rest)
        say(f"fit: {learned:.1f} of {len(rest)} photographs, {time.monotonic() - began:.0f} s")
    rate = round(found.choice.learning_rate * BATCH, 6)
    yield Tried("fit", found.choice.candidate.name, rate, learned, found.board.sram_bytes)
    judged = Data(data.name, data.classes, data.train, rest)
    sweep = partial(_swept, graph, judged, usual_epochs(len(data.train)))
    with ProcessPoolExecutor(jobs) as pool:
        for tried in pool.map(sweep, product(DEPTHS, RATES)):
            say(tried)
            yield tried


def _swept(graph: Graph, data: Data, epochs: int, which: tuple[int, float]) -> Tried:
    depth, rate = which
    return train_by_hand(graph, data, f"last:{depth}", rate, epochs, Augment())


def brought(name: str, data: Data, epochs: int) -> Graph:
    """A network that knows some classes, in float32, as people bring it."""
    task = task_of(name)
    module = build(name, WIDTHS[name], 0, len(data.classes))
    pretrain(data.train, module, task, Pretraining(epochs))
    graph = sm.from_torch(module, torch.zeros(task.shape))
    return replace(graph, name=name, preprocessing=task.preprocessing)


def deepest(graph: Graph, classes: int, most: int) -> tuple[str, int]:
    """The largest `last:K` whose planned SRAM, all counted, is at most so many bytes."""
    planner = Planner(graph, find(BOARD), sm.Options(classes), True)
    best = ("head", planner(Scheme("head", 0)).sram)
    for depth in range(1, len(layers(graph)) + 1):
        name = f"last:{depth}"
        try:
            planned = planner(load_scheme(name, graph)).sram
        except sm.SmidgenError:  # the image would be read again, and cannot be streamed
            break
        if planned > most:
            break
        best = (name, planned)
    return best


def networks(names: list[str], budget: str, images: int, epochs: int, pretraining: int, seeds: int) -> Iterator[Tried]:
    cifar = DataSets().load("cifar10")
    known, wanted = some_classes(cifar, OLD), some_classes(cifar, NEW)
    data = Data(wanted.name, wanted.classes, wanted.train.spread(images), wanted.test)
    for name in names:
        graph = brought(name, known, pretraining)
        tried, measured = list[Tried](), None
        for seed in range(seeds):
            found, measured = _one_seed(graph, data, budget, epochs, seed, measured)
            tried += found
        for scheme in dict.fromkeys(one.scheme for one in tried):
            same = [one for one in tried if one.scheme == scheme]
            yield replace(same[0], what=name, top1=statistics.fmean(one.top1 for one in same))


def _one_seed(
    graph: Graph, data: Data, budget: str, epochs: int, seed: int, known: Contributions | None
) -> tuple[list[Tried], Contributions]:
    """The fit, then the head and layers from the last on, in as much SRAM as it takes and as it may take."""
    mild = Augment((0.5, 1.0))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        found = fit(
            graph, data, out, budget=budget, epochs=epochs, augment=mild, seed=seed, on_progress=announce,
            contributions=known,
        )  # fmt: skip
        int8, measured = sm.load(out / "model.smg"), read_contributions(out / "contributions.json")
    kept, rate = found.choice.candidate, round(found.choice.learning_rate * BATCH, 6)
    accuracy = 100 * (found.learned.last.accuracy or 0.0)
    tried = [Tried("", f"fit: {kept.name}", rate, accuracy, kept.sram_bytes)]
    sizes = (kept.sram_bytes, found.budget)
    for scheme, sram in dict.fromkeys([("head", None), *(deepest(int8, len(data.classes), size) for size in sizes)]):
        tried.append(replace(train_by_hand(int8, data, scheme, None, epochs, mild, seed), sram_bytes=sram))
        say(tried[-1])
    return tried, measured


def show(found: list[Tried]) -> None:
    shown = Table("", "scheme", "rate", "top-1 %", "SRAM")
    for one in found:
        sram = "" if one.sram_bytes is None else f"{one.sram_bytes:,}"
        shown.add_row(one.what, one.scheme, f"{one.rate:g}", f"{one.top1:.1f}", sram)
    Console().print(shown)


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("what", choices=("five-flowers", "networks"))
    parser.add_argument("--jobs", type=int, default=2, help="runs of the sweep at once")
    parser.add_argument("--model", default=NETWORK, help="of five-flowers: a network of the zoo, or a model file")
    parser.add_argument("--network", action="append", choices=tuple(WIDTHS), help="of networks: only this one")
    parser.add_argument("--budget", help="128KB for five-flowers, 256KB for networks unless given")
    parser.add_argument("--images", type=int, default=TAKEN, help="of networks: how many to learn from")
    parser.add_argument("--epochs", type=int, default=10, help="of networks")
    parser.add_argument("--pretraining", type=int, default=12, help="epochs in which networks learn the old classes")
    parser.add_argument("--seeds", type=int, default=1, help="of networks: of how many the mean is shown")
    given = parser.parse_args()
    if given.what == "five-flowers":
        found = list(five_flowers(given.jobs, given.model, given.budget or "128KB"))
    else:
        names = given.network or list(WIDTHS)
        found = list(
            networks(names, given.budget or "256KB", given.images, given.epochs, given.pretraining, given.seeds)
        )
    report(found, show, given.json)


if __name__ == "__main__":
    start(main)
