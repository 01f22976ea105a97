"""Contributions as if they had been measured: random, for any network."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from smidgen.ir import Graph
from smidgen.ops.dense import Dense
from smidgen.selection.contributions import BiasDepth, BitsTried, Conditions, Contributions, LayerShare, layer_names
from smidgen.training.head import layers

SHARES = (Fraction(1, 8), Fraction(1, 4), Fraction(1, 2), Fraction(1))
CONDITIONS = Conditions("cars196", "0" * 16, 196, 2350, 783, 12, 0.4 / 256, (0,), 12)


def measured(graph: Graph, seed: int) -> Contributions:
    """Every depth of biases and every share of every layer; some layers harm."""
    rng, numbered = np.random.default_rng(seed), layers(graph)
    count = len(numbered)
    rises = np.cumsum(rng.uniform(0, 0.2 / (count + 1), count + 1)) + 0.3
    depths = tuple(BiasDepth(biases, float(rises[biases])) for biases in range(count + 1))
    base = count // 2
    shares: list[LayerShare] = []
    for layer, node in enumerate(numbered):
        whole, without = rng.uniform(-0.1, 0.2), depths[max(base, count - layer)].accuracy
        tried = SHARES[-1:] if isinstance(node.op, Dense) else SHARES
        shares += [LayerShare(layer, share, float(without + whole * float(share) ** 0.7)) for share in tried]
    bits = tuple(BitsTried(b, depths[base].accuracy + gain) for b, gain in ((8, 0.1), (10, 0.15), (12, 0.18)))
    return Contributions(graph.name, layer_names(graph), CONDITIONS, depths, base, tuple(shares), bits)
