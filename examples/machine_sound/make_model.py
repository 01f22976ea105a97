"""Train the autoencoder that ships with this example, on 300 machines in 300 rooms, and write model.smg.

pip install 'smidgen[torch]'
python examples/machine_sound/make_model.py
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn

import smidgen as sm
from smidgen.frontends import export_model

sys.path.append(str(Path(__file__).parents[2]))
from examples.machine_sound.machines import FRONT_END, SIZE, draw_machine, record
from examples.pretraining import features, pretrain

MACHINES, EACH = 300, 20
SIZES = (SIZE, 64, 64, 12, 64, 64)  # numbers between the layers, on the way in and out


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(1_000_000)
    sounds = [record(machine, rng) for machine in (draw_machine(rng) for _ in range(MACHINES)) for _ in range(EACH)]
    x = features(sounds, FRONT_END, (SIZE,))
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(SIZES):
        layers += [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Linear(SIZES[-1], SIZE))
    pretrain(network, x, lambda z, batch: nn.functional.mse_loss(z, x[batch]), epochs=30)
    graph = sm.from_torch(network, x[:1])
    found = sm.quantize(replace(graph, name="machines", preprocessing=FRONT_END), sounds[::20])
    print(nn.functional.mse_loss(network(x), x).item(), x.var(dim=0).mean().item(), found, sep="\n")
    export_model(found.graph, Path(__file__).parent / "model.smg")


if __name__ == "__main__":
    main()
