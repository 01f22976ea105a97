"""How networks that ship with examples were trained in float32, with PyTorch, which no example needs to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import smidgen as sm
from smidgen.ir import Type
from smidgen.numerics.log_mel import log_mel

BATCH = 64


def features(sounds: Sequence[NDArray[np.int16]], front_end: sm.LogMel, shape: tuple[int, ...]) -> Tensor:
    """What a front end makes of recordings, float32 [recordings, *shape]."""
    return torch.tensor(np.concatenate([log_mel(sound, front_end, Type((1, *shape), "float32")) for sound in sounds]))


def pretrain(
    network: nn.Module, x: Tensor, loss: Callable[[Tensor, Tensor], Tensor], epochs: int, rate: float = 0.003
) -> None:
    """Adam with one cycle of rates; `loss` gets a batch's outputs and which samples of x they are of."""
    steps = epochs * (len(x) // BATCH)
    optimizer = torch.optim.AdamW(network.parameters(), rate, weight_decay=0.01)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    network.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(x))[: len(x) // BATCH * BATCH].chunk(len(x) // BATCH):
            optimizer.zero_grad()
            loss(network(x[batch]), batch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            cycle.step()
    network.eval()
