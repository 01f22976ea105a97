"""What is measured, described so that two tables that need the same run share it; and what came of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from smidgen.ops.rules import Momentum, Sgd, UpdateRule

Engine = Literal["device", "int8", "fp32"]
Optimizer = Literal["sgd", "momentum", "adam", "lars"]
ChannelRule = Literal["largest", "smallest", "random", "gradient", "rotating"]
BATCH = 256  # to which the paper's learning rates refer
MOMENTUM = 0.9


@dataclass(frozen=True)
class Run:
    """One network learning one data set.

    `engine` is the arithmetic: the device's own; "int8", the int8 graph with fp32 copies of what learns and fp32
    gradients, as the paper simulates; "fp32", the real-valued network. `rate` is that of a batch of 256, as the paper
    gives it; Adam's is its own. `channels` says which input channels learn where a scheme trains a share of them:
    those of the largest, smallest or random norm, of the largest squared gradient, or others each epoch.
    """

    network: str
    data: str
    scheme: str
    engine: Engine
    rate: float
    epochs: int
    optimizer: Optimizer = "sgd"
    batch: int = 1
    qas: bool = True
    bits: int = 12  # of weights, on the device or where they are stored as there
    head: Literal["float32", "int8"] = "float32"
    accumulate: int = 1  # samples
    channels: ChannelRule = "largest"
    warmup: float = 0.0  # epochs
    seed: int = 0  # of the head's first weights, and on the device of rounding
    order: int = 0  # the course's seed: the order of the images, and their crops
    limited: bool = False  # fp32 copies stay within ±127, as the device's weights do
    stored: bool = False  # fp32 copies are kept in `bits` bits and read in 8, as the device's weights are
    limit: int | None = None  # images to learn from and to test with; None: all

    @property
    def kind(self) -> Run:
        """What a table's cell asks for, whatever the rate, the seed and the length of the course."""
        return replace(self, rate=0.0, epochs=0, warmup=0.0, seed=0, order=0, limit=None)

    @property
    def course(self) -> tuple[float, ...]:
        """How long the course is and which images it shows; -1 stands for all images."""
        return (self.epochs, self.warmup, self.order, -1 if self.limit is None else self.limit)

    @property
    def step_rate(self) -> float:
        """The learning rate of one sample."""
        return self.rate / BATCH

    @property
    def rule(self) -> UpdateRule:
        """How the device moves a weight."""
        if self.optimizer == "momentum":
            return Momentum(MOMENTUM, accumulate=self.accumulate)
        return Sgd(accumulate=self.accumulate)

    def steps(self, images: int) -> int:
        """Steps of the course over so many images."""
        return self.epochs * math.ceil(images / self.batch)


@dataclass(frozen=True)
class Outcome:
    """What a run gave: top-1 after the last epoch, the mean loss of each epoch, and on how much data."""

    accuracy: float
    losses: tuple[float, ...]
    saturated: float | None  # the share of trained int8 weights at ±127; None without limits, or where it was not kept
    train: int
    test: int
    classes: int
    digest: str  # of the data
    weights: str  # a fingerprint of the network before learning
    seconds: float  # of the fleet it was part of
    fleet: int  # runs in it
    device: str


@dataclass(frozen=True)
class Build:
    """A program for the chip, 10 classes; `counted`: run on the emulated board, which takes a minute."""

    network: str
    scheme: str
    bits: int = 8
    counted: bool = False


@dataclass(frozen=True)
class Footprint:
    """Bytes of a training step: the paper's analytic extra memory, and SRAM as planned with the image by rows.

    Where the backward pass reads the image again it is held whole. Of a program that was run on the emulated board
    there are the instructions of a step, too, and static SRAM with the stack.
    """

    analytic: int
    planned: int
    streamed: bool
    forward: int | None = None  # instructions
    step: int | None = None
    sram: int | None = None
    flash: int | None = None


Found = Mapping[Run, Outcome]
Built = Mapping[Build, Footprint]
