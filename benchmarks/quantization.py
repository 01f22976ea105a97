"""How well int8 follows float32: networks people bring, trained briefly on CIFAR-10, then quantized with the defaults.

Each is trained in PyTorch, read as a float graph, and quantized on images of the training part; accuracy of both, and
how often their first choice is the same, are of test images neither has seen.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

import smidgen as sm
from shared import SHARED, there
from smidgen.batch import run_batch
from smidgen.data import Intake, centre, intake
from smidgen.data.sample import read_sample
from smidgen.ir import Array, Graph, Type, Value
from smidgen.preprocessing import Preprocessing
from smidgen.quantization import Report

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from architectures import ARCHITECTURES

VEHICLES = (0, 1, 8, 9)  # of CIFAR-10's classes: airplane, automobile, ship, truck; the others are animals
CIFAR10 = Preprocessing((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616))
FRAMES = Preprocessing((0.48,), (0.25,), "gray", fit="stretch")  # a picture for the network that hears keywords
NETWORKS = tuple(name for name in ARCHITECTURES if name not in ("autoencoder", "signal-net"))  # they take no images
SIDE, BATCH, RATE, DECAY = 32, 64, 2e-3, 1e-4
SLOW = {"squeezenet": 5e-4}  # it has no batch norms
TESTED_AT_ONCE = 50


@dataclass(frozen=True)
class Outcome:
    """A network in float32 and in int8, in percent of the test images; times in seconds."""

    network: str
    parameters: int
    float_top1: float
    int8_top1: float
    agreement: float
    training_s: float
    quantizing_s: float
    report: Report


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images, uint8 [count, 32, 32, 3], and their labels."""

    images: Array
    labels: Array


def cifar10(source: str) -> tuple[Pictures, Pictures]:
    """To learn from and to test with: the 10,000 and 2,000 beside the checkout, or the sample that comes along."""
    if source == "sample":
        data = read_sample()
        return tuple(Pictures(np.stack(p.images), np.array(p.labels)) for p in (data.train, data.test))  # type: ignore[return-value]
    with zipfile.ZipFile(there(SHARED / "data" / "cifar10.zip")) as archive:
        train, test = (_sheets(archive, part) for part in ("train", "test"))
    return train, test


def _sheets(archive: zipfile.ZipFile, part: str) -> Pictures:
    names = sorted(n for n in archive.namelist() if part in n and not n.endswith((".json", "/")))
    tiles = []
    for name in names:
        sheet = np.asarray(Image.open(BytesIO(archive.read(name))).convert("RGB"))
        rows, columns = sheet.shape[0] // SIDE, sheet.shape[1] // SIDE
        tiles.append(sheet.reshape(rows, SIDE, columns, SIDE, 3).swapaxes(1, 2).reshape(-1, SIDE, SIDE, 3))
    labels = json.loads(archive.read(next(n for n in archive.namelist() if part in n and n.endswith(".json"))))
    return Pictures(np.concatenate(tiles)[: len(labels)], np.array(labels))


def coarse(pictures: Pictures) -> Pictures:
    """The same images, told apart as animals and vehicles."""
    return Pictures(pictures.images, np.isin(pictures.labels, VEHICLES).astype(int))


