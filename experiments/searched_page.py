"""Searched schemes and predictions as text: on the terminal and as the page docs/results/schemes.md."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from experiments.paper.cells import Table
from experiments.paper.page import EMPTY, NAMED, WIDTH, Shown, ShownTable, show
from experiments.paper.runs import Built, Footprint, Found
from experiments.paper.tables import Settings
from experiments.predictions import Predictions
from experiments.searched import (
    NAMES,
    Searched,
    budget_of,
    compared,
    estimates_table,
    full_table,
    predictions,
    predictions_table,
    published_row,
    schemes_table,
)
from smidgen.selection.contributions import Contributions, read_contributions
from smidgen.training.published import PUBLISHED

COMMAND = "python benchmarks/selection.py"
_HEAD = f"""# Searched schemes, measured

Every figure on this page is read from `benchmarks/results/selection.jsonl`, from the schemes beside it and from the
contributions that come with the package. `{COMMAND} --page` writes the page again,
`{COMMAND} TABLE` measures what a table still lacks, on a GPU. Accuracy is top-1 in percent on all
test images after the last epoch; of the rates tried the best was chosen on those same images, for published and
searched schemes alike. ± is the standard deviation over seeds. Which scheme is chosen never depends on test images:
contributions were measured on training images of Cars that were held back
([selection.md](../internals/selection.md)). What learns is written
as the number of biases, then `layer:share` of the input channels of each layer whose weights learn.
"""


def tables(
    names: Sequence[str], settings: Settings, searched: Sequence[Searched], measured: Mapping[str, Contributions]
) -> tuple[Table, ...]:
    """The tables of these names, one for each network, in the order in which they are to be measured."""
    of_schemes = {"schemes": schemes_table, "estimates": estimates_table, "full": full_table}
    made: list[Table] = []
    for name in (name for name in NAMES if name in names):
        for network in settings.networks:
            if name in of_schemes:
                made.append(of_schemes[name](settings, network, searched))
            elif network in measured:
                made.append(predictions_table(settings, measured[network]))
    return tuple(made)


def read_measured(folder: Path) -> dict[str, Contributions]:
    """The contributions in a folder, by network."""
    names = {network.name for network in PUBLISHED}
    return {path.stem: read_contributions(path) for path in sorted(folder.glob("*.json")) if path.stem in names}


def page(runs: Found, builds: Built, searched: Sequence[Searched], measured: Mapping[str, Contributions]) -> str:
    """docs/results/schemes.md, from results, schemes and contributions alone."""
    found = {run.network for run in runs}
    settings = Settings(networks=tuple(network.name for network in PUBLISHED if network.name in found))
    shown = show(tables(NAMES, settings, searched, measured), runs, builds)
    lines = [line for one in shown if one.measured for line in section(one, runs, searched, measured)]
    return "\n".join([_HEAD, *lines]).rstrip() + "\n"


def section(
    one: ShownTable, runs: Found, searched: Sequence[Searched], measured: Mapping[str, Contributions]
) -> Iterator[str]:
    """A table with its heading, what it is about, and what it tells."""
    yield f"## {one.table.title}\n"
    yield _wrapped(one.table.about)
    if one.table.name == "predictions":
        found = predictions(measured[one.table.network], runs)
        yield from _told(found) if found else ("Not all of it is measured yet.\n",)
    else:
        yield from _accuracies(one, searched)
        yield ""
        yield from _differences(one, searched)
        yield from _remarks(one)
    yield f"`{COMMAND} {one.table.name} --networks {one.table.network}`\n"


def _accuracies(one: ShownTable, searched: Sequence[Searched]) -> Iterator[str]:
    sizes = {row: found for row, _, found in one.footprints}
    spelled = {cell.row: (cell.run.scheme, cell.run.bits) for cell in one.table.cells}
    columns = one.table.columns
    yield _line(["", "what learns", "bits", "SRAM planned", *(NAMED.get(c, c) for c in columns), "average"])
    yield _line(["---"] * (5 + len(columns)))
    for row in one.table.rows:
        scheme, bits = spelled[row]
        shown = [one.at(row, column) for column in columns]
        texts = [EMPTY if cell is None else cell.text for cell in shown]
        yield _line([row, scheme, str(bits), _planned(sizes.get(row)), *texts, _number(_average(shown))])


def _planned(found: Footprint | None) -> str:
    return EMPTY if found is None else f"{found.planned:,}"


def _number(value: float | None) -> str:
    return EMPTY if value is None else f"{value:.1f}"


def _average(shown: Sequence[Shown | None]) -> float | None:
    """Over all columns, where all were measured."""
    tops = [cell.top1 for cell in shown if cell is not None and cell.top1 is not None]
    return statistics.fmean(tops) if tops and len(tops) == len(shown) else None


def _differences(one: ShownTable, searched: Sequence[Searched]) -> Iterator[str]:
    """How far each searched scheme lies from the published one whose SRAM it has, over the sets both were run on."""
    if one.table.name == "full":
        return
    said = []
    for scheme, bits in compared(one.table.network):
        for other in searched:
            if (other.network, other.budget) != (one.table.network, budget_of(scheme, bits)):
                continue
            pairs = [(one.at(other.row, c), one.at(published_row(scheme, bits), c)) for c in one.table.columns]
            gaps = [a.top1 - b.top1 for a, b in pairs if a and b and a.top1 is not None and b.top1 is not None]
            if gaps:
                how = f" by {other.how}" if other.how else ""
                sets = "1 data set" if len(gaps) == 1 else f"{len(gaps)} data sets"
                said.append(f"{other.budget}{how} {statistics.fmean(gaps):+.2f} ({sets})")
    if said:
        yield _wrapped(f"Searched less published, points on average: {'; '.join(said)}.")


def _remarks(one: ShownTable) -> Iterator[str]:
    measured = [cell for cell in one.cells if cell.top1 is not None]
    if not measured:
        return
    epochs = {NAMED.get(cell.data, cell.data): cell.epochs for cell in measured}
    rates = sorted({rate for cell in measured for rate in cell.rates})
    yield _wrapped(
        f"Epochs: {', '.join(f'{data} {count}' for data, count in epochs.items())}. Seeds: "
        f"{_several(len(cell.each) for cell in measured)}. Rates tried, of a batch of 256: "
        f"{', '.join(f'{rate:g}' for rate in rates)}."
    )


def _told(found: Predictions) -> Iterator[str]:
    yield _wrapped(str(found).replace("\n", "; ") + ".")
    yield _line(["scheme", "predicted gain", "real gain"])
    yield _line(["---"] * 3)
    for one in sorted(found.schemes, key=lambda one: -one.predicted):
        yield _line([one.scheme, f"{100 * one.predicted:+.1f}", f"{100 * one.real:+.1f}"])
    yield ""
    if found.interactions:
        yield _line(["layers", "each alone", "together", "missed by the sum"])
        yield _line(["---"] * 4)
        for pair in found.interactions:
            alone = " and ".join(f"{100 * gain:+.1f}" for gain in pair.alone)
            layers = " and ".join(map(str, pair.layers))
            yield _line([layers, alone, f"{100 * pair.together:+.1f}", f"{100 * pair.error:+.1f}"])
        yield ""


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _several(numbers: Iterable[int]) -> str:
    return " or ".join(str(number) for number in sorted(set(numbers)))


def _wrapped(paragraph: str) -> str:
    return textwrap.fill(paragraph, WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"
