"""The front end for sound on emulated chips: instructions for a second of it, SRAM, flash, and whether bytes agree.

A front end computes a frame whenever enough samples have come: at 16,000 samples per second MFCC has 50 frames a second
and YAMNet's bands 100. Instructions are not cycles: the chips issue one or two at a time, and wait for their flash.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from shared import arguments_of, report, start

sys.path.append(str(Path(__file__).parents[1]))
from experiments.hearing import SHAPES, FrontEndCost, measure_front_end

BOARDS = ("cortex-m7", "cortex-m4")


def show(costs: list[FrontEndCost]) -> None:
    table = Table(title="A second of sound")
    for column in ("front end", "board", "instructions", "most at once", "SRAM", "tables in flash", "exact"):
        table.add_column(column, justify="left" if column in ("front end", "board") else "right")
    for cost in costs:
        figures = (cost.instructions, cost.at_most, cost.sram, cost.flash)
        table.add_row(cost.name, cost.board, *(f"{figure:,}" for figure in figures), "yes" if cost.exact else "NO")
    Console().print(table)


def main() -> None:
    given = arguments_of(__doc__).parse_args()
    report([measure_front_end(name, board) for name in SHAPES for board in BOARDS], show, given.json)


if __name__ == "__main__":
    start(main)
