"""The paper's tables and figures: what each of them needs measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, get_args

from experiments.paper import published
from experiments.paper.cells import Cell, Table, table
from experiments.paper.published import By
from experiments.paper.runs import Build, ChannelRule, Engine, Optimizer, Run
from smidgen.training.published import PUBLISHED

SETS = ("flowers102", "cars196", "cifar10", "vww")
TWO_CLASSES = ("vww", "cifar10:3,5")  # the second: cats and dogs
SEEDS = (0, 1, 2)
MANY_SEEDS = tuple(range(10))
LAST_TWO_BLOCKS = "last:6"
FULL = "full, batch 128"
RATES = (0.1, 0.4, 1.0)
BATCHED_RATES: Mapping[tuple[Optimizer, bool], tuple[float, ...]] = {  # with QAS or in fp32, and without
    ("sgd", True): (0.025, 0.1, 0.4), ("sgd", False): (0.4, 2.0, 10.0),
    ("momentum", True): (0.006, 0.025, 0.1), ("momentum", False): (0.1, 0.4, 2.0),
    ("adam", True): (1e-3, 1e-2, 1e-1), ("adam", False): (1e-3, 1e-2, 1e-1),
    ("lars", True): (1.0, 5.0, 25.0), ("lars", False): (1.0, 5.0, 25.0),
}  # fmt: skip
ADAM_FP32 = (6e-4, 2e-3, 6e-3)  # of real weights; those of int8 reach 127, and Adam undoes what QAS multiplies by
OPTIMIZER_NAMES: Mapping[Optimizer, str] = {"sgd": "SGD", "momentum": "SGD-M", "adam": "Adam", "lars": "LARS"}
DEVICE_EPOCHS: Mapping[str, int] = {"flowers102": 12, "cars196": 12, "cifar10": 3, "cifar10:3,5": 12, "vww": 10}
BATCHED_EPOCHS: Mapping[str, int] = {"flowers102": 50, "cars196": 50, "cifar10": 20, "cifar10:3,5": 20, "vww": 10}
LONG = 50  # epochs
SHORT = 12
BATCHED = 128
ACCUMULATED = 8  # samples
Key = TypeVar("Key")
Name = Literal[
    "optimizers", "sparse", "precision", "seeds", "batch", "head", "accumulation", "channels", "qas", "memory"
]
NAMES: tuple[Name, ...] = get_args(Name)  # what must be shown first comes first


@dataclass(frozen=True)
class Settings:
    """What a person may choose; None is a table's own."""

    networks: tuple[str, ...] = ("mcunet-5fps",)
    sets: tuple[str, ...] | None = None
    epochs: int | None = None
    seeds: tuple[int, ...] | None = None
    rates: tuple[float, ...] | None = None
    limit: int | None = None
    together: bool = False  # all seeds at every rate, instead of the best rate's alone

    def among(self, usual: tuple[str, ...]) -> tuple[str, ...]:
        """A table's data: its usual sets, or those of them that were chosen; and every set that no table knows."""
        if self.sets is None:
            return usual
        kept = tuple(data for data in usual if data in self.sets or data.partition(":")[0] in self.sets)
        return (*kept, *(data for data in self.sets if data not in (*SETS, *TWO_CLASSES)))

    def device(self, network: str, data: str, scheme: str, **fields: object) -> Run:
        """A run with the device's arithmetic, one sample at a time."""
        return self._run(network, data, scheme, "device", DEVICE_EPOCHS, 1, fields)

    def batched(self, network: str, data: str, scheme: str, engine: Engine, **fields: object) -> Run:
        """A run in batches, as the paper simulates; the rate rises over a tenth of the epochs."""
        return self._run(network, data, scheme, engine, BATCHED_EPOCHS, BATCHED, fields)

    def _run(
        self, network: str, data: str, scheme: str, engine: Engine, own: Mapping[str, int], batch: int,
        fields: dict[str, object],
    ) -> Run:  # fmt: skip
        usual = int(str(fields.pop("epochs", own.get(data, SHORT if batch == 1 else LONG))))
        epochs = self.epochs or usual
        warmup = epochs / 10 if batch > 1 else 0.0
        plain = {"batch": batch, "epochs": epochs, "warmup": warmup, "limit": self.limit, **fields}
        return Run(network, data, scheme, engine, 0.0, **plain)  # type: ignore[arg-type]

    def cell(
        self, row: str, run: Run, rates: tuple[float, ...] = RATES, seeds: tuple[int, ...] = SEEDS,
        paper: By | None = None,
    ) -> Cell:  # fmt: skip
        return Cell(row, run, self.rates or rates, self.seeds or seeds, (paper or {}).get(run.data))


def tables(names: tuple[Name, ...], settings: Settings) -> tuple[Table, ...]:
    """The tables of these names, one for each network, in the order in which they are to be measured."""
    made = (_TABLES[name](settings, network) for name in names for network in settings.networks)
    return tuple(made)


