"""Contributions such as an analysis finds, drawn at random, for tests of searches."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from smidgen.ir import Graph
from smidgen.ops.conv import Depthwise
from smidgen.ops.dense import Dense
from smidgen.selection.contributions import (
    BiasDepth,
    BitsTried,
    Conditions,
    Contributions,
    LayerShare,
    layer_names,
)
from smidgen.training.head import layers

SHARES = (Fraction(1, 8), Fraction(1, 4), Fraction(1, 2), Fraction(1))


def measured(graph: Graph, seed: int = 0, shares: tuple[Fraction, ...] = SHARES) -> Contributions:
    """Biases that gain less and less with depth, layers that gain with their share, and some that harm."""
    rng, numbered = np.random.default_rng(seed), layers(graph)
    count = len(numbered)
    depths = [k for k in range(count + 1) if k in (0, count) or k % 2 == 1]
    rising = {k: float(0.3 + 0.15 * (1 - np.exp(-k / (count / 3))) + 0.005 * rng.random()) for k in depths}
    found = Contributions(
        graph.name,
        layer_names(graph),
        Conditions("drawn", "0" * 64, 10, 800, 200, 4, 0.004, (0,), 12),
        tuple(BiasDepth(k, value) for k, value in rising.items()),
        count // 2 | 1,
        (),
        tuple(BitsTried(bits, value) for bits, value in ((8, 0.60), (10, 0.66), (12, 0.68))),
    )
    rows = []
    for layer, node in enumerate(numbered):
        narrow = isinstance(node.op, Depthwise) or node.ins[1].type.shape[0] < node.ins[1].type.shape[-1]
        full = rng.normal(0.0, 0.01) if narrow else abs(rng.normal(0.05, 0.03)) * (layer + 1) / count
        for share in (Fraction(1),) if isinstance(node.op, Dense) else shares:
            without = rising_at(rising, found.beside(layer))
            gain = full * float(share) ** 0.6 + rng.normal(0.0, 0.002)
            rows.append(LayerShare(layer, share, float(np.clip(without + gain, 0, 1))))
    return Contributions(**{**vars(found), "shares": tuple(rows)})


def rising_at(rising: dict[int, float], biases: int) -> float:
    """The accuracy of a depth, on a line between those drawn."""
    return float(np.interp(biases, list(rising), list(rising.values())))
