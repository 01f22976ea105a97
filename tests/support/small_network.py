"""A network small enough for tests, of the size of the shapes it learns."""

from __future__ import annotations

from smidgen.frontends.network import build
from smidgen.ir import Graph
from smidgen.zoo.draw import draw
from smidgen.zoo.tables import BlockTable, Stage
from tests.support.shapes import SIDE


def small_network(name: str = "small") -> Graph:
    """Five convolutions with a residual over 32×32 images; its weights are random."""
    return build(
        draw(BlockTable(8, (Stage(1, 3, 2, 16), Stage(3, 3, 2, 24), Stage(2, 3, 1, 24))), SIDE, 10, seed=3), name
    )
