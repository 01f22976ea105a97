"""Steps one after another over the images of a chunk; on a GPU one step is recorded as a CUDA graph and played back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


class Stepping(Protocol):
    """What can be stepped: all tensors it changes lie where they are."""

    place: torch.device
    recordable: bool  # as a CUDA graph

    def step(self, shared: Sequence[Tensor], label: Tensor, rates: Tensor) -> Tensor:
        """One step on one image; the loss of each device."""

    def mutable(self) -> list[Tensor]:
        """Every tensor that a step changes."""


class Loop:
    """A chunk of images after another; each is copied to where the recorded step reads it."""

    def __init__(self, simulation: Stepping) -> None:
        self.simulation = simulation
        self.recorded: torch.cuda.CUDAGraph | None = None
        self.buffers: tuple[list[Tensor], Tensor, Tensor, Tensor, Tensor] | None = None

    def run(self, shared: Sequence[Tensor], labels: Tensor, rates: Tensor) -> Tensor:
        if not self.simulation.recordable:
            losses = [
                self.simulation.step([t[i : i + 1] for t in shared], labels[i : i + 1], rates[i].unsqueeze(1))
                for i in range(len(labels))
            ]
            return torch.stack(losses)
        return self._replayed(shared, labels, rates)

    def _replayed(self, shared: Sequence[Tensor], labels: Tensor, rates: Tensor) -> Tensor:
        count = len(labels)
        if self.buffers is None or len(self.buffers[1]) < count:
            self._record(shared, labels, rates)
        assert self.buffers is not None
        assert self.recorded is not None
        kept, label, rate, losses, cursor = self.buffers
        for to, tensor in zip(kept, shared, strict=True):
            to[:count].copy_(tensor)
        label[:count].copy_(labels)
        rate[:count].copy_(rates)
        cursor.zero_()
        for _ in range(count):
            self.recorded.replay()
        return losses[:count].clone()

    def _record(self, shared: Sequence[Tensor], labels: Tensor, rates: Tensor) -> None:
        """Warm up on copies of the state, put it back, and record."""
        sim, device = self.simulation, self.simulation.place
        kept = [t.clone() for t in shared]
        losses = torch.zeros_like(rates)
        self.buffers = kept, labels.clone(), rates.clone(), losses, torch.zeros(1, dtype=torch.int64, device=device)
        before = [t.clone() for t in sim.mutable()]
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._one()
        torch.cuda.current_stream().wait_stream(stream)
        for tensor, was in zip(sim.mutable(), before, strict=True):
            tensor.copy_(was)
        self.recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.recorded):
            self._one()

    def _one(self) -> None:
        assert self.buffers is not None
        kept, label, rate, losses, cursor = self.buffers
        at = cursor.clamp(max=len(label) - 1)
        shared = [t.index_select(0, at) for t in kept]
        loss = self.simulation.step(shared, label.index_select(0, at), rate.index_select(0, at).reshape(-1, 1))
        losses.index_copy_(0, at, loss.unsqueeze(0))
        cursor.add_(1)
