"""The results that commands print: models, projects, training runs, and boards at the end of a line."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from smidgen.ir import Array, Value
from smidgen.ir.log_mel import LogMel
from smidgen.ir.preprocessing import Preprocessing
from smidgen.learning import Epoch, Tested
from smidgen.link import Statistics
from smidgen.pipeline import Program
from smidgen.quantization import PixelChoice, QuantizationReport
from smidgen.results.report.training import TrainingRun

TOP = 5  # elements shown


@dataclass(frozen=True)
class TopElement:
    """An element: its stored value, and the real number that stands for."""

    index: int
    value: float | None  # None where it is not finite
    real: float | None


@dataclass(frozen=True)
class OutputSummary:
    """One output tensor of a run."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str | None
    top: tuple[TopElement, ...]

    def __str__(self) -> str:
        written = f" → {self.file}" if self.file else ""
        lines = [f"{self.name} {self.dtype}{list(self.shape)}{written}"]
        lines += [f"  {rank.index:>6}  {rank.value:>6}  {rank.real}" for rank in self.top]
        return "\n".join(lines)


def largest(value: Value, array: Array, file: str | None) -> OutputSummary:
    """Summarize an output tensor by its largest elements."""
    flat, q = array.reshape(-1), value.type.q
    best = np.argsort(-flat.astype(np.float64), kind="stable")[:TOP]
    scale, zero = (q.one, q.zero) if q is not None and q.axis is None else (1.0, 0)
    found = ((int(index), flat[index].item()) for index in best)
    top = tuple(
        TopElement(index, *((value, scale * (value - zero)) if math.isfinite(value) else (None, None)))
        for index, value in found
    )
    return OutputSummary(value.name, value.type.dtype, value.type.shape, file, top)


@dataclass(frozen=True)
class RunSummary:
    """A run of a model on some target."""

    model: str
    target: str
    outputs: tuple[OutputSummary, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.outputs))


@dataclass(frozen=True)
class WrittenModel:
    """A model written to a file."""

    model: str
    file: str
    bytes: int
    layers: int
    macs: int
    parameters: int
    notes: tuple[str, ...] = ()  # on what could not be converted exactly

    def __str__(self) -> str:
        size = f"{self.layers} layers, {self.macs:,} MACs, {self.parameters:,} parameters"
        return "\n".join((f"{self.model}: {size} → {self.file} ({self.bytes:,} bytes)", *self.notes))


@dataclass(frozen=True)
class QuantizedFile:
    """A model quantized and written to a file, and how close it stays to the float one."""

    file: str
    bytes: int
    preprocessing: Preprocessing | LogMel | None
    pixels: PixelChoice | None
    report: QuantizationReport

    def __str__(self) -> str:
        images = f"\n{self.pixels}\nimages: {self.preprocessing}" if self.pixels else ""
        if isinstance(self.preprocessing, LogMel):
            images = f"\nsound: {self.preprocessing}"
        return f"{self.report}{images}\nwritten to {self.file} ({self.bytes:,} bytes)"


@dataclass(frozen=True)
class CompiledProject:
    """A program written as a project, and the page its memory is drawn in."""

    program: Program
    folder: Path
    picture: Path | None = None

    def as_plain(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        memory, program = self.program.memory, self.program
        return {
            "model": program.graph.name, "target": program.target.name, "folder": str(self.folder),
            "files": sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()),
            "peak_bytes": memory.peak, "lower_bound_bytes": memory.lower_bound, "state_bytes": memory.state,
            "constant_bytes": memory.constants, "at_peak": asdict(memory.at_peak),
            "picture": str(self.picture) if self.picture else None,
            "replay": asdict(program.replay) if program.replay else None, "project": self._project,
        }  # fmt: skip

    @property
    def _project(self) -> int | None:
        """The numbers that the head reads, where features are projected."""
        return self.program.training.head.project if self.program.training else None

    def __str__(self) -> str:
        memory, program, files = self.program.memory, self.program, self.as_plain()["files"]
        sums = f"\nthe head reads {self._project} sums of all features: give other commands --project {self._project}"
        learns = f"{memory.state:,} for what outlives a run, " if memory.state else ""
        return (
            f"{program.graph.name} for {program.target.name}: {len(files)} files → {self.folder}\n"
            f"arena {memory.peak:,} bytes of SRAM (at least {memory.lower_bound:,}), "
            f"{learns}constants {memory.constants:,} bytes of flash\n"
            f"at the peak: {memory.at_peak}"
            + (f"\n{program.replay}" if program.replay else "")
            + (sums if self._project else "")
            + (f"\nmemory drawn in {self.picture}" if self.picture else "")
        )


