"""fit_auto(): a network found for some data, then every stage of a fit from it; a second call finds nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from smidgen.callbacks import ignore
from smidgen.data import Data
from smidgen.data.files import made_folder
from smidgen.fitting.fitted import Fitted, StageDone
from smidgen.fitting.ledger import Ledger, digest_of
from smidgen.fitting.lock import locked
from smidgen.fitting.networks import Found, Limits, NetworkMade, NetworkRow, find_network
from smidgen.fitting.pipeline import FitProgress
from smidgen.frontends.native import read_smg, write_smg
from smidgen.ir import Graph
from smidgen.ir.text import FORMAT
from smidgen.results.report.page import Section
from smidgen.tables import Cell, Table, counted, rows_of
from smidgen.training import Options

STAGE, NETWORK = "network", "network.smg"
COLUMNS = ("Network", "On samples held back", "SRAM in bytes", "Weights in bytes", "MACs", "Judged with")

Rest = Callable[[Graph, Callable[[], Section]], Fitted]  # a fit of a network, with a section for its report


@dataclass(frozen=True)
class AutoFitted:
    """The network that was found, and the fit from it."""

    network: NetworkMade
    fitted: Fitted
    reused: bool  # an earlier call found the network

    def __str__(self) -> str:
        first = StageDone(STAGE, (NETWORK,), self.reused, str(self.network))
        return f"{first}\n{self.network.table()}\n{self.fitted}"

    def as_plain(self) -> dict[str, Any]:
        return {"network": asdict(self.network), **self.fitted.as_plain()}


def fit_auto(
    data: Data,
    folder: str | Path,
    limits: Limits,
    rest: Rest,
    *,
    options: Options | None = None,
    force: bool = False,
    on_progress: Callable[[FitProgress], None] = ignore,
) -> AutoFitted:
    """Find a network for some data, keep it in the folder, and make the rest of the fit from it.

    Of the options the seed draws first weights and folds; the others are those of learning on the device.
    """
    folder, options = Path(folder), options or Options()
    with made_folder(folder), locked(folder):
        inputs = digest_of(FORMAT, data.digest(), limits.budget, limits.target.name, limits.effort, options)
        ledger = Ledger(folder, inputs, force)
        ledger.check(STAGE, (NETWORK,))
        made = ledger.result(STAGE, inputs, (NETWORK,), NetworkMade)
        reused = made is not None
        if made is None:
            with ledger.begun(STAGE):
                found = _found(data, limits, options, on_progress)
                write_smg(found.graph, folder / NETWORK)
            made = found.made
            ledger.add(STAGE, inputs, (NETWORK,), made, in_file=False)
        graph = replace(read_smg(folder / NETWORK), name=made.kept.name)
    on_progress(FitProgress(STAGE, last=StageDone(STAGE, (NETWORK,), reused, str(made))))
    return AutoFitted(made, rest(graph, lambda: _section(made)), reused)


def _found(data: Data, limits: Limits, options: Options, on_progress: Callable[[FitProgress], None]) -> Found:
    def show(doing: str, done: int, total: int) -> None:
        on_progress(FitProgress(STAGE, doing, done, total))

    return find_network(data, limits, options, show)


def _section(made: NetworkMade) -> Section:
    """Show every network that was tried, with its score on samples held back and what it costs."""
    intro = f"Kept: {made}. Each learned from some of the training samples and was judged on others. "
    intro += " ".join(f"{note[0].upper()}{note[1:]}." for note in made.notes)
    rows = rows_of(_cells(row, place == made.chosen) for place, row in enumerate(made.rows))
    table = Table("Networks that were tried", COLUMNS, rows, folded=False)
    return Section("network", "Which network", intro.rstrip(), (table,))


def _cells(row: NetworkRow, kept: bool) -> tuple[Cell | str, ...]:
    name = f"{row.name}, kept" if kept else row.name
    sram = "no plan" if row.sram_bytes is None else counted(row.sram_bytes)
    judged = f"{row.judged_with:,} samples" if row.score is not None else ""
    return (
        name, Cell(row.shown, row.score), sram, counted(row.weight_bytes), counted(row.macs), judged,
    )  # fmt: skip
