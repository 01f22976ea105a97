"""Train the network that ships with this example, on 200 users who wear the device as most do, and write model.smg.

pip install 'smidgen[torch]'
python examples/gesture/make_model.py
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

import smidgen as sm
from smidgen.frontends import export_model

sys.path.append(str(Path(__file__).parents[2]))
from examples.gesture.motions import GESTURES, MOMENTS, draw_gestures, draw_user
from examples.pretraining import pretrain

USERS, EACH, TURNED = 200, 36, 20.0


def layer(inputs: int, outputs: int) -> list[nn.Module]:
    """A depthwise convolution that halves the moments, and one that mixes channels."""
    return [
        nn.Conv1d(inputs, inputs, 5, 2, 2, groups=inputs, bias=False), nn.BatchNorm1d(inputs), nn.ReLU(),
        nn.Conv1d(inputs, outputs, 1, bias=False), nn.BatchNorm1d(outputs), nn.ReLU(),
    ]  # fmt: skip


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(1_000_000)
    users = [draw_gestures(draw_user(rng, TURNED), EACH, rng) for _ in range(USERS)]
    samples = [image for user in users for image in user.images]
    x = torch.tensor(np.stack(samples)).transpose(1, 2)
    y = torch.tensor([label for user in users for label in user.labels])
    network = nn.Sequential(
        nn.Conv1d(3, 16, 5, 2, 2, bias=False), nn.BatchNorm1d(16), nn.ReLU(), *layer(16, 24), *layer(24, 32),
        *layer(32, 48), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(48, len(GESTURES)),
    )  # fmt: skip
    pretrain(network, x, lambda z, batch: nn.functional.cross_entropy(z, y[batch]), epochs=12)
    graph = sm.from_torch(network, torch.zeros(1, 3, MOMENTS))
    found = sm.quantize(graph, samples[::20])
    print(found)
    export_model(replace(found.graph, name="gestures", classes=GESTURES), Path(__file__).parent / "model.smg")


if __name__ == "__main__":
    main()
