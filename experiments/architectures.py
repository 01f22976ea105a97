"""The architectures people bring, as plain PyTorch modules, at any width and resolution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

Activation = Callable[[], nn.Module]
Row = tuple[int, int, int, int, int]  # of inverted bottlenecks: expansion, channels, repetitions, stride, kernel
CLASSES = 10  # that a drawn network tells apart
KEYWORDS = 12  # what DS-CNN has outputs for, at least


def wide(channels: float, width: float = 1.0, step: int = 8) -> int:
    """Channels scaled by a width, in steps."""
    scaled = channels * width
    rounded = max(step, int(scaled + step / 2) // step * step)
    return rounded + step if rounded < 0.9 * scaled else rounded


def conv(
    c: int, n: int, k: int = 1, stride: int = 1, groups: int = 1, activation: Activation | None = nn.ReLU6
) -> nn.Sequential:
    """Convolution, batch normalization and, mostly, an activation."""
    parts: list[nn.Module] = [nn.Conv2d(c, n, k, stride, k // 2, groups=groups, bias=False), nn.BatchNorm2d(n)]
    return nn.Sequential(*parts, *([activation()] if activation else []))


class Squeeze(nn.Module):
    """Squeeze and excite: each channel gated by what all of them hold."""

    def __init__(self, c: int, inner: int) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(c, inner, 1), nn.Conv2d(inner, c, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.expand(torch.relu(self.reduce(nn.functional.adaptive_avg_pool2d(x, 1))))
        return x * nn.functional.hardsigmoid(gate)


class Inverted(nn.Module):
    """Expand, depthwise, project; the input added where the shapes allow it."""

    def __init__(
        self, c: int, n: int, k: int, stride: int, inner: int, activation: Activation = nn.ReLU6, squeeze: bool = False
    ) -> None:
        super().__init__()
        parts: list[nn.Module] = [conv(c, inner, activation=activation)] if inner != c else []
        parts.append(conv(inner, inner, k, stride, inner, activation))
        if squeeze:
            parts.append(Squeeze(inner, wide(inner / 4)))
        self.body = nn.Sequential(*parts, conv(inner, n, activation=None))
        self.residual = stride == 1 and c == n

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x)
        return x + y if self.residual else y


class Classifier(nn.Module):
    """Features, a mean over the map, a classifier."""

    def __init__(self, features: nn.Module, c: int, classes: int) -> None:
        super().__init__()
        self.features, self.classify = features, nn.Linear(c, classes)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.classify(nn.functional.adaptive_avg_pool2d(self.features(x), 1).flatten(1))
        return y


def mobilenet_v1(width: float = 1.0, classes: int = 1000) -> nn.Module:
    c = wide(32, width)
    layers: list[nn.Module] = [conv(3, c, 3, 2, activation=nn.ReLU)]
    for n, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)):
        layers += [conv(c, c, 3, stride, c, nn.ReLU), conv(c, wide(n, width), activation=nn.ReLU)]
        c = wide(n, width)
    return Classifier(nn.Sequential(*layers), c, classes)


def inverted_stack(c: int, rows: Sequence[Row], width: float) -> tuple[list[nn.Module], int]:
    """All blocks of the rows, and the channels of the last."""
    layers: list[nn.Module] = []
    for t, n, repeats, stride, k in rows:
        for i in range(repeats):
            layers.append(Inverted(c, wide(n, width), k, stride if i == 0 else 1, c * t))
            c = wide(n, width)
    return layers, c


def inverted_network(stem: int, rows: Sequence[Row], last: int, width: float, classes: int) -> nn.Module:
    """A convolution that halves the image, rows of inverted bottlenecks, a last convolution, a classifier."""
    blocks, c = inverted_stack(stem, rows, width)
    return Classifier(nn.Sequential(conv(3, stem, 3, 2), *blocks, conv(c, last)), last, classes)


def mobilenet_v2(width: float = 1.0, classes: int = 1000) -> nn.Module:
    rows = (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3), (6, 96, 3, 1, 3), (6, 160, 3, 2, 3),
        (6, 320, 1, 1, 3),
    )  # fmt: skip
    return inverted_network(wide(32, width), rows, wide(1280, max(width, 1.0)), width, classes)


def mobilenet_v3_small(width: float = 1.0, classes: int = 1000) -> nn.Module:
    rows = (
        (3, 16, 16, True, nn.ReLU, 2), (3, 72, 24, False, nn.ReLU, 2), (3, 88, 24, False, nn.ReLU, 1),
        (5, 96, 40, True, nn.Hardswish, 2), (5, 240, 40, True, nn.Hardswish, 1), (5, 240, 40, True, nn.Hardswish, 1),
        (5, 120, 48, True, nn.Hardswish, 1), (5, 144, 48, True, nn.Hardswish, 1), (5, 288, 96, True, nn.Hardswish, 2),
        (5, 576, 96, True, nn.Hardswish, 1), (5, 576, 96, True, nn.Hardswish, 1),
    )  # fmt: skip
    c = wide(16, width)
    layers: list[nn.Module] = [conv(3, c, 3, 2, activation=nn.Hardswish)]
    for k, inner, n, squeeze, activation, stride in rows:
        layers.append(Inverted(c, wide(n, width), k, stride, wide(inner, width), activation, squeeze))
        c = wide(n, width)
    last, hidden = wide(576, width), wide(1024, width)
    layers.append(conv(c, last, activation=nn.Hardswish))
    head = nn.Sequential(nn.Linear(last, hidden), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(hidden, classes))
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(*layers, pool, head)


def efficientnet_lite0(width: float = 1.0, classes: int = 1000) -> nn.Module:
    rows = (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    )  # fmt: skip
    return inverted_network(wide(32, width), rows, wide(1280, width), width, classes)


def mcunet(width: float = 1.0, classes: int = 1000) -> nn.Module:
    """A searched network: kernels and expansions that differ from block to block."""
    rows = (
        (1, 8, 1, 1, 3), (3, 16, 1, 2, 7), (4, 16, 1, 1, 3), (5, 24, 1, 2, 5), (4, 24, 1, 1, 7), (5, 40, 1, 2, 7),
        (4, 40, 1, 1, 5), (5, 48, 1, 1, 3), (6, 96, 1, 2, 7), (5, 96, 1, 1, 3), (6, 160, 1, 1, 5),
    )  # fmt: skip
    blocks, c = inverted_stack(16, rows, width)
    return Classifier(nn.Sequential(conv(3, 16, 3, 2), *blocks), c, classes)


def proxylessnas(width: float = 0.3, classes: int = 1000) -> nn.Module:
    rows = (
        (1, 24, 1, 1, 3), (3, 32, 1, 2, 5), (3, 32, 1, 1, 3), (3, 56, 1, 2, 7), (3, 56, 2, 1, 3), (6, 104, 1, 2, 7),
        (3, 104, 2, 1, 5), (6, 128, 1, 1, 5), (3, 128, 1, 1, 5), (6, 248, 1, 2, 7), (6, 248, 1, 1, 7),
        (6, 416, 1, 1, 7),
    )  # fmt: skip
    return inverted_network(wide(40, width), rows, wide(1664, width), width, classes)


class Basic(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, c: int, n: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(c, n, 3, stride, activation=nn.ReLU), conv(n, n, 3, activation=None))
        self.around = conv(c, n, 1, stride, activation=None) if stride > 1 or c != n else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.around(x))


def resnet8(width: float = 1.0, classes: int = 10) -> nn.Module:
    a, b, c = (wide(n, width) for n in (16, 32, 64))
    blocks = (Basic(a, a, 1), Basic(a, b, 2), Basic(b, c, 2))
    return Classifier(nn.Sequential(conv(3, a, 3, activation=nn.ReLU), *blocks), c, classes)


def resnet18(width: float = 1.0, classes: int = 1000) -> nn.Module:
    c = wide(64, width)
    layers: list[nn.Module] = [conv(3, c, 7, 2, activation=nn.ReLU), nn.MaxPool2d(3, 2, 1)]
    for n, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Basic(c, wide(n, width), stride), Basic(wide(n, width), wide(n, width), 1)]
        c = wide(n, width)
    return Classifier(nn.Sequential(*layers), c, classes)


def ds_cnn(width: float = 1.0, classes: int = KEYWORDS) -> nn.Module:
    """Keywords from 49 frames of 10 coefficients."""
    c = wide(64, width)
    layers: list[nn.Module] = [nn.Conv2d(1, c, (10, 4), (2, 2), (5, 1)), nn.BatchNorm2d(c), nn.ReLU(), nn.Dropout(0.2)]
    for _ in range(4):
        layers += [conv(c, c, 3, 1, c, nn.ReLU), conv(c, c, activation=nn.ReLU)]
    return nn.Sequential(*layers, nn.Dropout(0.4), nn.AvgPool2d((25, 5)), nn.Flatten(), nn.Linear(c, classes))


def autoencoder(width: float = 1.0, inputs: int = 640) -> nn.Module:
    """Sounds of machines: down to eight numbers and back."""
    sizes = [inputs, *[wide(128, width)] * 4, 8, *[wide(128, width)] * 4]
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], inputs))


def signal_net(width: float = 1.0, classes: int = 6) -> nn.Module:
    """Activities from three axes of acceleration."""
    a, b = wide(16, width), wide(32, width)
    return nn.Sequential(
        nn.Conv1d(3, a, 5, 2, 2), nn.BatchNorm1d(a), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(a, a, 5, padding=2, groups=a), nn.Conv1d(a, b, 3, padding=2, dilation=2), nn.LeakyReLU(0.1),
        nn.AvgPool1d(2), nn.Flatten(), nn.LazyLinear(classes),
    )  # fmt: skip


class Fire(nn.Module):
    """Squeeze, then expand by two kernels side by side."""

    def __init__(self, c: int, inner: int, n: int) -> None:
        super().__init__()
        self.squeeze, self.one, self.three = (
            nn.Conv2d(c, inner, 1),
            nn.Conv2d(inner, n, 1),
            nn.Conv2d(inner, n, 3, 1, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.one(y)), torch.relu(self.three(y))], 1)


def squeezenet(width: float = 1.0, classes: int = 1000) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, wide(64, width), 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True)]
    c = wide(64, width)
    for index, (inner, n) in enumerate(
        ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
    ):
        if index in (2, 4):
            layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
        layers.append(Fire(c, wide(inner, width), wide(n, width)))
        c = 2 * wide(n, width)
    return nn.Sequential(
        *layers, nn.Dropout(0.5), nn.Conv2d(c, classes, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )


@dataclass(frozen=True)
class Architecture:
    """A module's constructor, by its width and its classes, and the shape of its input."""

    build: Callable[[float, int], nn.Module]
    shape: tuple[int, ...]
    small: float  # the width at which tests run it