@dataclass(frozen=True)
class TrainingSummary:
    """A run that ended, the scheme as it was asked for, and the files it wrote."""

    run: TrainingRun
    scheme: str
    files: tuple[Path, ...]  # the report last

    def as_plain(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        run, learned = self.run, self.run.learned
        return {
            "model": learned.name, "scheme": self.scheme, "target": run.program.target.name,
            "classes": run.data.classes, "train_images": len(run.data.train), "test_images": len(run.data.test),
            "learning_rate": run.course.learning_rate, "chosen_rate": run.chosen and asdict(run.chosen),
            "before": learned.first.accuracy, "accuracy": learned.last.accuracy,
            "epochs": list(map(asdict, learned.record)), "warnings": learned.warnings,
            "files": list(map(str, self.files[:-1])), "report": str(self.files[-1]),
            "loss": run.options.loss, "error_before": learned.first.error, "error": learned.last.error,
            "choice": run.choice and asdict(run.choice),
        }  # fmt: skip

    def __str__(self) -> str:
        run, learned = self.run, self.run.learned
        labels = f"{len(run.data.classes)} classes" if run.data.classes else f"loss {run.options.loss}"
        data = f"{labels}, {len(run.data.train):,} samples to learn from, {len(run.data.test):,} to test"
        lines = [f"{learned.name} with {self.scheme} on {run.program.target.name}: {data}"]
        if run.chosen is not None:
            lines.append(run.chosen.verdict)
        lines += [f"before     {learned.first}", str(learned.record[-1])]  # epochs before are shown as they end
        *files, report = map(str, self.files)
        return "\n".join([*lines, f"written to {', '.join(files)}", f"report in {report}"])


@dataclass(frozen=True)
class SumsSummary:
    """A model whose head was made of sums over samples, and the files it was written to."""

    model: str
    classes: tuple[str, ...]
    samples: tuple[int, ...]  # of each class
    digest: str  # of the sums
    files: tuple[str, ...]
    accuracy: float | None = None  # of the test samples, where there are some

    def __str__(self) -> str:
        seen = sum(count > 0 for count in self.samples)
        tested = f", {Tested(self.accuracy)}" if self.accuracy is not None else ""
        classes = "1 class" if seen == 1 else f"{seen} classes"
        made = f"{self.model}: a head of {sum(self.samples):,} samples of {classes}{tested}"
        return f"{made}\nsums {self.digest[:16]}, written to {', '.join(self.files)}"


BARS = "▁▂▃▄▅▆▇█"
POINTS = 40  # of a curve


def curve(values: Sequence[float], points: int = POINTS) -> str:
    """Return numbers as a line of bars, with means of neighbours where there are more numbers than points."""
    count = min(len(values), points)
    cuts = [len(values) * i // max(count, 1) for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    low, high = min(means, default=0.0), max(means, default=0.0)
    return "".join(
        BARS[round((len(BARS) - 1) * (one - low) / (high - low))] if high > low else BARS[0] for one in means
    )


@dataclass(frozen=True)
class BoardTraining:
    """The course of learning on a board."""

    model: str
    port: str
    train_images: int
    test_images: int
    learning_rate: float
    before: Tested
    epochs: tuple[Epoch, ...]
    losses: tuple[float, ...]  # along the way, means of as many steps each
    warnings: tuple[str, ...]
    restarts: int  # that were noticed, and lost nothing
    saved: bool  # on the board, where it outlives a reset
    file: str | None
    statistics: Statistics

    def __str__(self) -> str:
        lines = [
            f"{self.model} on {self.port}: {self.train_images:,} samples to learn from, {self.test_images:,} to test",
            f"before     {self.before}",
            str(self.epochs[-1]),  # those before are shown as they end
            f"loss       {curve(self.losses)}",
            f"board      {self.statistics}",
        ]
        if self.restarts:
            lines.append(f"restarts   {self.restarts}, each brought back to where it was")
        lines.append("saved on the board" if self.saved else "not saved on the board: it has nowhere to keep it")
        return "\n".join([*lines, *([f"written to {self.file}"] if self.file else [])])


@dataclass(frozen=True)
class BoardState:
    """A board's learned state, and the file it was moved to or from."""

    port: str
    fingerprint: str
    state_bytes: int
    what: str
    file: str | None

    def __str__(self) -> str:
        place = self.file or "the board's own memory"
        return f"{self.port}: {self.state_bytes:,} bytes that program {self.fingerprint} learned, {self.what} {place}"


@dataclass(frozen=True)
class BoardWatched:
    """The counts of a board while it was watched."""

    port: str
    fingerprint: str
    restarts: int
    losses: tuple[float, ...]
    statistics: Statistics

    def __str__(self) -> str:
        drawn = f"\nmean loss  {curve(self.losses)}" if self.losses else ""
        return f"{self.port} runs program {self.fingerprint}, {self.restarts} restarts seen\n{self.statistics}{drawn}"


@dataclass(frozen=True)
class BoardReplayed:
    """The result of learning from examples that a board had kept."""

    port: str
    fingerprint: str
    learning_rate: float
    losses: tuple[float, ...]
    saved: bool

    def __str__(self) -> str:
        mean = sum(self.losses) / len(self.losses)
        kept = "saved on the board" if self.saved else "not saved on the board"
        return (
            f"{self.port}: program {self.fingerprint} learned from {len(self.losses):,} examples that it had kept, "
            f"mean loss {mean:.4f}\nloss       {curve(self.losses)}\n{kept}"
        )
