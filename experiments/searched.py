"""Searched schemes beside the published ones of the same SRAM, and predictions beside what came: what is measured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.paper.cells import Cell, Table, by_kind, courses, figure, table
from experiments.paper.channels import spelled
from experiments.paper.runs import BATCH, Build, Found, Run
from experiments.paper.tables import BATCHED_RATES, FULL, SETS, Settings
from experiments.predictions import Interaction, Prediction, Predictions, best_pairs, drawn_schemes
from smidgen.errors import InputError
from smidgen.selection.contributions import Contributions
from smidgen.training.options import DEFAULT_BITS
from smidgen.training.published import PUBLISHED
from smidgen.training.scheme import Scheme

RATES = (0.4, 1.0)  # of a batch of 256
SEEDS = (0, 1, 2)
FEW_SEEDS = (0, 1)  # of what predictions are held against
BITS = (12, 8)  # with which a published scheme's SRAM is planned
COMPARED = (0, 2, 4)  # of a network's published schemes: about 50, 100 and 150 KB
ESTIMATED = SETS[:2]  # what the picks of estimates are judged on
ANALYSED = "cars196"  # whose training images the contributions were measured on
DRAWN = 24  # schemes by lot
PAIRED = 6  # layers of which all pairs are tried
NAMES = ("schemes", "predictions", "estimates", "full")
_FILE = re.compile(r"(.+?)-([0-9]+kb-(?:8|10|12)bit|[0-9]+KB)(?:-by-([a-z-]+))?")
Row = tuple[str, str, int]  # its name, the scheme as a run names it, and the bits of weights


@dataclass(frozen=True)
class Searched:
    """A scheme that was searched for a budget: that of a published scheme, `49kb-12bit`, or a round one, `128KB`."""

    network: str
    budget: str
    how: str | None  # by which estimate; None: on measured contributions
    scheme: str  # spelled
    bits: int

    @property
    def row(self) -> str:
        said = f" by {self.how}" if self.how else ""
        return f"searched{said} for {self.budget}"


def read_searched(folder: Path) -> tuple[Searched, ...]:
    """The schemes in a folder's files NETWORK-BUDGET.json, or NETWORK-BUDGET-by-ESTIMATE.json."""
    found = []
    for path in sorted(folder.glob("*.json")):
        name = _FILE.fullmatch(path.stem)
        if name is None or name[1] not in {network.name for network in PUBLISHED}:
            raise InputError(
                f"{path} does not say which network and budget its scheme is for; name it NETWORK-49kb-12bit.json or "
                "NETWORK-128KB.json"
            )
        scheme = Scheme.from_json(path.read_text(errors="replace"), str(path))
        found.append(Searched(name[1], name[2], name[3], spelled(scheme), scheme.weight_bits or DEFAULT_BITS))
    return tuple(sorted(found, key=lambda one: (one.network, one.budget, one.how or "")))


def budget_of(scheme: str, bits: int) -> str:
    """What the SRAM of a published scheme is called."""
    return f"{scheme}-{bits}bit"


def published_row(scheme: str, bits: int) -> str:
    return f"{scheme}, {bits} bits"


def compared(network: str) -> tuple[tuple[str, int], ...]:
    """The published schemes, each at each number of bits, that searched ones are held against."""
    names = next(tuple(one.schemes) for one in PUBLISHED if one.name == network)
    return tuple((names[place], bits) for place in COMPARED for bits in BITS)


def schemes_table(settings: Settings, network: str, searched: Sequence[Searched]) -> Table:
    """Published schemes, each followed by what was searched for its SRAM, then what was for other budgets."""
    own = [one for one in searched if one.network == network and one.how is None]
    rows = [row for scheme, bits in compared(network) for row in _beside(scheme, bits, own)]
    rows += [(one.row, one.scheme, one.bits) for one in own if one.row not in {row for row, _, _ in rows}]
    about = (
        "Device arithmetic, one sample at a time. A searched scheme has at most the planned SRAM of the published one "
        "above it, with as many bits as that line says; it may choose fewer or more bits itself. SRAM is planned for a "
        "Cortex-M7 and 10 classes. The analysis saw training images of Cars only; all figures are of test images."
    )
    cells = _cells(settings, network, rows, SETS, SEEDS)
    builds = [(row, Build(network, scheme, bits)) for row, scheme, bits in rows]
    return table("schemes", network, "Searched beside published", about, cells, builds)


def estimates_table(settings: Settings, network: str, searched: Sequence[Searched]) -> Table:
    """What estimates pick for the SRAM of published schemes, beside those and what measured contributions pick."""
    own = [one for one in searched if one.network == network]
    judged = [(s, b) for s, b in compared(network) if any(o.how and o.budget == budget_of(s, b) for o in own)]
    rows = [row for scheme, bits in judged for row in _beside(scheme, bits, own)]
    about = (
        "The same search, on estimates instead of measured contributions. By rule: layers that do not narrow, later "
        "ones more; the others are those of `benchmarks/estimates.py`."
    )
    cells = _cells(settings, network, rows, ESTIMATED, FEW_SEEDS)
    builds = [(row, Build(network, scheme, bits)) for row, scheme, bits in rows]
    return table("estimates", network, "What estimates pick", about, cells, builds)


