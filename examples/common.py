"""What the examples share: their options, some steps on an emulated board, and how figures are shown."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import smidgen as sm
from smidgen.data import as_input, pixel_encoding
from smidgen.data.audio import middle
from smidgen.frontends import export_model
from smidgen.ir import Array, roles_of
from smidgen.learning.testing import label_of
from smidgen.targets.firmware import BoardDevice


@dataclass(frozen=True)
class Figure:
    """Something that was measured with samples nothing was learned from, as a share of 1."""

    what: str
    before: float
    after: float

    def __str__(self) -> str:
        return f"{self.what:<36}{self.before:>8.1%} before {self.after:>8.1%} after"


@dataclass(frozen=True)
class OnBoard:
    """What a program takes on an emulated board, and whether steps there left the bytes of this machine."""

    board: str
    sram: int  # bytes, the stack among them
    flash: int  # bytes
    instructions: int  # of a step
    milliseconds: float  # that a step takes, about: by the board's clock and instructions per cycle as they are taken
    steps: int
    same: bool

    def __str__(self) -> str:
        equal = "the same bytes as" if self.same else "NOT the bytes of"
        return (
            f"{self.board}: {self.sram:,} bytes of SRAM, {self.flash:,} of flash\n"
            f"a step: {self.instructions:,} instructions, about {self.milliseconds:.3g} ms\n"
            f"{self.steps} steps there: {equal} this machine"
        )


@dataclass(frozen=True)
class Outcome:
    """What an example found."""

    example: str
    learned_from: int  # samples
    tested_with: int
    figures: tuple[Figure, ...]
    board: OnBoard

    def __str__(self) -> str:
        samples = f"learned from {self.learned_from:,} samples, tested with {self.tested_with:,} others"
        return "\n".join([samples, *map(str, self.figures), str(self.board)])

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """What `--json` printed."""
        found = json.loads(text)
        figures = tuple(Figure(**figure) for figure in found.pop("figures"))
        return cls(figures=figures, board=OnBoard(**found.pop("board")), **found)


def arguments(page: str | None, data: str) -> argparse.Namespace:
    """The options of an example; `data` says what samples of one's own look like."""
    parser = argparse.ArgumentParser(description=page, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help=f"samples of your own: {data}")
    parser.add_argument("-o", "--output", type=Path, help="a new folder for the learned model and the C project")
    parser.add_argument("--seed", type=int, default=0, help="draws samples, first weights and their order")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser.parse_args()


def on_board(here: sm.Program, there: sm.Program, data: sm.Data, rate: float, steps: int) -> OnBoard:
    """Take some steps with both programs, on this machine and on an emulated board, and compare every byte."""
    with here.start() as host, there.start() as board:
        assert isinstance(board, BoardDevice)
        same = True
        for place in np.linspace(0, len(data.train) - 1, steps).astype(int).tolist():
            sample, label = data.train.images[place], label_of(roles_of(host.graph), data.train, place)
            image = as_input(sample, pixel_encoding(host.graph))
            shown = _heard(board, sample, image) if sample.dtype == np.int16 else image
            loss = host.train(image, label, rate)
            same &= np.array_equal(image, shown) and board.train(shown, label, rate) == loss
        kept, memory, counts = board.state(), board.memory(), board.counts()
        same &= all(np.array_equal(array, kept[name]) for name, array in host.state().items())
        milliseconds = board.clock.milliseconds(counts.total)
        return OnBoard(
            there.target.name, memory.bytes, board.image.flash_bytes, counts.total, milliseconds, steps, same
        )


def _heard(board: BoardDevice, sound: Array, image: Array) -> Array:
    """What the board's own front end makes of the sound."""
    spec = board.graph.preprocessing
    assert isinstance(spec, sm.LogMel)
    return board.audio_features(middle(sound, spec, image.shape))


def finish(
    given: argparse.Namespace, outcome: Outcome, learned: sm.Graph, firmware: Callable[[sm.Graph], sm.Program]
) -> None:
    """Show what was found; where a folder is asked for, write the learned model and the C that goes on from it."""
    if given.output is not None:
        firmware(learned).write(given.output / "firmware")
        export_model(learned, given.output / "learned.smg")
    print(json.dumps(asdict(outcome), indent=2) if given.json else outcome)


def start(main: Callable[[], None]) -> None:
    """Run an example; what it cannot read or do ends it in one sentence."""
    try:
        main()
    except sm.SmidgenError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