def train(module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int, rate: float, seed: int) -> None:
    """AdamW with one cycle of the rate; images are mirrored and shifted a little."""
    torch.manual_seed(seed)
    if not any(isinstance(part, torch.nn.BatchNorm2d) for part in module.modules()):
        for part in module.modules():
            if isinstance(part, torch.nn.Conv2d):  # PyTorch's own start lets signals fade where no norm lifts them
                torch.nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
    steps = epochs * (len(x) // BATCH)
    optimizer = torch.optim.AdamW(module.parameters(), rate, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps)
    module.train()
    for _ in range(epochs):
        order = torch.randperm(len(x))
        for at in range(0, len(x) // BATCH * BATCH, BATCH):
            batch = order[at : at + BATCH]
            shown = x[batch]
            if torch.rand(()) < 0.5:
                shown = shown.flip(3)
            shift = tuple(int(s) for s in torch.randint(-2, 3, (2,)))
            loss = torch.nn.functional.cross_entropy(module(shown.roll(shift, (2, 3))), y[batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    module.eval()


def predictions(graph: Graph, images: Array) -> Array:
    """The first choice for each image."""
    found: list[Array] = []

    def look(value: Value, array: Array) -> None:
        if value == graph.outputs[0]:
            found.append(array.reshape(len(array), -1).argmax(axis=1))

    taken = intake(graph)
    for at in range(0, len(images), TESTED_AT_ONCE):
        run_batch(graph, np.stack([centre(image, taken) for image in images[at : at + TESTED_AT_ONCE]]), look)
    return np.concatenate(found)


def measure(
    name: str, data: tuple[Pictures, Pictures], epochs: int, tested: int, seed: int = 0, width: float | None = None
) -> Outcome:
    """Train, quantize and test one network, at the width given or its usual one."""
    architecture, (learned, test) = ARCHITECTURES[name], data
    stated = CIFAR10 if architecture.shape[1] == 3 else FRAMES
    n, c, h, w = architecture.shape
    taken = Intake(Type((n, h, w, c), "float32"), stated)
    x = np.concatenate([centre(image, taken) for image in learned.images]).transpose(0, 3, 1, 2)
    torch.manual_seed(seed)
    module = architecture.build(width or architecture.small)
    begun = time.monotonic()
    tensors = torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(learned.labels).long()
    train(module, *tensors, epochs, SLOW.get(name, RATE), seed)
    trained = time.monotonic()
    graph = sm.from_torch(module, torch.zeros(architecture.shape))
    quantizing = time.monotonic()
    result = sm.quantize(graph, list(learned.images[:: len(learned.images) // 128][:128]), preprocessing=stated)
    done = time.monotonic()
    places = np.linspace(0, len(test.images) - 1, min(tested, len(test.images))).round().astype(int)
    images, labels = test.images[places], test.labels[places]
    real = predictions(replace(graph, preprocessing=stated), images)
    whole = predictions(result.graph, images)
    return Outcome(
        network=name,
        parameters=sum(p.numel() for p in module.parameters()),
        float_top1=100 * float(np.mean(real == labels)),
        int8_top1=100 * float(np.mean(whole == labels)),
        agreement=100 * float(np.mean(real == whole)),
        training_s=trained - begun,
        quantizing_s=done - quantizing,
        report=result.report,
    )


def table(outcomes: list[Outcome]) -> Table:
    shown = Table(box=None, pad_edge=False)
    shown.add_column("network")
    for column in ("parameters", "float32 %", "int8 %", "agreement %", "output dB", "training s", "quantizing s"):
        shown.add_column(column, justify="right")
    for o in outcomes:
        noise = "" if o.report.output is None else f"{o.report.output:.1f}"
        shown.add_row(
            o.network, f"{o.parameters:,}", f"{o.float_top1:.1f}", f"{o.int8_top1:.1f}", f"{o.agreement:.1f}", noise,
            f"{o.training_s:.0f}", f"{o.quantizing_s:.1f}",
        )  # fmt: skip
    return shown


def _outcomes(arguments: argparse.Namespace) -> Iterator[Outcome]:
    data = cifar10(arguments.data)
    if arguments.coarse:
        data = coarse(data[0]), coarse(data[1])
    for name in arguments.networks:
        outcome = measure(name, data, arguments.epochs, arguments.images, arguments.seed)
        shares = (
            f"float32 {outcome.float_top1:.1f} %, int8 {outcome.int8_top1:.1f} %, agreement {outcome.agreement:.1f} %"
        )
        print(f"{name}: {shares}", file=sys.stderr, flush=True)
        yield outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=NETWORKS, help=", ".join(NETWORKS))
    parser.add_argument("--data", choices=("shared", "sample"), default="shared")
    parser.add_argument("--coarse", action="store_true", help="two classes, animals and vehicles, instead of ten")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--images", type=int, default=500, help="test images")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch")
    parser.add_argument("--layers", action="store_true", help="show every layer's signal to noise, too")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    outcomes = list(_outcomes(arguments))
    if arguments.json:
        print(json.dumps([asdict(outcome) for outcome in outcomes]))
    else:
        shown = [outcome.report.table() for outcome in outcomes] if arguments.layers else []
        Console(width=120).print(*shown, table(outcomes), sep="\n")


if __name__ == "__main__":
    main()
