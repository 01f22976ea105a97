"""What losses besides softmax teach networks that others made, on this machine and on an emulated Cortex-M7.

The networks are files beside the checkout: MLPerf Tiny's autoencoder and person detector, and OpenMV's FOMO. Host and
board take the same steps; all they hold afterwards is compared.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from shared import SHARED, arguments_of, report, start

sys.path.append(str(Path(__file__).parents[1]))
from experiments.losses import TASKS, LossOutcome, run


def measure(arguments: argparse.Namespace) -> Iterator[LossOutcome]:
    if not (SHARED / "models" / "wild").is_dir():
        print("SKIPPED: the models beside the checkout are not there", file=sys.stderr)
        return
    for name in arguments.tasks:
        task = TASKS[name](SHARED / "models", SHARED / "data")
        yield run(name, task, arguments.steps, board=None if arguments.host_only else "cortex-m7")


def show(found: list[LossOutcome]) -> None:
    shown = Table("task", "loss", "steps", "SRAM", "guessing", "before", "after", "odd ones told", "same", box=None)
    for one in found:
        odd = "" if one.stands_out is None else " → ".join(f"{share:.1%}" for share in one.stands_out)
        same = {None: "", True: "yes", False: "NO"}[one.same]
        figures = (str(one.steps), f"{one.sram:,}", f"{one.guessing:.4g}", str(one.before), str(one.after))
        shown.add_row(one.task, one.loss, *figures, odd, same)
    Console(width=160).print(shown)


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("tasks", nargs="*", default=list(TASKS), help=", ".join(TASKS))
    parser.add_argument("--steps", type=int, help="as many as each task takes otherwise")
    parser.add_argument("--host-only", action="store_true", help="leave the emulated board out")
    arguments = parser.parse_args()
    report(list(measure(arguments)), show, arguments.json)


if __name__ == "__main__":
    start(main)
