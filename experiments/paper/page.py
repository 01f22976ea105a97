"""Tables with their figures, as text: on the terminal, as JSON, and as the page docs/results/accuracy.md."""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from experiments.paper import published
from experiments.paper.cells import ByKind, Figure, Table, by_kind, courses, figure
from experiments.paper.runs import Build, Built, Footprint, Found, Run
from experiments.paper.tables import NAMES, SETS, Settings, tables

NAMED = {
    "flowers102": "Flowers-102", "cars196": "Cars", "cifar10": "CIFAR-10", "vww": "VWW", "cifar10:3,5": "cats and dogs",
}  # fmt: skip
SPARSE_KB = 100
WIDTH = 120  # columns of a paragraph
AGAINST_FP32 = ("precision", "seeds")
EMPTY = "—"


@dataclass(frozen=True)
class Shown:
    """A cell with its figure; None where nothing was measured."""

    row: str
    data: str
    top1: float | None  # percent, the mean
    each: tuple[float, ...]  # seeds
    rate: float | None
    rates: tuple[float, ...]
    epochs: int | None
    train: int | None
    test: int | None
    paper: float | None
    text: str
    losses: tuple[float, ...]  # of the first seed, each epoch's mean
    saturated: float | None  # the share of weights at ±127 in the end, the first seed's


@dataclass(frozen=True)
class ShownTable:
    """A table with what was measured for it."""

    table: Table
    cells: tuple[Shown, ...]
    footprints: tuple[tuple[str, Build, Footprint | None], ...]

    def at(self, row: str, data: str) -> Shown | None:
        return next((cell for cell in self.cells if (cell.row, cell.data) == (row, data)), None)

    @property
    def measured(self) -> bool:
        """Whether there is anything of what the table is about."""
        if self.cells:
            return any(cell.top1 is not None for cell in self.cells)
        return any(found for _, _, found in self.footprints)


def show(chosen: Sequence[Table], runs: Found, builds: Built) -> tuple[ShownTable, ...]:
    """The tables with what the results hold for them."""
    results = by_kind(runs)
    return tuple(_shown(table, results, builds) for table in chosen)


def _shown(table: Table, results: ByKind, builds: Built) -> ShownTable:
    chosen = courses(table.cells, results)
    cells = tuple(
        _cell(cell.row, cell.column, cell.paper, figure(cell, results, chosen.get((cell.column, cell.run.batch))))
        for cell in table.cells
    )
    return ShownTable(table, cells, tuple((row, build, builds.get(build)) for row, build in table.builds))


def _cell(row: str, data: str, paper: float | None, found: Figure | None) -> Shown:
    if found is None:
        return Shown(row, data, None, (), None, (), None, None, None, paper, EMPTY, (), None)
    run, outcome = found.runs[0]
    return Shown(
        row, data, round(found.mean, 2), tuple(round(a, 2) for a in found.accuracies), found.rate, found.rates,
        run.epochs, outcome.train, outcome.test, paper, str(found), outcome.losses,
        outcome.saturated,
    )  # fmt: skip


def page(runs: Found, builds: Built) -> str:
    """docs/results/accuracy.md, from the results alone."""
    networks = dict.fromkeys([*Settings().networks, *(r.network for r in runs), *(b.network for b in builds)])
    sets = tuple(dict.fromkeys([*SETS, *(run.data for run in runs)]))
    every = show(tables(NAMES, Settings(networks=tuple(networks), sets=sets)), runs, builds)
    own = [t for t in every if t.measured or t.table.network == Settings().networks[0]]
    return "\n".join([_HEAD, *_sizes(runs), *(line for one in own for line in _section(one))]).rstrip() + "\n"


_HEAD = """# The paper's tables, measured again

Every figure on this page is read from `benchmarks/results/paper.jsonl`: `python benchmarks/paper.py --page` writes the
page again, `python benchmarks/paper.py TABLE` measures what a table still lacks (most of them on a GPU). Accuracy is
top-1 in percent on all test images after the last epoch, the paper's in brackets behind ours. Where several learning
rates were tried, the best was chosen on those same test images, as in the paper. ± is the standard deviation over
seeds, which differ in the classifier's first weights and in rounding but see the same images in the same order. All
of it was measured while a new classifier began with small random weights; it now begins at zero. Rates
are those of a batch of 256; they fall by a cosine.
"""


