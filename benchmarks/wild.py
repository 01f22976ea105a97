"""A folder of models from elsewhere: which are read, and whether they compute what LiteRT's reference kernels compute.

`python benchmarks/wild.py DIR` tries every model file in it with 20 random inputs and, where they take images, 20
photographs of `vww.zip` beside the checkout. Inputs are runs of one stream: a network's variables carry on from one to
the next, on both sides. The table shortens what is said of a file; `--json` has all of it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

import smidgen as sm
from shared import SHARED, arguments_of, report, start
from smidgen.data import Data
from smidgen.errors import InputError

sys.path.append(str(Path(__file__).parents[1]))
from experiments.wild import Compared, Tried, try_all

MOST = 72  # characters of what is said of a file in the table
PHOTOGRAPHS = SHARED / "data" / "vww.zip"


def photographs() -> Data | None:
    if PHOTOGRAPHS.exists():
        return sm.load_data(PHOTOGRAPHS)
    print(f"SKIPPED: real inputs, {PHOTOGRAPHS.name} is not beside the checkout", file=sys.stderr)
    return None


def shown(found: Compared | None) -> str:
    if found is None:
        return ""
    apart = "" if found.equal == found.inputs else f", {found.apart:.3g} apart"
    return f"{found.equal}/{found.inputs}{apart}"


def brief(one: Tried) -> str:
    """What is refused or noted, in a few words; `--json` has it whole."""
    said = one.refused.removeprefix(f"{one.file}: ") or "; ".join(one.notes)
    return said if len(said) <= MOST else f"{said[: MOST - 1].rstrip()}…"


def show(results: list[Tried]) -> None:
    table = Table("file", "layers", "computes", "random inputs equal", "photographs equal", "refused, or noted")
    for one in results:
        layers = "" if one.refused else str(one.layers)
        table.add_row(one.file, layers, one.computes, shown(one.random), shown(one.real), brief(one))
    read = sum(not one.refused for one in results)
    table.title = f"{read} of {len(results)} are read"
    Console().print(table)


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("folder", metavar="DIR", type=Path, help="where the model files are")
    given = parser.parse_args()
    if not given.folder.is_dir():
        raise InputError(f"{given.folder} is not a folder; give one that holds model files")
    report(list(try_all(given.folder, photographs())), show, given.json)


if __name__ == "__main__":
    start(main)
