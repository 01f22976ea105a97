"""Tiny graphs as text, for tests of passes: what a pass reads and what it leaves, a line for each node.

Two abbreviations make such texts short: ` q` stands for the quantization q(0.5; 0), and a constant's line may end in
` = 3.0`, the number it is filled with (0 otherwise).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import dedent

import numpy as np

from smidgen.ir import DTYPES, Array, Graph
from smidgen.ir.text import parse_graph, print_graph

_HELD = re.compile(r"(?:const|state) %([\w.]+): (\w+)\[([\d,]*)\][^=]*(?: = (.*))?")
_FILLED = re.compile(r"^(const .*?) = .*$", re.MULTILINE)


def graph_of(text: str) -> Graph:
    """The graph of an abbreviated text."""
    text = dedent(text)
    data: dict[str, Array] = {}
    for name, dtype, shape, number in (m.groups() for m in map(_HELD.fullmatch, text.splitlines()) if m):
        sides = tuple(int(side) for side in shape.split(",") if side)
        data[name] = np.full(sides, float(number or 0)).astype(DTYPES[dtype])
    return parse_graph(re.sub(r" q(?!\()", " q(0.5; 0)", _FILLED.sub(r"\1", text)), data)


def text_of(graph: Graph) -> str:
    """A graph's text, abbreviated, without its name and without the numbers of its constants."""
    _, _, body = print_graph(graph).partition("\n")
    return body.replace(" q(0.5; 0)", " q")


@dataclass(frozen=True)
class Case:
    """A pass's result for a graph, and what the case shows."""

    one: Callable[[Graph], Graph]
    claim: str
    before: str
    after: str = ""  # as before

    def __str__(self) -> str:
        return f"{self.one.__name__}: {self.claim}"