def _sizes(runs: Found) -> Iterator[str]:
    """The data, and how much of it there is beside what the paper had."""
    found = {(run.data, o.train, o.test, o.classes) for run, o in runs.items()}
    if not found:
        yield "Nothing has been measured yet.\n"
        return
    yield "| data | learned from / tested with here | classes | the paper's |"
    yield "| --- | --- | --- | --- |"
    for data, train, test, classes in sorted(found):
        yield f"| {NAMED.get(data, data)} | {train:,} / {test:,} | {classes} | {published.SIZES.get(data, EMPTY)} |"
    yield ""


def _section(one: ShownTable) -> Iterator[str]:
    yield f"## {one.table.title}\n"
    yield _wrapped(one.table.about)
    if one.footprints and not one.cells:
        yield from (*_footprints(one), "")
    elif one.cells:
        yield from (*_accuracies(one), "")
    yield from _remarks(one)
    network = "" if one.table.network == Settings().networks[0] else f" --networks {one.table.network}"
    yield f"`python benchmarks/paper.py {one.table.name}{network}`\n"


def _accuracies(one: ShownTable) -> Iterator[str]:
    columns, sizes = one.table.columns, {row: (build, f) for row, build, f in one.footprints}
    extra = ["analytic KB", "SRAM planned, KB"] if sizes else []
    averaged = ["average"] if len(columns) > 1 else []
    yield _line(["", *extra, *(NAMED.get(c, c) for c in columns), *averaged])
    yield _line(["---"] * (1 + len(extra) + len(columns) + len(averaged)))
    for row in one.table.rows:
        shown = [one.at(row, column) for column in columns]
        cells = [EMPTY if cell is None else _text(cell) for cell in shown]
        yield _line([row, *(_sized(sizes.get(row)) if sizes else ()), *cells, *(_average(shown) for _ in averaged)])


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _text(cell: Shown) -> str:
    return cell.text if cell.paper is None else f"{cell.text} ({cell.paper:.1f})"


def _average(shown: Sequence[Shown | None]) -> str:
    """Over all columns, ours where all were measured and the paper's where it has all."""
    ours = [cell.top1 for cell in shown if cell is not None and cell.top1 is not None]
    theirs = [cell.paper for cell in shown if cell is not None and cell.paper is not None]
    text = f"{statistics.fmean(ours):.1f}" if len(ours) == len(shown) else EMPTY
    return f"{text} ({statistics.fmean(theirs):.1f})" if len(theirs) == len(shown) else text


def _sized(found: tuple[Build, Footprint | None] | None) -> tuple[str, str]:
    if found is None or found[1] is None:
        return EMPTY, EMPTY
    return f"{found[1].analytic / 1024:.0f}", f"{found[1].planned / 1024:.0f}"


def _footprints(one: ShownTable) -> Iterator[str]:
    heads = ("scheme", "analytic KB", "SRAM planned", "SRAM measured", "flash", "forward", "step", "the paper's chip")
    yield _line(heads)
    yield _line(["---"] * len(heads))
    for row, build, found in one.footprints:
        if found is None:
            yield _line([row, *[EMPTY] * 6, _paper_chip(build)])
            continue
        counts = [EMPTY if n is None else f"{n:,}" for n in (found.sram, found.flash)]
        counts += [EMPTY if n is None else f"{n / 1e6:.1f} M" for n in (found.forward, found.step)]
        held = "" if found.streamed else ", image held"
        planned = f"{found.planned:,}{held}"
        yield _line([row, f"{found.analytic / 1024:.1f}", planned, *counts, _paper_chip(build)])


def _paper_chip(build: Build) -> str:
    """What the paper measured on its chip, for the full update and for the sparse one of about 100 KB."""
    full, sparse = published.SRAM_KB[build.network]
    if build.scheme == "full":
        return f"{full:,} KB"
    name = build.scheme.removesuffix("kb")
    if not name.isdigit() or abs(int(name) - SPARSE_KB) > 2:
        return EMPTY
    ms = published.STEP_MS[build.network]
    return f"{sparse} KB, {ms} ms ({ms * published.CHIP_MHZ / 1000:.0f} M cycles)"


