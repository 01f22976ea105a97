"""The results of a fit: what each stage found, and all of it together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from smidgen.learning import Epoch, Tested
from smidgen.quantization import PixelChoice
from smidgen.results.profile import Profile
from smidgen.selection.choice import Choice
from smidgen.tables import Brief, Table, bars
from smidgen.targets.boards import Clock, shown_time
from smidgen.training import HeadStart


@dataclass(frozen=True)
class ModelMade:
    """The int8 model that everything starts from."""

    name: str
    quantized: bool  # here; it came as float32
    layers: int
    macs: int
    parameters: int
    pixels: PixelChoice | None  # the preprocessing found for a float32 model; None for others
    classes: tuple[str, ...] = ()  # of the data, in the order of the head's outputs
    head: HeadStart | None = None  # None: kept where it has as many outputs as are to be learned
    note: str = ""  # on the head, where something had to be decided

    def __str__(self) -> str:
        how = "quantized to int8, " if self.quantized else ""
        found = "".join(f"; {one}" for one in (self.pixels, self.note) if one)
        return f"{self.name}: {how}{self.layers} layers, {self.macs:,} MACs, {self.parameters:,} parameters{found}"


@dataclass(frozen=True)
class ContributionsMade:
    """The contributions of the network's parts."""

    source: str  # shipped, given, estimated, or how they were measured
    data: str
    judged_with: int  # images; 0 where nothing was measured
    parts: int  # depths of biases and shares of weights

    def __str__(self) -> str:
        judged = f", judged with {self.judged_with:,} images of {self.data}" if self.judged_with else ""
        return f"{self.source}: what each of {self.parts} parts adds{judged}"


@dataclass(frozen=True)
class LearnedHere:
    """Learning on this machine: the tests before, on the way and after, and the loss of each epoch."""

    first: Tested
    last: Tested
    one_pass: bool  # before the first epoch
    record: tuple[Epoch, ...]
    train_images: int
    test_images: int
    warnings: tuple[str, ...]

    @property
    def tested(self) -> str:
        """The tests before and after, in words."""
        before, after = self.first, self.last
        found = []
        if after.error is not None:
            found.append(f"error {before.error:.4g} before, {after.error:.4g}")
        if after.accuracy is not None:
            what = "top-1" if after.error is None else "right"
            found.append(f"{what} {before.accuracy:.1%} before, {after.accuracy:.1%}")
        return ", ".join(found)

    @property
    def course(self) -> str:
        """The passes over the samples, in words."""
        once = ["one pass"] if self.one_pass else []
        return " and ".join([*once, *([f"{len(self.record)} epochs"] if self.record else [])])

    def __str__(self) -> str:
        return (
            f"{self.tested} after {self.course} of {self.train_images:,} samples, one at a time "
            f"({self.test_images:,} to test)"
        )


@dataclass(frozen=True)
class Written:
    """The files or pictures that a stage wrote, counted."""

    count: int
    what: str

    def __str__(self) -> str:
        return f"{self.count} {self.what}"


@dataclass(frozen=True)
class StageDone:
    """A stage of a fit, its files, and whether an earlier fit had made them."""

    stage: str
    files: tuple[str, ...]
    reused: bool
    said: str

    def __str__(self) -> str:
        again = "  (reused)" if self.reused else ""
        return f"{self.stage:<14}{self.said} → {', '.join(self.files)}{again}"


@dataclass(frozen=True, repr=False)
class Fitted(Brief):
    """A model fitted to images and a budget: what each stage found."""

    folder: str
    budget: int  # bytes of SRAM
    model: ModelMade
    contributions: ContributionsMade
    choice: Choice
    learned: LearnedHere
    board: Profile
    stages: tuple[StageDone, ...]

    def __str__(self) -> str:
        lines = [*map(str, self.stages), f"everything is in {self.folder}"]
        place = next(i for i, one in enumerate(self.stages) if one.stage == "choice") + 1
        return "\n".join([*lines[:place], *str(self.choice.table()).splitlines(), *lines[place:]])

    def picture(self) -> str:
        """Draw what each op costs on the board."""
        costs = self.board.instructions.by_op
        notes = [f"{one.title}: {one.instructions:,}" for one in costs]
        return bars("instructions of each op", [one.instructions for one in costs], notes)

    def tables(self) -> tuple[Table, ...]:
        return (self.choice.table(),)

    def as_plain(self) -> dict[str, Any]:
        """Return the figures that `--json` shows; the files of the stages hold the rest."""
        choice, learned, board = self.choice, self.learned, self.board
        scheme = choice.candidate.scheme
        return {
            "folder": self.folder,
            "model": asdict(self.model),
            "contributions": asdict(self.contributions),
            "scheme": {
                "name": scheme.name, "biases": scheme.biases,
                "weights": [f"{layer}:{part}" for layer, part in scheme.weights], "weight_bits": scheme.weight_bits,
                "planned_bytes": choice.candidate.sram_bytes, "budget_bytes": self.budget,
                "predicted_gain": choice.predicted,
            },
            "choice": {
                "name": choice.candidate.name, "reason": choice.reason, "learning_rate": choice.learning_rate,
                "start": choice.candidate.start, "samples": choice.samples, "folds": choice.folds,
                "chance": choice.chance, "learned": choice.learned, "notes": choice.notes,
                "candidates": [asdict(row) for row in choice.rows],
            },
            "learned": {
                "before": learned.first.accuracy, "accuracy": learned.last.accuracy, "epochs": len(learned.record),
                "train_images": learned.train_images, "test_images": learned.test_images,
                "losses": [epoch.loss for epoch in learned.record],
                "accuracies": [epoch.accuracy for epoch in learned.record], "warnings": learned.warnings,
                "error_before": learned.first.error, "error": learned.last.error,
            },
            "board": {
                "board": board.target, "sram_bytes": board.sram_bytes, "flash_bytes": board.flash_bytes,
                "forward_instructions": board.instructions.forward, "step_instructions": board.instructions.step,
                **asdict(board.time), "steps": board.exact.steps, "exact": board.exact.equal,
            },
            "stages": [asdict(one) for one in self.stages],
        }  # fmt: skip


def say_board(found: Profile) -> str:
    """Say what the program takes on the emulated board."""
    counted, time, exact = found.instructions, found.time, found.exact
    same = f"{exact.steps} steps give numpy's bytes" if exact.equal else "NOT the bytes of numpy"
    return (
        f"emulated {found.target}: {found.sram_bytes:,} bytes of SRAM, {found.flash_bytes:,} of flash; "
        f"{counted.forward:,} instructions per prediction, {counted.step or 0:,} per training step; "
        f"{shown_time(time.forward_ms)} and {shown_time(time.step_ms or 0.0)} "
        f"{Clock(time.mhz, time.instructions_per_cycle)}; {same}"
    )
