"""Train the network that ships with this example, on twelve other words by 150 voices, and write model.smg.

pip install 'smidgen[torch]'
python examples/spoken_words/make_model.py
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
from examples.pretraining import features, pretrain
from examples.spoken_words.speaking import FRONT_END, KNOWN, SHAPE, speak

VOICES, EACH, WIDTH = 150, 2, 32


def layer() -> list[nn.Module]:
    """A depthwise-separable convolution, as in DS-CNN."""
    return [
        nn.Conv2d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU(),
        nn.Conv2d(WIDTH, WIDTH, 1, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU(),
    ]  # fmt: skip


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    samples = speak(KNOWN, VOICES, EACH, np.random.default_rng(1_000_000))
    x = features(samples.images, FRONT_END, SHAPE).permute(0, 3, 1, 2)
    y = torch.tensor(samples.labels)
    network = nn.Sequential(
        nn.Conv2d(1, WIDTH, (10, 4), 2, (5, 1), bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU(),
        *layer(), *layer(), *layer(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTH, len(KNOWN)),
    )  # fmt: skip
    pretrain(network, x, lambda z, batch: nn.functional.cross_entropy(z, y[batch]), epochs=12)
    graph = sm.from_torch(network, torch.zeros(1, 1, *SHAPE[:2]))
    found = sm.quantize(replace(graph, name="words", preprocessing=FRONT_END), samples.images[::20])
    print(found)
    export_model(replace(found.graph, classes=KNOWN), Path(__file__).parent / "model.smg")


if __name__ == "__main__":
    main()
