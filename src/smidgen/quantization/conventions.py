"""The usual ways in which pixels become a network's numbers, and what a network's first layers say about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np

from smidgen.errors import InputError
from smidgen.ir import Array, Graph
from smidgen.ir.preprocessing import Preprocessing
from smidgen.ir.rewriting import readers
from smidgen.quantization.folding import affine

Conventions = Mapping[str, Preprocessing]
# By the words that --pixels takes: the numbers of pixels 0 and 255, or the framework that made a convention known.
CONVENTIONS: Conventions = MappingProxyType(
    {
        "0,255": Preprocessing((0.0,), (1.0,), range=(0.0, 255.0)),
        "0,1": Preprocessing((0.0,), (1.0,)),
        "-1,1": Preprocessing(),
        "imagenet": Preprocessing((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        "caffe": Preprocessing((103.939, 116.779, 123.68), (1.0,), "bgr", (0.0, 255.0)),
    }
)
BARE = ("0,255", "0,1", "-1,1")  # what a network that normalizes by itself may be given
BYTES = "0,255"
LARGE = 2.0  # a mean above this is one of pixels 0 … 255
NORMALIZED = 0.9, 6.0  # the spread of normalized pixels: 1 for 0 … 1, 4.5 for ImageNet's, 5 for small deviations
BESIDE = 0.1  # of the spread: how far normalized pixels may stay away from zero


def usual_name(stated: Preprocessing) -> str | None:
    """The convention that a preprocessing is, whatever it does with the order and shape; None where it is none."""
    for name, usual in CONVENTIONS.items():
        if (stated.mean, stated.std, stated.range) == (usual.mean, usual.std, usual.range):
            return name
    return None


def fitting(conventions: Conventions, channels: int) -> dict[str, Preprocessing]:
    """Those that can be applied to pixels of so many channels."""
    found = {}
    for name, usual in conventions.items():
        try:
            usual.check(channels)
        except InputError:
            continue
        found[name] = usual
    return found


def named_by_layers(graph: Graph, conventions: Conventions) -> str | None:
    """The convention whose pixels a network's first layers normalize; None where there are no such layers, or it is
    not the only one.

    A Rescaling, a batch norm, a product or a sum with constants that reads the image takes pixels to numbers around
    zero, and of 0 … 255, 0 … 1 and −1 … 1 only one comes out so.
    """
    scale, shift = _first_map(graph)
    if np.all(scale == 1) and np.all(shift == 0):
        return None
    with np.errstate(all="ignore"):  # a channel that is multiplied by zero has no mean
        means = -shift / scale
    if np.all((means > LARGE) & (means < 255)):
        return BYTES if BYTES in conventions else None
    found = [name for name in BARE if name in conventions and _normalizes(conventions[name], scale, shift)]
    return found[0] if len(found) == 1 else None


def _normalizes(usual: Preprocessing, scale: Array, shift: Array) -> bool:
    ends = np.sort(usual.numbers(len(scale))[[0, 255]] * scale + shift, axis=0)
    low, high = ends
    spread = high - low
    near = np.all((low <= BESIDE * spread) & (high >= -BESIDE * spread))
    return bool(near and np.all((spread >= NORMALIZED[0]) & (spread <= NORMALIZED[1])))


def _first_map(graph: Graph) -> tuple[Array, Array]:
    """What the maps y = x · scale + shift at the beginning of a network come to, channel by channel."""
    channels = graph.image.type.shape[-1]
    scale, shift = np.ones(channels), np.zeros(channels)
    for a, b in _leading_maps(graph):
        scale, shift = scale * a, shift * a + b
    return scale, shift


def _leading_maps(graph: Graph) -> Iterator[tuple[Array, Array]]:
    read_by, value = readers(graph), graph.image
    while len(nodes := read_by.get(value, ())) == 1:
        found = affine(graph, nodes[0])
        if found is None or found.x != value or found.activation != "none":
            return
        yield found.scale.astype(np.float64), found.shift.astype(np.float64)
        value = nodes[0].out
