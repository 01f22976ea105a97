"""Random graphs of maps alone, in which rows can be streamed, with many places that a single map crosses."""

from __future__ import annotations

from hypothesis import strategies as st

from experiments.chains import Q, conv, depthwise
from smidgen.ir import Builder, Graph, Type
from smidgen.ops import Activate, Add, MaxPool


@st.composite
def map_graphs(draw: st.DrawFn, most: int = 12) -> Graph:
    """Blocks of nodes over maps: windows that leave rows out, sums across a block, maps that are outputs too."""
    g = Builder("maps")
    x = g.input("x", Type((1, draw(st.integers(3, 14)), draw(st.integers(2, 4)), 2), "int8", Q))
    outputs = []
    for _ in range(draw(st.integers(1, most))):
        kind = draw(st.integers(0, 6))
        tall = min(x.type.shape[1:3])
        if kind <= 1:
            k = draw(st.integers(1, 3))
            pad = draw(st.integers(0, 2)) if tall >= k else 1
            x = conv(g, x, draw(st.integers(1, 3)), k, draw(st.integers(1, 3)), max(pad, k - tall))
        elif kind == 2:
            x = g.emit(Add(), x, depthwise(g, x), q=Q)
        elif kind == 3 and tall >= 2:
            x = g.emit(MaxPool((2, 2), (2, 2)), x)
        elif kind == 4:
            x = g.emit(Add(), g.emit(Activate(), x, q=Q), depthwise(g, depthwise(g, x)), q=Q)
        elif kind == 5:
            g.emit(Activate(), x, q=Q)  # nobody reads it
        else:
            x = depthwise(g, x, draw(st.integers(1, 2)))
        if draw(st.integers(0, 9)) == 0:
            outputs.append(x)
    return g.graph(*dict.fromkeys((*outputs, x)))
