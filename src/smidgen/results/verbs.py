"""What the commands print: result objects that print themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from smidgen.ir import Array, Value
from smidgen.ir.log_mel import LogMel
from smidgen.ir.preprocessing import Preprocessing
from smidgen.learning import Epoch, Tested
from smidgen.memory import PeakParts
from smidgen.ops.loss import Loss
from smidgen.pipeline import Replay
from smidgen.quantization import PixelChoice, Report
from smidgen.selection.rates import ChosenRate

TOP = 5  # elements shown


@dataclass(frozen=True)
class TopElement:
    """An element and its value, as the network holds it and as the number that stands for."""

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
    """An output tensor with its largest elements."""
    flat, q = array.reshape(-1), value.type.q
    best = np.argsort(-flat.astype(np.float64), kind="stable")[:TOP]
    scale, zero = (q.one, q.zero) if q is not None and q.axis is None else (1.0, 0)
    top = tuple(_ranked(int(index), flat[index].item(), scale, zero) for index in best)
    return OutputSummary(value.name, value.type.dtype, value.type.shape, file, top)


def _ranked(index: int, value: float, scale: float, zero: int) -> TopElement:
    if not math.isfinite(value):
        return TopElement(index, None, None)
    return TopElement(index, value, scale * (value - zero))


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
    notes: tuple[str, ...] = ()  # on what could not be taken over as it was

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
    report: Report

    def __str__(self) -> str:
        images = f"\n{self.pixels}\nimages: {self.preprocessing}" if self.pixels else ""
        if isinstance(self.preprocessing, LogMel):
            images = f"\nsound: {self.preprocessing}"
        return f"{self.report}{images}\nwritten to {self.file} ({self.bytes:,} bytes)"


@dataclass(frozen=True)
class CompiledProject:
    """A project written for a target."""

    model: str
    target: str
    folder: str
    files: tuple[str, ...]
    peak_bytes: int
    lower_bound_bytes: int
    state_bytes: int
    constant_bytes: int
    at_peak: PeakParts
    picture: str | None  # the file its memory is drawn in
    replay: Replay | None = None

    def __str__(self) -> str:
        learns = f"{self.state_bytes:,} for what outlives a run, " if self.state_bytes else ""
        return (
            f"{self.model} for {self.target}: {len(self.files)} files → {self.folder}\n"
            f"arena {self.peak_bytes:,} bytes of SRAM (at least {self.lower_bound_bytes:,}), "
            f"{learns}constants {self.constant_bytes:,} bytes of flash\n"
            f"at the peak: {self.at_peak}"
            + (f"\n{self.replay}" if self.replay else "")
            + (f"\nmemory drawn in {self.picture}" if self.picture else "")
        )


@dataclass(frozen=True)
class TrainingSummary:
    """A model that learned, and the files it was written to."""

    model: str
    scheme: str
    target: str
    classes: tuple[str, ...]
    train_images: int
    test_images: int
    learning_rate: float  # of one sample
    chosen_rate: ChosenRate | None  # None where it was given
    before: float | None  # None where the loss has no right answers
    accuracy: float | None
    epochs: tuple[Epoch, ...]
    warnings: tuple[str, ...]
    files: tuple[str, ...]
    report: str
    loss: Loss = "softmax"
    error_before: float | None = None  # the mean loss of a test, where that is not of top-1
    error: float | None = None

    def __str__(self) -> str:
        told = f"{len(self.classes)} classes" if self.classes else f"loss {self.loss}"
        data = f"{told}, {self.train_images:,} samples to learn from, {self.test_images:,} to test"
        lines = [f"{self.model} with {self.scheme} on {self.target}: {data}"]
        if self.chosen_rate is not None:
            lines.append(self.chosen_rate.verdict)
        lines.append(f"before     {Tested(self.before, self.error_before)}")
        written = (f"written to {', '.join(self.files)}", f"report in {self.report}")
        return "\n".join([*lines, *map(str, self.epochs), *written])
