"""What each architecture learns from pictures: classes where it tells classes, what is odd where it copies its input.

Networks that take images see them. One that takes a signal, 128 steps of three axes, reads a picture of 16 by 8 row by
row, its colours as the axes; the dense autoencoder reads 20 by 32 grays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from experiments.architectures import ARCHITECTURES
from smidgen.ir import Array
from smidgen.ir.preprocessing import Preprocessing

NETWORKS = tuple(ARCHITECTURES)
VEHICLES = (0, 1, 8, 9)  # of CIFAR-10's classes: airplane, automobile, ship, truck; the others are animals
SKY_AND_SEA = (0, 8)  # airplanes and ships: what the autoencoder knows
PASSING = 0.9  # share of what it learned from that it takes for usual
COLOURS = Preprocessing((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616), fit="stretch")
GRAYS = Preprocessing((0.48,), (0.25,), "gray", fit="stretch")
RATE = 1e-2  # of learning
SLOW = {"squeezenet": 1e-3, "mobilenet-v3-small": 2e-3}  # the one has no batch norms, the other's gates run away
PICTURES = {"signal-net": (16, 8, 3), "autoencoder": (20, 32, 1)}  # of those that take no images

Decide = Callable[[Array, Array], Array]  # inputs and outputs, samples first, to a decision for each sample


class Goal(Protocol):
    """What is learned, and what a network's output decides."""

    def learned(self, labels: Array) -> Array:
        """Which pictures are learned from."""
        ...

    def answers(self, labels: Array) -> Array:
        """The right decision for each picture."""
        ...

    def loss(self, x: Tensor, y: Tensor, answers: Tensor) -> Tensor:
        """What training makes small, of a batch."""
        ...

    def rule(self, module: nn.Module, x: Tensor) -> Decide:
        """How a network, trained on these inputs, decides by its output."""
        ...

    def misfit(self, x: Array, y: Array) -> float | None:
        """The mean squared error of what the output copies, as a share of its variance; None where it copies none."""
        ...


@dataclass(frozen=True)
class Classes:
    """Tell the ten classes apart, or animals from vehicles."""

    coarse: bool

    def learned(self, labels: Array) -> Array:
        return np.ones(len(labels), bool)

    def answers(self, labels: Array) -> Array:
        return np.isin(labels, VEHICLES).astype(int) if self.coarse else labels

    def loss(self, x: Tensor, y: Tensor, answers: Tensor) -> Tensor:
        return nn.functional.cross_entropy(y, answers)

    def rule(self, module: nn.Module, x: Tensor) -> Decide:
        return lambda x, y: y.reshape(len(y), -1).argmax(axis=1)

    def misfit(self, x: Array, y: Array) -> float | None:
        return None


@dataclass(frozen=True)
class Oddity:
    """Copy pictures of some classes; odd is what is copied worse than all but a tenth of those learned from."""

    usual: tuple[int, ...]

    def learned(self, labels: Array) -> Array:
        return np.isin(labels, self.usual)

    def answers(self, labels: Array) -> Array:
        return (~np.isin(labels, self.usual)).astype(int)

    def loss(self, x: Tensor, y: Tensor, answers: Tensor) -> Tensor:
        return nn.functional.mse_loss(y, x)

    def rule(self, module: nn.Module, x: Tensor) -> Decide:
        with torch.no_grad():
            limit = np.quantile(_errors(x.numpy(), module(x).numpy()), PASSING)
        return lambda x, y: (_errors(x, y) > limit).astype(int)

    def misfit(self, x: Array, y: Array) -> float | None:
        return float(_errors(x, y).mean() / x.var())


def _errors(x: Array, y: Array) -> Array:
    """The mean squared error of each sample."""
    errors: Array = np.square(x.reshape(len(x), -1) - y.reshape(len(y), -1)).mean(axis=1)
    return errors


@dataclass(frozen=True)
class Task:
    """What a network sees of a picture, as rows, columns and colours, and what it learns from that."""

    picture: tuple[int, int, int]
    shape: tuple[int, ...]  # of the module's input, which the picture fills
    preprocessing: Preprocessing
    goal: Goal
    rate: float


def task_of(name: str, coarse: bool = False) -> Task:
    """An architecture's task."""
    shape = ARCHITECTURES[name].shape
    picture = PICTURES[name] if name in PICTURES else (shape[2], shape[3], shape[1])
    goal: Goal = Oddity(SKY_AND_SEA) if name == "autoencoder" else Classes(coarse)
    return Task(picture, shape, COLOURS if picture[2] == 3 else GRAYS, goal, SLOW.get(name, RATE))


def build(name: str, width: float, seed: int, classes: int) -> nn.Module:
    """A network before training, at the width given or its usual one, for so many classes."""
    torch.manual_seed(seed)
    architecture = ARCHITECTURES[name]
    module = architecture.build(width or architecture.small, classes).eval()
    module(torch.zeros(architecture.shape))  # gives lazy layers their sizes
    parts = list(module.modules())
    if not any(isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d) for part in parts):
        for part in parts:
            if isinstance(part, nn.Conv2d):  # PyTorch's own start lets signals fade where no norm lifts them
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
    return module
