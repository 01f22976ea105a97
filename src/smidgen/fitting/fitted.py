"""The results of a fit: what each stage found, and all of it together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from smidgen.learning import Epoch, Tested
from smidgen.quantization import PixelChoice
from smidgen.results.profile import Profile
from smidgen.selection.found import Found
from smidgen.selection.rates import ChosenRate
from smidgen.targets.boards import Clock, shown_time


@dataclass(frozen=True)
class ModelMade:
    """The int8 model that everything starts from."""

    name: str
    quantized: bool  # here; it came as float32
    layers: int
    macs: int
    parameters: int
    pixels: PixelChoice | None  # the preprocessing found for a float32 model; None for others

    def __str__(self) -> str:
        how = "quantized to int8, " if self.quantized else ""
        found = f"; {self.pixels}" if self.pixels else ""
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
    record: tuple[Epoch, ...]
    train_images: int
    test_images: int
    warnings: tuple[str, ...]

    @property
    def last(self) -> Tested:
        """The test after the last epoch."""
        found = self.record[-1].tested
        assert found is not None
        return found

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

    def __str__(self) -> str:
        return (
            f"{self.tested} after {len(self.record)} epochs of {self.train_images:,} samples, one at a time "
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


@dataclass(frozen=True)
class Fitted:
    """A model fitted to images and a budget: what each stage found."""

    folder: str
    model: ModelMade
    contributions: ContributionsMade
    scheme: Found
    rate: ChosenRate
    learned: LearnedHere
    board: Profile
    stages: tuple[StageDone, ...]

    def __str__(self) -> str:
        return "\n".join([*map(str, self.stages), f"everything is in {self.folder}"])

    def as_plain(self) -> dict[str, Any]:
        """Return the figures that `--json` shows; the files of the stages hold the rest."""
        found, learned, board = self.scheme, self.learned, self.board
        return {
            "folder": self.folder,
            "model": asdict(self.model),
            "contributions": asdict(self.contributions),
            "scheme": {
                "biases": found.scheme.biases, "weights": found.weights.split(), "weight_bits": found.weight_bits,
                "planned_bytes": found.cost, "budget_bytes": found.budget, "gain": self.gain, "proven": found.proven,
            },
            "rate": {"learning_rate": self.rate.learning_rate, "verdict": self.rate.verdict},
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

    @property
    def gain(self) -> float | None:
        """The predicted gain of top-1 over the head alone; None where nothing was measured."""
        return self.scheme.gain if self.contributions.judged_with else None


def say_scheme(found: Found, measured: bool) -> str:
    """Say what learns and what it takes, and what it is predicted to gain where that was measured."""
    weights = f"weights {found.weights} with {found.weight_bits} bits" if found.layers else "no weights"
    gain = f", {100 * found.gain:+.1f} points predicted" if measured else ""
    best = ", the best that fits" if found.proven else ""
    takes = f"{found.cost:,} of {found.budget:,} bytes of SRAM"
    return f"the last {found.scheme.biases} biases, {weights}; {takes}{gain}{best}"


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
