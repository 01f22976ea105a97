"""Networks that `smidgen fit auto` makes from nothing: held-back and test accuracy, and their cost on a Cortex-M7.

`python benchmarks/auto.py gestures=gestures.npz gases=gases.npz` finds a network for each data set within the budget,
tests it in int8 on the test samples, and measures its program, which learns the head, on the emulated board.
`python -m experiments.sensor_sets` makes such files of public repositories.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

import smidgen as sm
from shared import arguments_of, report, start
from smidgen.data import load_data
from smidgen.errors import InputError
from smidgen.fitting import Limits, NetworkMade, find_network
from smidgen.inference import ClassesTested
from smidgen.results.profile import profile
from smidgen.targets import find
from smidgen.targets.boards import parse_size

BOARD = "cortex-m7"
COLUMNS = (
    "data", "to learn from", "to test with", "network", "held back", "test, int8", "SRAM", "flash",
    "instructions per prediction", "per step", "board equals numpy",
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """A network for a data set, as judged, tested and measured."""

    data: str
    learned_from: int
    tested_with: int
    made: NetworkMade
    accuracy: float  # of the int8 network on the test samples
    sram_bytes: int
    flash_bytes: int
    forward_instructions: int
    step_instructions: int
    exact: bool


def measure(name: str, path: str, budget: int, seed: int) -> Measured:
    """Find a network, test it, and measure its program."""
    data, options = load_data(path), sm.Options(seed=seed)
    data.check_classes("this benchmark judges")
    found = find_network(data, Limits(budget, find(BOARD), "normal"), options)
    tested = sm.test(found.graph, data)
    assert isinstance(tested, ClassesTested)
    program = sm.compile(found.graph, "head", BOARD, options=sm.Options(classes=len(data.classes)))
    cost = profile(program, 1)
    counts = cost.instructions
    return Measured(
        name, len(data.train), len(data.test), found.made, tested.accuracy, cost.sram_bytes, cost.flash_bytes,
        counts.forward, counts.step or 0, cost.exact.equal,
    )  # fmt: skip


def show(found: list[Measured]) -> None:
    """Show the networks that were kept, and below each everything that was tried."""
    console, table = Console(width=180), Table(*COLUMNS)
    for one in found:
        table.add_row(
            one.data, f"{one.learned_from:,}", f"{one.tested_with:,}", one.made.kept.name, one.made.kept.shown,
            f"{one.accuracy:.1%}", f"{one.sram_bytes:,}", f"{one.flash_bytes:,}", f"{one.forward_instructions:,}",
            f"{one.step_instructions:,}", "yes" if one.exact else "NO",
        )  # fmt: skip
    console.print(table)
    for one in found:
        console.print(f"{one.data}\n{one.made.table()}", highlight=False)


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("data", metavar="NAME=PATH", nargs="+", help="a data set with classes")
    parser.add_argument("--budget", default="32KB", help="the most SRAM")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = []
    for one in given.data:
        name, equals, path = one.partition("=")
        if not equals:
            raise InputError(f"{one} names no data set; give NAME=PATH")
        found.append(measure(name, path, parse_size(given.budget), given.seed))
    report(found, show, given.json)


if __name__ == "__main__":
    start(main)
