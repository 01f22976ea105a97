"""Contributions known without an analysis: those shipped with the package, and those estimated from layer shapes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from importlib.resources import files

from smidgen.ir import Graph, Node
from smidgen.ops.weighted import weighted
from smidgen.selection.contributions import (
    BiasDepth,
    BitsTried,
    Conditions,
    Contributions,
    ContributionsError,
    LayerShare,
    layer_names,
)
from smidgen.selection.trials import SHARES
from smidgen.training.head import layers

HEAD = 0.2  # top-1 with the head alone; only differences from it count
ALL_BIASES = 0.03  # what all biases add
HALVED = 1 / 7  # of all layers, from the last, whose biases add half of that
LAST_LAYER = 0.08  # what the last layer's weights add to biases
RISE = 4  # the power of its place with which a layer's gain grows: one half-way adds a sixteenth of the last
BEND = 2 / 3  # a quarter of the channels adds four tenths of what all of them do
KEPT = {8: 0.6, 10: 0.8, 12: 1.0}  # of what weights add, by their bits
SAID = "everything: gains are by rule (layers that do not narrow, later ones more), not measured; run smidgen analyze"


def estimate(graph: Graph) -> Contributions:
    """Estimate what a scheme's parts add to accuracy from layer shapes alone, without data or training."""
    numbered = layers(graph)
    count = len(numbered)
    depths = tuple(BiasDepth(biases, HEAD + _biases(biases, count)) for biases in range(count + 1))
    shares = tuple(
        LayerShare(layer, share, depths[count].accuracy + LAST_LAYER * ((layer + 1) / count) ** RISE * learned**BEND)
        for layer in widening(graph)
        for share, learned in distinct_shares(numbered[layer])
    )
    bits = tuple(BitsTried(bits, depths[count].accuracy + LAST_LAYER * kept) for bits, kept in KEPT.items())
    nothing = Conditions("no data", "", 0, 0, 0, 0, 0.0, (), max(KEPT))
    return Contributions(graph.name, layer_names(graph), nothing, depths, count, shares, bits, (SAID,))


def _biases(biases: int, count: int) -> float:
    return ALL_BIASES * (1 - math.pow(2, -biases / max(count * HALVED, 1)))


def widening(graph: Graph) -> tuple[int, ...]:
    """Return the layers that do not narrow, depthwise ones left out; where there are none, all that are not depthwise.

    In a network of inverted residuals these are the stem and the 1×1 convolutions that widen: measured, depthwise
    layers add nothing, and training a layer that narrows (a projection) can harm.
    """
    whole = [(layer, node) for layer, node in enumerate(layers(graph)) if weighted(node).mixes_all]
    wide = [layer for layer, node in whole if node.ins[1].type.shape[0] >= node.ins[1].type.shape[-1]]
    return tuple(wide or [layer for layer, _ in whole])


def distinct_shares(node: Node) -> Iterator[tuple[Fraction, float]]:
    """Yield the shares of a layer that learn different numbers of channels, each with its exact share of channels."""
    total, before = node.ins[1].type.shape[-1], 0
    for share in SHARES if weighted(node).learns_in_parts else (Fraction(1),):
        channels = min(total, max(1, round(total * share)))
        if channels > before:
            yield share, channels / total
        before = channels


FOLDER = files("smidgen.zoo") / "contributions"


def shipped_contributions(graph: Graph) -> Contributions:
    """Return what was measured on a network of these layers, or raise ContributionsError where none ships."""
    names = layer_names(graph)
    for known in _all():
        if known.layers == names:
            return known
    shipped = ", ".join(known.model for known in _all()) or "no network"
    raise ContributionsError(
        f"no contributions of {graph.name} were measured (shipped are those of {shipped}); run smidgen "
        f"analyze {graph.name} --data DATA -o contributions.json and give that file with --contributions"
    )


def shipped_or_estimated(graph: Graph) -> Contributions:
    """Return what was measured on a network of these layers, or an estimate where nothing ships."""
    try:
        return shipped_contributions(graph)
    except ContributionsError:
        return estimate(graph)


@cache
def _all() -> tuple[Contributions, ...]:
    if not FOLDER.is_dir():
        return ()
    found = sorted((file for file in FOLDER.iterdir() if file.name.endswith(".json")), key=lambda file: file.name)
    return tuple(Contributions.from_json(file.read_bytes(), file.name) for file in found)
