"""A program that learns in one pass, as numpy computes it: the graphs of its phases, one after another."""

from __future__ import annotations

import numpy as np

from smidgen.ir import Array, Graph, evaluate_step
from smidgen.ir.graph import OnePass, Value
from smidgen.numerics.one_pass import Sums


class Reference:
    """State by name, and what the device should have after each call."""

    def __init__(self, graph: Graph) -> None:
        assert graph.one_pass is not None
        self.graph, self.parts = graph, graph.one_pass
        self.state: dict[Value, Array] = dict(graph.state)

    @property
    def sums(self) -> Sums:
        return Sums(*(self.state[v] for v in self.parts.sums))

    def count(self, image: Array, label: int, sign: int = 1) -> int:
        (_, _, code, _), after = evaluate_step(
            self.parts.collect, self._of(self.parts.collect), image, np.array([label, sign], np.int32)
        )
        self.state |= after
        return int(code[0])

    def distance(self, image: Array) -> float:
        return float(self._look(image)[3][0, 0])

    def features(self, image: Array) -> Array:
        return self._look(image)[1]

    def _look(self, image: Array) -> tuple[Array, ...]:
        sample = np.array([0, 1], np.int32)
        return evaluate_step(self.parts.collect, self._of(self.parts.collect), image, sample)[0]

    def solve(self) -> int:
        (code,), after = evaluate_step(self.parts.solve, self._of(self.parts.solve))
        self.state |= after
        return int(code[0])

    def train(self, image: Array, label: int, rate: float) -> float:
        self.state[self.parts.phase] = np.zeros(1, np.int32)
        inputs = (image, np.array([label], np.int32), np.array([rate], np.float32))
        (loss, *_), self.state = evaluate_step(self.graph, self.state, *inputs)
        return float(loss[0])

    def named(self) -> dict[str, Array]:
        """The state of the phase that it is in, by name, as a device gives it."""
        collecting = bool(self.state[self.parts.phase][0])
        seen = (*self.parts.sums, *self.parts.lasting)
        kept = seen if collecting else [v for v in self.graph.state if v not in self.parts.sums]
        return {v.name: self.state[v] for v in kept}

    def _of(self, graph: Graph) -> dict[Value, Array]:
        return {v: self.state[v] for v in graph.state}


def parts_of(graph: Graph) -> OnePass:
    assert graph.one_pass is not None
    return graph.one_pass
