"""What latent replay saves of a step and what it costs, on emulated boards: MCUNet-5FPS, its image streamed."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from shared import arguments_of, released, report, start

sys.path.append(str(Path(__file__).parents[1]))
from experiments.replaying import ROOM, ReplayCost, replay_cost

NETWORK = "mcunet-5fps"
CASES = (("cortex-m7", "head"), ("cortex-m7", "49kb"), ("cortex-m7", "99kb"), ("cortex-m7", "148kb"),
         ("cortex-m0plus", "99kb"))  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """What all of it found."""

    costs: tuple[ReplayCost, ...]


def show(found: Measured) -> None:
    console = Console()
    table = Table(title=f"{NETWORK}: steps on images and on latents, in instructions", title_justify="left")
    for column in ("board", "scheme", "image", "latent", "step", "and kept", "replayed", "share"):
        table.add_column(column, justify="left" if column in ("board", "scheme") else "right")
    for one in found.costs:
        figures = (one.image_bytes, one.latent_bytes, one.step, one.kept_step, one.replayed_step)
        share = f"{one.replayed_step / one.step:.0%}"
        table.add_row(one.board, one.scheme, *(f"{figure:,}" for figure in figures), share)
    console.print(table)
    table = Table(title="What the ring takes, in bytes, and to open it, in instructions", title_justify="left")
    for column in ("board", "scheme", "arena", "SRAM", "code", "open"):
        table.add_column(column, justify="left" if column in ("board", "scheme") else "right")
    for one in found.costs:
        taken = (one.arena, one.sram, one.code, one.open)
        table.add_row(one.board, one.scheme, *(f"{figure:,}" for figure in taken))
    console.print(table)
    table = Table(title=f"Examples in {ROOM:,} bytes of flash", title_justify="left")
    for column in ("scheme", *found.costs[0].examples):
        table.add_column(column, justify="left" if column == "scheme" else "right")
    for one in {one.scheme: one for one in found.costs}.values():
        table.add_row(one.scheme, *(f"{count}" for count in one.examples.values()))
    console.print(table)


def main() -> None:
    given = arguments_of(__doc__).parse_args()
    network = released(NETWORK)
    report(Measured(tuple(replay_cost(network, scheme, board) for board, scheme in CASES)), show, given.json)


if __name__ == "__main__":
    start(main)
