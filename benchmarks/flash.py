"""How long flash lasts that keeps what was learned, and what the store costs on chips: emulated parts, real training.

Saves follow each other after 1, 10 or 100 steps on photographs; each part wears as its data sheet says, and the first
sector that reaches what it is good for ends its life.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from shared import add_data, arguments_of, images_of, released, report, start

sys.path.append(str(Path(__file__).parents[1]))
from experiments.flash import PARTS
from experiments.keeping import KEPT_BYTES, StoreCost, Wear, learned, store_cost, wear

BOARDS = ("cortex-m7", "cortex-m4", "cortex-m0plus")
NETWORK, SCHEMES = "mcunet-5fps", ("head", "49kb", "148kb")
STEPS = {1: 24, 10: 24, 100: 12}  # from one save to the next, and how many saves
PER_DAY = (24, 24 * 60)


@dataclass(frozen=True)
class Measured:
    """What all of it found."""

    costs: tuple[StoreCost, ...]
    wears: tuple[Wear, ...]


def show(found: Measured) -> None:
    console = Console()
    table = Table(title=f"The store on chips; instructions for a state of {KEPT_BYTES:,} bytes", title_justify="left")
    for column in ("board", "code", "SRAM", "stack", "open", "save all", "save one block", "load"):
        table.add_column(column, justify="left" if column == "board" else "right")
    for cost in found.costs:
        figures = (cost.code, cost.sram, cost.stack, cost.open, cost.save_all, cost.save_one, cost.load)
        table.add_row(cost.board, *(f"{figure:,}" for figure in figures))
    console.print(table)
    table = Table(title="Flash under saves", title_justify="left")
    columns = (
        "program",
        "state",
        "steps",
        "changed",
        "part",
        "written",
        "erases",
        "busy",
        "saves",
        "hourly",
        "each minute",
    )
    for column in columns:
        table.add_column(column, justify="left" if column in ("program", "part") else "right")
    for one in found.wears:
        table.add_row(
            f"{one.network} {one.scheme}", f"{one.state:,}", str(one.steps), f"{one.changed:.1%}",
            f"{one.part} x {one.sectors}", f"{one.written:,.0f}", f"{one.erases:.2f}", f"{one.busy_ms:,.0f} ms",
            f"{one.saves:,.0f}", *(f"{one.years(per_day):,.1f} years" for per_day in PER_DAY),
        )  # fmt: skip
    console.print(table)


def main() -> None:
    parser = arguments_of(__doc__)
    add_data(parser, None)
    given = parser.parse_args()
    data = images_of(given, None)
    wears = []
    for scheme in SCHEMES:
        for steps, saves in STEPS.items():
            states = list(learned(released(NETWORK), scheme, data, steps, saves))
            wears += [wear(states, part, (NETWORK, scheme, steps)) for part in PARTS]
    costs = tuple(store_cost(board) for board in BOARDS)
    report(Measured(costs, tuple(one for one in wears if one is not None)), show, given.json)


if __name__ == "__main__":
    start(main)