def _paper(figures: Mapping[Key, By], key: Key, network: str, of: str = "mcunet-5fps") -> By:
    """The paper's figures by data set; none for another network than they are of."""
    return figures.get(key, {}) if network == of else {}


def _optimizers(s: Settings, network: str) -> Table:
    def cells() -> Iterator[Cell]:
        variants: list[tuple[Engine, bool]] = [("fp32", True), ("int8", False), ("int8", True)]
        for engine, qas in variants:
            for optimizer, shown in OPTIMIZER_NAMES.items():
                paper = _paper(published.OPTIMIZERS, (engine, optimizer, qas), network)
                row = f"{engine} {shown}" + ("+QAS" if qas and engine == "int8" else "")
                rates = ADAM_FP32 if (engine, optimizer) == ("fp32", "adam") else BATCHED_RATES[optimizer, qas]
                for data in s.among(SETS):
                    run = s.batched(network, data, LAST_TWO_BLOCKS, engine, optimizer=optimizer, qas=qas)
                    yield s.cell(row, run, rates, SEEDS[:1], paper)

    about = (
        "The last two blocks learn (six layers), in batches of 128. fp32: the real-valued network; int8: the quantized "
        "graph with fp32 copies of what learns and fp32 gradients, as the paper simulates."
    )
    return table("optimizers", network, "Optimizers, with and without QAS", about, cells())


def _schemes(network: str) -> list[str]:
    published_names = next(list(n.schemes) for n in PUBLISHED if n.name == network)
    return ["head", "bias:6", "bias:12", "bias:22", "last:3", "last:6", "last:12", *published_names]


def _sparse(s: Settings, network: str) -> Table:
    def paper(scheme: str) -> By:
        of_mbv2 = _paper(published.SCHEMES_MBV2, (scheme, True), network, "mbv2-w0.35")
        return of_mbv2 or _paper(published.SCHEMES, (scheme, True), network)

    def cells() -> Iterator[Cell]:
        for data in s.among(SETS):
            for scheme in _schemes(network):
                yield s.cell(scheme, s.device(network, data, scheme), paper=paper(scheme))
            whole = s.batched(network, data, "full", "int8")
            yield s.cell(FULL, whole, BATCHED_RATES["momentum", True], SEEDS, paper("full"))

    builds = [(scheme, Build(network, scheme)) for scheme in _schemes(network)]
    builds.append((FULL, Build(network, "full")))
    about = (
        "Device arithmetic, one sample at a time, 12-bit weights. The full update is the exception: int8 with fp32 "
        "copies in batches of 128, as the paper simulates. Memory: the paper's analytic sum and the SRAM planned for a "
        "Cortex-M7 with 8-bit weights and 10 classes. The paper's figures are of batches of 128 and 50 epochs."
    )
    return table("sparse", network, "Accuracy over memory", about, cells(), builds)


def _precision(s: Settings, network: str) -> Table:
    cells = _against_fp32(s, network, LONG, RATES[1:], SEEDS)
    about = f"{_SAME_IMAGES.format(_middle(network))} {LONG} epochs."
    return table("precision", network, "The device's arithmetic against fp32", about, cells)


def _seeds(s: Settings, network: str) -> Table:
    cells = _against_fp32(s, network, SHORT, RATES[1:], MANY_SEEDS)
    about = (
        f"{_SAME_IMAGES.format(_middle(network))} {SHORT} epochs with many seeds, since a single run says little at "
        "rates as high as these."
    )
    return table("seeds", network, "The device's arithmetic at high rates", about, cells)


_SAME_IMAGES = (
    "Scheme {}, one sample at a time, the same images in the same order, each rate by itself. What has fp32 weights "
    "and gradients has the same int8 activations; its weights have no limits."
)


def _middle(network: str) -> str:
    """The scheme of about 100 KB."""
    return _schemes(network)[9]


def _against_fp32(
    s: Settings, network: str, epochs: int, rates: tuple[float, ...], seeds: tuple[int, ...]
) -> Iterator[Cell]:
    """Rows for each rate: fp32 weights and gradients, then one after another what the device does instead."""
    scheme = _middle(network)
    for data in s.among(SETS[:1]):
        for rate in s.rates or rates:
            shadow = s.batched(network, data, scheme, "int8", epochs=epochs, batch=1, warmup=0.0)
            rows = {"fp32 weights and gradients": shadow}
            rows["the same, weights within ±127"] = replace(shadow, limited=True)
            rows["12-bit weights, fp32 gradients"] = replace(shadow, limited=True, stored=True)
            for bits in (12, 8):
                rows[f"{bits}-bit weights, int8 gradients"] = s.device(network, data, scheme, epochs=epochs, bits=bits)
            for row, run in rows.items():
                yield Cell(f"{row}, rate {rate:g}", run, (rate,), s.seeds or seeds, at=rate, pinned=True)