ARCHITECTURES: dict[str, Architecture] = {
    "mobilenet-v1": Architecture(mobilenet_v1, (1, 3, 32, 32), 0.25),
    "mobilenet-v2": Architecture(mobilenet_v2, (1, 3, 32, 32), 0.35),
    "mobilenet-v3-small": Architecture(mobilenet_v3_small, (1, 3, 32, 32), 0.5),
    "efficientnet-lite0": Architecture(efficientnet_lite0, (1, 3, 32, 32), 0.25),
    "mcunet": Architecture(mcunet, (1, 3, 48, 48), 1.0),
    "proxylessnas": Architecture(proxylessnas, (1, 3, 48, 48), 0.3),
    "resnet8": Architecture(resnet8, (1, 3, 32, 32), 1.0),
    "resnet18": Architecture(resnet18, (1, 3, 32, 32), 0.25),
    "ds-cnn": Architecture(lambda w, n: ds_cnn(w, max(n, KEYWORDS)), (1, 1, 49, 10), 0.5),
    "autoencoder": Architecture(lambda w, n: autoencoder(w), (1, 640), 1.0),
    "signal-net": Architecture(signal_net, (1, 3, 128), 1.0),
    "squeezenet": Architecture(squeezenet, (1, 3, 33, 33), 0.25),
}


def draw(name: str, width: float | None = None, seed: int = 0) -> tuple[nn.Module, Tensor]:
    """An architecture in evaluation mode with weights and statistics of a trained one's kind, and an input."""
    torch.manual_seed(seed)
    architecture = ARCHITECTURES[name]
    module = architecture.build(architecture.small if width is None else width, CLASSES)
    x = torch.randn(architecture.shape)
    module.eval()
    with torch.no_grad():
        module(x)  # gives lazy layers their sizes
        for part in module.modules():
            if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
                assert part.running_mean is not None
                assert part.running_var is not None
                part.running_mean.normal_(0, 0.2)
                part.running_var.uniform_(0.5, 2)
                part.weight.uniform_(0.7, 1.4)
                part.bias.normal_(0, 0.2)
    return module, x
