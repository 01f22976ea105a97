"""The sparse-update schemes the paper published, each for one network: known by its layers, not by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from smidgen.ir import Graph, Node
from smidgen.ops.weighted import Windowed
from smidgen.training.head import layers
from smidgen.zoo import load_zoo

RESOLUTION = 128  # pixels along each side of the images all schemes were published for
Weights = tuple[tuple[int, Fraction], ...]  # a layer's number and the share of its input channels that learn


@dataclass(frozen=True)
class LayerShape:
    """The identity of a layer: its op, the shape of its weights, its stride and the map it computes."""

    op: str
    weights: tuple[int, ...]
    stride: tuple[int, ...]
    map: tuple[int, ...]

    @staticmethod
    def of(node: Node) -> LayerShape:
        stride = node.op.stride if isinstance(node.op, Windowed) else ()
        return LayerShape(type(node.op).__name__, node.ins[1].type.shape, stride, node.out.type.shape[1:-1])

    def __str__(self) -> str:
        stride = f", stride {_by(self.stride)}" if self.stride else ""
        output = f" and a map of {_by(self.map)}" if self.map else ""
        return f"{self.op} with weights {_by(self.weights)}{stride}{output}"


def _by(sizes: tuple[int, ...]) -> str:
    return "×".join(map(str, sizes))


@dataclass(frozen=True)
class PublishedNetwork:
    """A network of the zoo, and by name its schemes (how many biases, which weights)."""

    name: str
    schemes: Mapping[str, tuple[int, Weights]]

    @cached_property
    def layers(self) -> tuple[LayerShape, ...]:
        """Its layers without the classifier."""
        return tuple(map(LayerShape.of, layers(load_zoo(self.name))))

    def difference(self, graph: Graph) -> str | None:
        """Return the first difference between the graph's layers and this network's, or None where there is none."""
        found = [LayerShape.of(node) for node in layers(graph)]
        for index, (ours, theirs) in enumerate(zip(found, self.layers, strict=False)):
            if ours != theirs:
                return f"layer {index} of {graph.name} is {ours}, that of {self.name} is {theirs}"
        if len(found) != len(self.layers):
            return f"{graph.name} has {len(found)} layers, {self.name} has {len(self.layers)}"
        return None


def _network(name: str, schemes: Mapping[str, tuple[int, str]]) -> PublishedNetwork:
    """Read schemes, written as the number of biases and `layer:share` of each layer whose weights learn."""
    parsed = {}
    for scheme, (biases, written) in schemes.items():
        pairs = (item.split(":") for item in written.split())
        parsed[scheme] = biases, tuple((int(layer), Fraction(share)) for layer, share in pairs)
    return PublishedNetwork(name, parsed)


PUBLISHED = (
    _network("mbv2-w0.35", {
        "49kb": (16, "36:1 39:1 41:1/4 42:1/8 45:1/8 48:1/8 49:1/8"),
        "73kb": (20, "32:1/8 33:1/2 36:1/2 39:1 41:1/4 42:1/8 45:1/8 48:1"),
        "99kb": (25, "27:1 30:1 33:1 36:1 39:1 42:1/8 45:1/2 48:1"),
        "123kb": (31, "27:1 30:1 33:1 36:1 39:1 42:1/2 45:1 48:1"),
        "138kb": (34, "27:1 30:1 33:1 36:1 39:1 42:1 45:1 48:1"),
    }),
    _network("mcunet-5fps", {
        "49kb": (20, "24:1/4 27:1/2 30:1/2"),
        "74kb": (21, "21:1 24:1 27:1/2 30:1"),
        "99kb": (22, "21:1 24:1 27:1 30:1 36:1/8 39:1/4"),
        "124kb": (24, "21:1/4 24:1 27:1 30:1 33:1/2 39:1/2"),
        "148kb": (23, "21:1 24:1 27:1 30:1 36:1 39:1/2"),
    }),
    _network("proxyless-w0.3", {
        "49kb": (21, "39:1/4 42:1 45:1 51:1/8 54:1/4 57:1/4"),
        "74kb": (28, "33:1/2 36:1/4 39:1 42:1 45:1 51:1/2 54:1/4 57:1/2"),
        "98kb": (25, "36:1 39:1/2 42:1 45:1 48:1/4 51:1/2 54:1 57:1"),
        "120kb": (32, "36:1 39:1 42:1 45:1 48:1/2 51:1 54:1 57:1"),
        "148kb": (45, "36:1 39:1 42:1 45:1 48:1 51:1 54:1 57:1"),
    }),
)  # fmt: skip


def published_for(graph: Graph) -> Mapping[str, tuple[int, Weights]]:
    """Return the schemes published for this network, by name; none for any other."""
    for network in PUBLISHED:
        if network.difference(graph) is None:
            return network.schemes
    return {}


def why_not_published(name: str, graph: Graph) -> str | None:
    """Return for which networks a scheme was published and how the graph differs; None for an unknown name."""
    networks = [network for network in PUBLISHED if name in network.schemes]
    if not networks:
        return None
    count = len(layers(graph))
    nearest = min(networks, key=lambda network: abs(len(network.layers) - count))
    names = ", ".join(network.name for network in networks)
    return f"was published for {names} with images of {RESOLUTION}×{RESOLUTION}, but {nearest.difference(graph)}"
