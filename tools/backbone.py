"""The zoo's networks in PyTorch, with batch normalization, and the larger one that teaches them."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from safetensors import safe_open
from torch import Tensor, nn

from smidgen.zoo import find_table
from smidgen.zoo.tables import BlockTable, Stage

MOMENTUM = 0.03  # of batch normalization's averages: batches are large, crops are wild
TEACHER = "teacher"
TEACHER_CHANNELS = (96, 192, 384, 768)


def build(name: str, classes: int) -> TorchNetwork:
    """A network of the zoo, or the one that teaches them, with fresh weights."""
    network = teacher(classes) if name == TEACHER else of_zoo(find_table(name), classes)
    initialize(network)
    return network


def read_network(path: Path, classes: int) -> tuple[TorchNetwork, dict[str, str]]:
    """A trained network in evaluation mode, and what its file says of it."""
    with safe_open(path, framework="pt") as file:
        said = dict(file.metadata())
        network = build(said["name"], classes)
        network.load_state_dict({key: file.get_tensor(key) for key in file.keys()})  # noqa: SIM118
    return network.eval(), said


class TorchNetwork(nn.Module):
    """Stem, blocks, global mean and classifier; layers are named as in the zoo's graphs."""

    def __init__(self, stem: nn.Module, blocks: list[nn.Module], channels: int, classes: int) -> None:
        super().__init__()
        self.stem, self.blocks = stem, nn.Sequential(*blocks)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.blocks(self.stem(x))
        logits: Tensor = self.classifier(features.mean((2, 3)))
        return logits


def of_zoo(table: BlockTable, classes: int) -> TorchNetwork:
    """A network of inverted-residual blocks."""
    channels: int = table.stem
    blocks: list[nn.Module] = []
    for stage in table.blocks:
        blocks.append(TorchBlock(channels, stage))
        channels = stage.channels
    return TorchNetwork(convolution(3, table.stem, 3, stride=2), blocks, channels, classes)


def teacher(classes: int) -> TorchNetwork:
    """A residual network of 18 layers, half as wide again as usual, that looks closer: for small images."""
    channels = TEACHER_CHANNELS[0] // 2
    stem, blocks = convolution(3, channels, 3, stride=2), list[nn.Module]()
    for outputs in TEACHER_CHANNELS:
        blocks += [Basic(channels, outputs, 2), Basic(outputs, outputs, 1)]
        channels = outputs
    return TorchNetwork(stem, blocks, channels, classes)


class TorchBlock(nn.Module):
    """Expand, depthwise, project; the input is added where its shape is the output's."""

    def __init__(self, channels: int, stage: Stage) -> None:
        super().__init__()
        wide = channels * stage.expand
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        if stage.expand > 1:
            layers["expand"] = convolution(channels, wide, 1)
        layers["depthwise"] = convolution(wide, wide, stage.kernel, stride=stage.stride, groups=wide)
        layers["project"] = convolution(wide, stage.channels, 1, activation=False)
        self.layers = nn.Sequential(layers)
        self.residual = stage.stride == 1 and stage.channels == channels

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.residual else y


class Basic(nn.Module):
    """Two convolutions, and the input, brought to their shape where it has another, added."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        first = convolution(inputs, outputs, 3, stride=stride)
        self.layers = nn.Sequential(first, convolution(outputs, outputs, 3, activation=False))
        same = stride == 1 and inputs == outputs
        self.around = nn.Identity() if same else convolution(inputs, outputs, 1, stride=stride, activation=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = nn.functional.relu(self.layers(x) + self.around(x))
        return y


def convolution(
    inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1, activation: bool = True
) -> nn.Sequential:
    """A convolution without bias, batch normalization, and ReLU6 where there is an activation."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)
    layers: list[nn.Module] = [conv, nn.BatchNorm2d(outputs, momentum=MOMENTUM)]
    return nn.Sequential(*layers, nn.ReLU6(inplace=True)) if activation else nn.Sequential(*layers)


def initialize(network: TorchNetwork) -> None:
    """He's normal weights by fan-out, a nearly silent classifier."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.01)
            nn.init.zeros_(module.bias)
