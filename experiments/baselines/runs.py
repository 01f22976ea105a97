"""Runs of one precision computed at once: their weights, a step of all of them, and their predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.baselines.copies import Tail, between, units
from experiments.baselines.optimizers import Optimizer, OptimizerName
from smidgen.errors import InputError
from smidgen.ir import Graph, Value

Precision = Literal["fp32", "int8"]
LIMIT = 127.0  # of a trained int8 weight
WARM_UPS = 3  # steps before a CUDA graph is recorded, as PyTorch asks for


@dataclass(frozen=True)
class Baseline:
    """One run: its arithmetic, optimizer and rate, and the seed of rounding where weights are stored in bits."""

    precision: Precision
    optimizer: OptimizerName
    learning_rate: float  # of a batch of 256
    qas: bool = True  # of int8 alone: fp32 weights need no scaling
    seed: int = 0
    weight_decay: float = 0.0
    trust: float = 0.001  # LARS's coefficient
    limited: bool = False  # of int8 alone: weights stay within ±127, as the device's do
    stored_bits: int | None = None  # of int8 alone: weights are kept in so many bits and read in 8, as the device's are

    def check(self) -> None:
        for what, name, known in (
            ("precision", self.precision, get_args(Precision)),
            ("optimizer", self.optimizer, get_args(OptimizerName)),
        ):
            if name not in known:
                raise InputError(f"there is no {what} {name!r}; known are {', '.join(known)}")
        for what, number in (
            ("a learning rate", self.learning_rate),
            ("a weight decay", self.weight_decay),
            ("a trust coefficient", self.trust),
        ):
            if not (math.isfinite(number) and number >= 0):
                raise InputError(f"{what} of {number} cannot be used; give a number from 0 up")
        if self.seed < 0:
            raise InputError(f"a seed of {self.seed} cannot be used; give a number from 0 up")
        if self.stored_bits is not None and not 8 <= self.stored_bits <= 16:
            raise InputError(f"weights cannot be stored in {self.stored_bits} bits; give 8 to 16")


class Runs:
    """The weights of some runs, [runs, …] each, and the step that moves them.

    `weights` are in quantized units where activations are `rounded`, in real units otherwise. On a CUDA device a step
    is recorded once and replayed, from `pool`'s memory.
    """

    def __init__(
        self,
        forward: Graph,
        settings: Sequence[Baseline],
        batch: int,
        rounded: bool,
        device: torch.device,
        pool: Any = None,
    ) -> None:
        self._tail = Tail(forward, len(settings), rounded=rounded, device=device)
        self._rounded, self._values, self._pool = rounded, tuple(forward.state), pool
        found = units(forward)
        self._units = [found[v].to(device, torch.float32) for v in self._values]
        self.weights = tuple(self._first(forward, settings, device))
        scaled = _numbers([float(run.qas and rounded) for run in settings], device)
        self._factors = [_factors(unit, scaled, w) for unit, w in zip(self._units, self.weights, strict=True)]
        self._rates = _numbers([run.learning_rate for run in settings], device)
        self._optimizers = tuple(self._optimizer_slices(settings, device))
        self._limits = self._weight_limits(settings, device)
        self._steps = self._stored_steps(settings, device)
        self._random = torch.Generator(device).manual_seed(sum(run.seed for run in settings))
        self._sums = torch.zeros(len(settings), dtype=torch.float64, device=device)
        shapes = (v.type for v in between(forward))
        self._found = tuple(
            torch.zeros(
                (batch, *type.shape[1:]),
                dtype=torch.int8 if rounded and type.dtype == "int8" else torch.float32,
                device=device,
            )
            for type in shapes
        )
        self._labels = torch.zeros(batch, dtype=torch.int64, device=device)
        self._shares = torch.zeros(batch, device=device)
        self._clock = torch.ones(3, device=device)
        self._take = self._recorded() if device.type == "cuda" and self._tail.capturable else self._step

    def step(self, found: tuple[Tensor, ...], labels: Tensor, shares: Tensor, clock: Tensor) -> None:
        """Learn a batch: what the front found of it, each sample's share of the mean; rate and Adam's corrections."""
        buffers = (*self._found, self._labels, self._shares, self._clock)
        for buffer, x in zip(buffers, (*found, labels, shares, clock), strict=True):
            buffer.copy_(x)
        self._take()

    def losses(self, count: int) -> Tensor:
        """The mean loss of each run over the `count` samples since the last call."""
        mean = self._sums / count
        self._sums.zero_()
        return mean

    def correct(self, found: tuple[Tensor, ...], labels: Tensor) -> Tensor:
        """How many of a batch each run predicts; a run that has diverged predicts nothing."""
        with torch.no_grad():
            best, classes = self._logits(found).max(dim=2)
            return ((classes == labels) & best.isfinite()).sum(dim=1)

    def _first(self, forward: Graph, settings: Sequence[Baseline], device: torch.device) -> list[Tensor]:
        """Every run's first weights."""
        made: list[Tensor] = []
        for v, unit in zip(self._values, self._units, strict=True):
            one = torch.tensor(forward.state[v], dtype=torch.float32, device=device)
            first = (one if self._rounded else one * unit).expand(len(settings), *one.shape).clone()
            made.append(first.requires_grad_())
        return made

    def _optimizer_slices(self, settings: Sequence[Baseline], device: torch.device) -> list[tuple[slice, Optimizer]]:
        """The optimizers of neighbours that have the same."""
        made: list[tuple[slice, Optimizer]] = []
        start = 0
        for name, some in groupby(settings, key=lambda run: run.optimizer):
            runs = list(some)
            part = slice(start, start + len(runs))
            decay = _numbers([run.weight_decay for run in runs], device)
            trust = _numbers([run.trust for run in runs], device)
            made.append((part, Optimizer(name, [w.detach()[part] for w in self.weights], decay, trust)))
            start += len(runs)
        return made

    def _weight_limits(self, settings: Sequence[Baseline], device: torch.device) -> list[tuple[Tensor, Tensor]]:
        """The int8 weights and how far each run's may go; none where no run is limited."""
        if not self._rounded or not any(run.limited for run in settings):
            return []
        most = _numbers([LIMIT if run.limited else math.inf for run in settings], device)
        return [(w.detach(), _along(most, w)) for _, w in self._int8_weights()]

    def _stored_steps(self, settings: Sequence[Baseline], device: torch.device) -> dict[Value, Tensor]:
        """By int8 weights the smallest step each run can store, 0 for any; none where no run's are stored in bits."""
        if not self._rounded or all(run.stored_bits is None for run in settings):
            return {}
        steps = [0.0 if run.stored_bits is None else 2.0 ** (8 - run.stored_bits) for run in settings]
        return {v: _along(_numbers(steps, device), w) for v, w in self._int8_weights()}

    def _int8_weights(self) -> list[tuple[Value, Tensor]]:
        return [(v, w) for v, w in zip(self._values, self.weights, strict=True) if v.type.dtype == "int8"]

    def _read(self, v: Value, w: Tensor, unit: Tensor) -> Tensor:
        """Weights as the forward pass has them; the gradient passes what is rounded as if it were not."""
        if not self._rounded:
            return w / unit
        if v not in self._steps:
            return w
        return w + torch.where(self._steps[v] > 0, (w + 0.5).floor() - w, 0.0).detach()

    def _store(self) -> None:
        """Round stored weights at random to one of the two steps beside them."""
        for v, w in self._int8_weights():
            step = self._steps[v]
            kept, drawn = w.detach(), torch.rand(w.shape, device=w.device, generator=self._random)
            rounded = (kept / step.clamp(min=1e-9) + drawn).floor() * step
            kept.copy_(torch.where(step > 0, rounded, kept))

    def _logits(self, found: tuple[Tensor, ...]) -> Tensor:
        parts = zip(self._values, self.weights, self._units, strict=True)
        return self._tail.logits(found, {v: self._read(v, w, unit) for v, w, unit in parts})

    def _step(self) -> None:
        logits = self._logits(self._found)
        runs, batch, _ = logits.shape
        each = F.cross_entropy(logits.flatten(0, 1), self._labels.repeat(runs), reduction="none").reshape(runs, batch)
        gradients = torch.autograd.grad((each * self._shares).sum(), self.weights)
        with torch.no_grad():
            self._sums += (each.double() * (self._shares > 0)).sum(dim=1)
            scaled = [g * factor for g, factor in zip(gradients, self._factors, strict=True)]
            for part, optimizer in self._optimizers:
                rates = self._rates[part] * self._clock[0]
                optimizer.step([g[part] for g in scaled], rates, self._clock[1:])
            if self._steps:
                self._store()
            for w, most in self._limits:
                w.copy_(torch.minimum(torch.maximum(w, -most), most))

    def _recorded(self) -> Callable[[], None]:
        """The step as a CUDA graph; nothing has moved when it is recorded."""
        moved = [w.detach() for w in self.weights] + [self._sums]
        moved += [kept for _, optimizer in self._optimizers for tensors in optimizer.kept for kept in tensors]
        before = [tensor.clone() for tensor in moved]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                self._step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._random)  # each replay then draws anew
        with torch.cuda.graph(graph, pool=self._pool):
            self._step()
        for tensor, first in zip(moved, before, strict=True):
            tensor.copy_(first)
        return graph.replay


def _numbers(numbers: Sequence[float], device: torch.device) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32, device=device)


def _along(numbers: Tensor, w: Tensor) -> Tensor:
    """A number a run, shaped to meet the run's weights."""
    return numbers.reshape(-1, *(1 for _ in w.shape[1:]))


def _factors(unit: Tensor, scaled: Tensor, w: Tensor) -> Tensor:
    """QAS's, 1 / unit², in the runs that are scaled, 1 in the others."""
    return torch.where(_along(scaled, w) > 0, unit**-2.0, 1.0)
