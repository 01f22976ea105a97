"""Classifiers of CIFAR-10 that need no training: random layers, and a head fitted by least squares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from experiments.architectures import Classifier
from smidgen.data import Samples
from smidgen.ir import Array
from smidgen.ir.preprocessing import Preprocessing

CLASSES = 10
RIDGE = 3e-2  # of the features' mean square
SHARPNESS = 8.0  # of the scores, so that probabilities are neither all alike nor all certain


def as_tensor(images: Sequence[Array], stated: Preprocessing) -> Tensor:
    """Pixels as a network sees them, by the formula that `Preprocessing` states, channels first."""
    pixels = np.stack(images).astype(np.float64)
    if stated.order == "bgr":
        pixels = pixels[..., ::-1]
    low, high = stated.range
    numbers = (low + pixels * (high - low) / 255 - np.array(stated.mean)) / np.array(stated.std)
    return torch.from_numpy(np.ascontiguousarray(numbers.transpose(0, 3, 1, 2))).float()


def fit(network: Classifier, samples: Samples, stated: Preprocessing, seed: int = 0) -> Classifier:
    """Batch norms take the statistics of the images in this convention, and the head is fitted to their labels."""
    torch.manual_seed(seed)
    x = as_tensor(samples.images, stated)
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.reset_running_stats()
            part.momentum = None
    with torch.no_grad():
        network.train()(x)
        seen = nn.functional.adaptive_avg_pool2d(network.eval().features(x), 1).flatten(1)
        features = torch.cat([seen, torch.ones(len(x), 1)], dim=1).double()
        wanted = nn.functional.one_hot(torch.tensor(samples.labels), CLASSES).double() - 1 / CLASSES
        square = features.T @ features
        square += RIDGE * square.diagonal().mean() * torch.eye(len(square))
        weights = SHARPNESS * torch.linalg.solve(square, features.T @ wanted).T
        network.classify.weight.copy_(weights[:, :-1])
        network.classify.bias.copy_(weights[:, -1])
    return network


def accuracy(network: nn.Module, samples: Samples, stated: Preprocessing) -> float:
    """PyTorch's own."""
    with torch.no_grad():
        chosen = network(as_tensor(samples.images, stated)).argmax(dim=1)
    return float((chosen == torch.tensor(samples.labels)).double().mean())