def _beside(scheme: str, bits: int, searched: Sequence[Searched]) -> list[Row]:
    """A published scheme's row, and those of what was searched for its SRAM."""
    found = [one for one in searched if one.budget == budget_of(scheme, bits)]
    return [(published_row(scheme, bits), scheme, bits), *((one.row, one.scheme, one.bits) for one in found)]


def _cells(
    settings: Settings, network: str, rows: Sequence[Row], sets: tuple[str, ...], seeds: tuple[int, ...]
) -> Iterator[Cell]:
    for data in settings.among(sets):
        for row, scheme, bits in rows:
            yield settings.cell(row, settings.device(network, data, scheme, bits=bits), RATES, seeds)


def full_table(settings: Settings, network: str, searched: Sequence[Searched]) -> Table:
    """The full update, simulated as the paper does, beside what was searched for round budgets."""
    own = [one for one in searched if one.network == network and one.how is None]
    rounds = [(one.row, one.scheme, one.bits) for one in own if one.budget.endswith("KB")]

    def cells() -> Iterator[Cell]:
        for data in settings.among(SETS):
            whole = settings.batched(network, data, "full", "int8")
            yield settings.cell(FULL, whole, BATCHED_RATES["momentum", True], SEEDS[:1])
        yield from _cells(settings, network, rounds, SETS, SEEDS)

    about = (
        "Everything learns, in batches of 128 with fp32 copies, beside what was searched for a budget that holds all "
        "of SRAM. The full update does not fit any such chip."
    )
    return table("full", network, "Beside the full update", about, cells())


def predictions_table(settings: Settings, contributions: Contributions) -> Table:
    """Schemes by lot, and pairs of the best layers with each alone, on the data that was analysed."""
    pairs = best_pairs(contributions, PAIRED)
    alone = [scheme for pair in pairs for scheme in (pair.neither, *pair.alone, pair.both)]
    schemes = (_biases_alone(contributions), *drawn_schemes(contributions, DRAWN), *alone)

    def cells() -> Iterator[Cell]:
        rates = (_rate(contributions),)
        for text in dict.fromkeys(map(spelled, schemes)):
            run = settings.device(contributions.model, ANALYSED, text, bits=contributions.conditions.weight_bits)
            yield settings.cell(text, run, rates, FEW_SEEDS)

    about = (
        f"Gains over the last {contributions.base} biases alone: the sum of measured contributions, and as it came out "
        f"on test images. {DRAWN} schemes drawn by lot; all pairs of the {PAIRED} layers that add most."
    )
    return table("predictions", contributions.model, "Predicted and real gains", about, cells())


def _biases_alone(contributions: Contributions) -> Scheme:
    return Scheme("biases", contributions.base)


def _rate(contributions: Contributions) -> float:
    """Of a batch of 256, that at which the contributions were measured."""
    return round(contributions.conditions.learning_rate * BATCH, 6)


def needed(chosen: Sequence[Table]) -> Iterator[Run]:
    """Every run that any of the tables' cells can ask for."""
    for one in chosen:
        for cell in one.cells:
            yield from (replace(cell.run, rate=rate, seed=seed) for rate in cell.rates for seed in cell.seeds)


def predictions(contributions: Contributions, runs: Found) -> Predictions | None:
    """What the results say of predictions; None while the biases alone or all schemes by lot are missing."""
    measured = _accuracies(predictions_table(Settings(), contributions), runs)
    biases = _biases_alone(contributions)
    drawn = [scheme for scheme in drawn_schemes(contributions, DRAWN) if spelled(scheme) in measured]
    if spelled(biases) not in measured or not drawn:
        return None
    schemes = tuple(
        Prediction(
            spelled(one),
            contributions.predict_gain(one) - contributions.predict_gain(biases),
            measured[spelled(one)] - measured[spelled(biases)],
        )
        for one in drawn
    )
    return Predictions(contributions.model, ANALYSED, schemes, tuple(_interactions(contributions, measured)))


def _interactions(contributions: Contributions, measured: Mapping[str, float]) -> Iterator[Interaction]:
    for pair in best_pairs(contributions, PAIRED):
        found = [measured.get(spelled(one)) for one in (pair.neither, *pair.alone, pair.both)]
        neither, first, second, both = found
        if neither is not None and first is not None and second is not None and both is not None:
            yield Interaction(pair.layers, both - neither, (first - neither, second - neither))


def _accuracies(one: Table, runs: Found) -> dict[str, float]:
    """Top-1 from 0 to 1 by row, the mean over seeds, of the course that most rows have."""
    results = by_kind(runs)
    course = courses(one.cells, results)
    found = {cell.row: figure(cell, results, course.get((cell.column, cell.run.batch))) for cell in one.cells}
    return {row: shown.mean / 100 for row, shown in found.items() if shown is not None}
