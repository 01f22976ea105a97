"""The zoo's networks in PyTorch, with batch normalization: what pre-training trains and quantization then folds."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from smidgen.zoo.tables import Stage, Table

MOMENTUM = 0.03  # of batch normalization's averages: batches are large, crops are wild


class Network(nn.Module):
    """Stem, inverted-residual blocks, global mean and classifier; layers are named as in the zoo's graphs."""

    def __init__(self, table: Table, classes: int) -> None:
        super().__init__()
        self.stem = convolution(3, table.stem, 3, stride=2)
        channels, blocks = table.stem, []
        for stage in table.blocks:
            blocks.append(Block(channels, stage))
            channels = stage.channels
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.blocks(self.stem(x))
        logits: Tensor = self.classifier(features.mean((2, 3)))
        return logits


class Block(nn.Module):
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


def convolution(
    inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1, activation: bool = True
) -> nn.Sequential:
    """A convolution without bias, batch normalization, and ReLU6 where there is an activation."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)
    layers: list[nn.Module] = [conv, nn.BatchNorm2d(outputs, momentum=MOMENTUM)]
    return nn.Sequential(*layers, nn.ReLU6(inplace=True)) if activation else nn.Sequential(*layers)


def initialize(network: Network) -> None:
    """He's normal weights by fan-out, a nearly silent classifier."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.01)
            nn.init.zeros_(module.bias)
