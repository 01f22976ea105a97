"""The results of a fit's stages, in plain values that the ledger stores, and all of them together."""

from __future__ import annotations

from dataclasses import dataclass

from smidgen.targets.boards import Clock, shown_time


@dataclass(frozen=True)
class ModelMade:
    """The int8 model that everything starts from."""

    name: str
    quantized: bool  # here; it came as float32
    layers: int
    macs: int
    parameters: int
    pixels: str  # the preprocessing found for a float32 model; empty for others

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
class SchemeFound:
    """The scheme that was found."""

    biases: int
    weights: tuple[str, ...]  # layer:share
    weight_bits: int
    planned_bytes: int  # SRAM on the target, everything counted
    budget_bytes: int
    gain: float | None  # of top-1 over the head alone, as predicted; None where nothing was measured
    proven: bool  # no scheme that fits is predicted to gain more

    def __str__(self) -> str:
        weights = f"weights {' '.join(self.weights)} with {self.weight_bits} bits" if self.weights else "no weights"
        gain = "" if self.gain is None else f", {100 * self.gain:+.1f} points predicted"
        best = ", the best that fits" if self.proven else ""
        return (
            f"the last {self.biases} biases, {weights}; {self.planned_bytes:,} of {self.budget_bytes:,} bytes of SRAM"
            f"{gain}{best}"
        )


@dataclass(frozen=True)
class RateMade:
    """The learning rate of one sample."""

    learning_rate: float
    verdict: str

    def __str__(self) -> str:
        return self.verdict


@dataclass(frozen=True)
class LearnedHere:
    """Learning on this machine: top-1 of the test images before and after.

    Without classes the share of right answers, if the loss defines them, and the mean loss of the test.
    """

    before: float | None
    accuracy: float | None
    epochs: int
    train_images: int
    test_images: int
    losses: tuple[float, ...]  # of each epoch
    warnings: tuple[str, ...]
    error_before: float | None = None
    error: float | None = None

    def __str__(self) -> str:
        return (
            f"{self.tested} after {self.epochs} epochs of {self.train_images:,} samples, one at a time "
            f"({self.test_images:,} to test)"
        )

    @property
    def tested(self) -> str:
        """The tests before and after, in words."""
        what = "top-1" if self.error is None else "right"
        found = []
        if self.error is not None:
            found.append(f"error {self.error_before:.4g} before, {self.error:.4g}")
        if self.accuracy is not None:
            found.append(f"{what} {self.before:.1%} before, {self.accuracy:.1%}")
        return ", ".join(found)


@dataclass(frozen=True)
class BoardMeasured:
    """The program on the emulated board."""

    board: str
    sram_bytes: int
    flash_bytes: int
    forward_instructions: int
    step_instructions: int
    forward_ms: float  # estimated from `mhz` and `instructions_per_cycle`
    step_ms: float
    mhz: int
    instructions_per_cycle: float
    steps: int  # compared with numpy
    exact: bool

    def __str__(self) -> str:
        same = f"{self.steps} steps give numpy's bytes" if self.exact else "NOT the bytes of numpy"
        return (
            f"emulated {self.board}: {self.sram_bytes:,} bytes of SRAM, {self.flash_bytes:,} of flash; "
            f"{self.forward_instructions:,} instructions per prediction, {self.step_instructions:,} per training step; "
            f"{shown_time(self.forward_ms)} and {shown_time(self.step_ms)} "
            f"{Clock(self.mhz, self.instructions_per_cycle)}; {same}"
        )


@dataclass(frozen=True)
class ProjectWritten:
    """The C project."""

    files: int

    def __str__(self) -> str:
        return f"{self.files} files: C sources, header, example and how to build it"


@dataclass(frozen=True)
class ReportWritten:
    """The report."""

    figures: int

    def __str__(self) -> str:
        return f"{self.figures} pictures; open it in a browser"


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
    """A model fitted to images and a budget."""

    folder: str
    model: ModelMade
    contributions: ContributionsMade
    scheme: SchemeFound
    rate: RateMade
    learned: LearnedHere
    board: BoardMeasured
    stages: tuple[StageDone, ...]

    def __str__(self) -> str:
        return "\n".join([*map(str, self.stages), f"everything is in {self.folder}"])