def _remarks(one: ShownTable) -> Iterator[str]:
    """What was learned for how long at which rates, and what the table was made to tell."""
    by_data: dict[str, list[Shown]] = {}
    for cell in one.cells:
        if cell.epochs is not None:
            by_data.setdefault(cell.data, []).append(cell)
    if by_data:
        epochs = (f"{NAMED.get(d, d)} {_several(c.epochs for c in cells)}" for d, cells in by_data.items())
        yield f"Epochs: {', '.join(epochs)}. Seeds: {_several(len(c.each) for c in one.cells if c.each)}.\n"
    if one.table.name == "optimizers" and (said := _gaps(one)):
        yield _wrapped(said)
    if one.table.name in AGAINST_FP32 and (said := _differences(one)):
        yield _wrapped(said)
    if one.table.name == "qas":
        yield from _curves(one)
    limits = [c for c in one.cells if c.saturated is not None] if one.table.name in AGAINST_FP32 else []
    if limits:
        shares = "; ".join(f"{c.row} {c.saturated:.2%}" for c in limits)
        yield _wrapped(f"Trained weights at ±127 in the end, which fp32 weights may exceed: {shares}.")
    chosen = [
        f"{c.row} on {NAMED.get(c.data, c.data)} {c.rate:g}"
        for c in one.cells
        if c.rate is not None and len(c.rates) > 1
    ]
    if chosen:
        tried = sorted({rate for cell in one.cells for rate in cell.rates})
        yield f"<details><summary>Rates: {', '.join(f'{r:g}' for r in tried)} were tried; the best</summary>\n"
        yield f"{_wrapped('; '.join(chosen) + '.')}\n</details>\n"


def _several(numbers: Iterable[int | None]) -> str:
    return " or ".join(str(n) for n in sorted({n for n in numbers if n is not None}))


def _best(one: ShownTable, column: str, of: Callable[[Run], bool]) -> float | None:
    """The best of those of a column's figures whose runs are like that."""
    pairs = zip(one.table.cells, one.cells, strict=True)
    found = (shown.top1 for cell, shown in pairs if cell.column == column and of(cell.run) and shown.top1 is not None)
    return max(found, default=None)


def _is(kind: tuple[str, bool], run: Run) -> bool:
    return (run.engine, run.qas) == kind and run.optimizer == "momentum"


def _gaps(one: ShownTable) -> str | None:
    """How far QAS lifts int8, and where that leaves it beside fp32; over the sets on which all three were measured."""
    kinds: list[tuple[str, bool]] = [("int8", False), ("int8", True), ("fp32", True)]
    full: dict[str, list[float]] = {}
    for column in one.table.columns:
        tops = [_best(one, column, partial(_is, kind)) for kind in kinds]
        found = [top for top in tops if top is not None]
        if len(found) == len(kinds):
            full[NAMED.get(column, column)] = found
    if not full:
        return None
    plain, scaled, real = (statistics.fmean(each) for each in zip(*full.values(), strict=True))
    return (
        f"Mean over {', '.join(full)}: int8 SGD-M with QAS {scaled:.1f}, which is {scaled - plain:+.1f} points from "
        f"plain int8 SGD-M and {scaled - real:+.1f} from fp32."
    )


def _differences(one: ShownTable) -> str | None:
    """How far the device's arithmetic lies from fp32 at each rate: the mean over seeds, and its standard error."""
    pairs = list(zip(one.table.cells, one.cells, strict=True))
    said = []
    for real, yardstick in pairs:
        if real.run.engine == "device" or real.run.limited:
            continue
        for cell, shown in pairs:
            same = (cell.column, cell.at) == (real.column, real.at) and len(shown.each) == len(yardstick.each) > 1
            if cell is not real and same:
                gaps = [ours - theirs for ours, theirs in zip(shown.each, yardstick.each, strict=True)]
                error = statistics.stdev(gaps) / math.sqrt(len(gaps))
                what = cell.row.partition(", rate")[0].removeprefix("the same, ")
                where = f"{NAMED.get(cell.column, cell.column)}, rate {cell.at:g}, {what}"
                said.append(f"{where} {statistics.fmean(gaps):+.2f} ± {error:.2f}")
    return f"From fp32, seed by seed, with the standard error of the mean: {'; '.join(said)}." if said else None


def _wrapped(paragraph: str) -> str:
    return textwrap.fill(paragraph, WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"


def _curves(one: ShownTable) -> Iterator[str]:
    """The mean loss of some epochs of each row."""
    shown = [cell for cell in one.cells if cell.losses]
    if not shown:
        return
    last = max(len(cell.losses) for cell in shown)
    epochs = sorted({e for e in (1, 2, 3, 5, 10, 20, 30, 40, 50, last) if e <= last})
    yield _line(["mean loss after epoch", *map(str, epochs)])
    yield _line(["---"] * (1 + len(epochs)))
    for cell in shown:
        losses = (f"{cell.losses[e - 1]:.2f}" if e <= len(cell.losses) else "" for e in epochs)
        yield _line([f"{NAMED.get(cell.data, cell.data)}, {cell.row}", *losses])
    yield ""


def text(one: ShownTable) -> str:
    """A table for the terminal."""
    return "\n".join(_section(one))