def _batch(s: Settings, network: str) -> Table:
    def cells() -> Iterator[Cell]:
        for data in s.among(SETS):
            for batch in (BATCHED, 1):
                for optimizer in ("momentum", "sgd"):
                    row = f"batch {batch}, momentum {'0.9' if optimizer == 'momentum' else '0'}"
                    paper = _paper(published.BATCHES, (batch, optimizer), network)
                    rates = BATCHED_RATES["momentum" if optimizer == "momentum" else "sgd", True]
                    if batch == 1:
                        run = s.device(network, data, LAST_TWO_BLOCKS, optimizer=optimizer)
                    else:
                        run = s.batched(network, data, LAST_TWO_BLOCKS, "int8", optimizer=optimizer)
                    yield s.cell(row, run, rates, SEEDS if batch == 1 and optimizer == "sgd" else SEEDS[:1], paper)

    about = (
        "The last two blocks learn by SGD with QAS. Batch 1 is the device's arithmetic with 12-bit weights; batches of "
        "128 are int8 with fp32 copies, as the paper simulates."
    )
    return table("batch", network, "Batch 1 and momentum", about, cells())


def _head(s: Settings, network: str) -> Table:
    def cells() -> Iterator[Cell]:
        for data in s.among(SETS):
            for head in ("float32", "int8"):
                run = s.device(network, data, LAST_TWO_BLOCKS, head=head)
                seeds = SEEDS if head == "float32" else SEEDS[:1]
                yield s.cell(f"{head} classifier", run, RATES, seeds, _paper(published.HEADS, head, network))

    about = "The last two blocks learn; device arithmetic, one sample at a time. The paper's are of batches of 128."
    return table("head", network, "The classifier's type", about, cells())


def _accumulation(s: Settings, network: str) -> Table:
    scheme = _middle(network)

    def cells() -> Iterator[Cell]:
        for data in s.among(TWO_CLASSES):
            for count in (1, ACCUMULATED):
                run = s.device(network, data, scheme, accumulate=count)
                row = "a step per sample" if count == 1 else f"gradients of {count} samples accumulated"
                yield s.cell(row, run, paper=_paper(published.ACCUMULATION, count > 1, network))

    about = f"Two classes; scheme {scheme}, device arithmetic. cifar10:3,5 is CIFAR-10's cats and dogs."
    return table("accumulation", network, "Gradient accumulation", about, cells())


def _channels(s: Settings, network: str) -> Table:
    names: Mapping[ChannelRule, str] = {
        "largest": "largest norm", "smallest": "smallest norm", "random": "random",
        "gradient": "largest squared gradient", "rotating": "random, redrawn each epoch",
    }  # fmt: skip

    def cells() -> Iterator[Cell]:
        for data in s.among(SETS[:2]):
            for rule, row in names.items():
                run = s.device(network, data, "quarter:6", channels=rule)
                yield s.cell(row, run, RATES if rule != "rotating" else RATES[1:], SEEDS[:1])

    about = (
        "The last two blocks learn, a quarter of each layer's input channels; device arithmetic. Squared gradients are "
        "those of 64 training images before learning. Where channels are redrawn, those that leave are rounded to "
        "int8 and kept, and the rate falls from epoch to epoch. The paper: all of its rules within 0.2 points."
    )
    return table("channels", network, "Which channels learn", about, cells())


def _qas(s: Settings, network: str) -> Table:
    scheme = _middle(network)

    def cells() -> Iterator[Cell]:
        for data in s.among(SETS[:2]):
            for qas in (False, True):
                said = "with" if qas else "without"
                paper = _paper(published.SCHEMES, (LAST_TWO_BLOCKS, qas), network)
                run = s.batched(network, data, LAST_TWO_BLOCKS, "int8", qas=qas)
                yield s.cell(
                    f"last two blocks, batch 128, {said} QAS", run, BATCHED_RATES["sgd", qas], SEEDS[:1], paper
                )
                exact = s.device(network, data, scheme, qas=qas)
                rates = RATES if qas else BATCHED_RATES["sgd", False]
                yield s.cell(f"{scheme} on the device, {said} QAS", exact, rates, SEEDS if qas else SEEDS[:1])

    about = "SGD without momentum, at the best rate of each. Below, the mean loss of each epoch."
    return table("qas", network, "Quantization-aware scaling", about, cells())


def _memory(s: Settings, network: str) -> Table:
    names = _schemes(network)[7:]
    builds = [(name, Build(network, name, counted=name in (names[0], names[2]))) for name in (*names, "full")]
    about = (
        "A training step with 8-bit weights and 10 classes, the image handed over by rows. SRAM planned is state and "
        "arena, in bytes; measured is all static data and the stack on the emulated Cortex-M7, which counts "
        "instructions, not cycles. The paper's chip is an STM32F746 at 216 MHz."
    )
    return table("memory", network, "Memory and instructions", about, (), builds)


_TABLES: Mapping[Name, Callable[[Settings, str], Table]] = {
    "optimizers": _optimizers, "sparse": _sparse, "precision": _precision, "seeds": _seeds, "batch": _batch,
    "head": _head, "accumulation": _accumulation, "channels": _channels, "qas": _qas, "memory": _memory,
}  # fmt: skip
