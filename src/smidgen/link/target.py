"""A board at the end of a line as a target: programs are compiled as for another, and run on what is there already."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from smidgen.codegen import Sources
from smidgen.ir import Array, Graph
from smidgen.link.device import LinkedDevice
from smidgen.memory import Plan
from smidgen.ops.one_pass import Distance
from smidgen.targets.device import Target


class LinkTarget(Target):
    """A target whose device runs already; programs are compiled as for the target given."""

    def __init__(self, device: LinkedDevice, like: Target) -> None:
        self.device, self._like = device, like

    @property
    def name(self) -> str:
        return self.device.line.stream.name

    @property
    def frugal(self) -> bool:
        return self._like.frugal

    @property
    def overhead(self) -> int:
        return self._like.overhead

    @property
    def folders(self) -> tuple[str, ...]:
        return self._like.folders

    def project(self, graph: Graph, sources: Sources, fields: Mapping[str, object]) -> dict[str, str]:
        return self._like.project(graph, sources, fields)

    def check(self, graph: Graph, layout: Plan, sources: Sources) -> None:
        """It is there already."""

    def start(self, graph: Graph, sources: Sources) -> LentDevice:
        """Return the device, whatever the graph: one that only infers is asked of what the device has learned."""
        return LentDevice(self.device, graph)


class LentDevice(LinkedDevice):
    """A linked device that somebody else closes, asked for what a graph gives."""

    __slots__ = ("_asked",)  # all else is the device's own

    def __init__(self, device: LinkedDevice, asked: Graph) -> None:
        self.__dict__ = device.__dict__
        self._asked = asked

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        """Return the outputs of a program that infers; of one that learns its scores, in place of what is asked for."""
        if not self.learns:
            return super().run(*arrays)
        self.predict(*arrays)
        scores = self.output(self.graph.outputs.index(self.graph.scores))
        far = {node.out for node in self._asked.nodes if isinstance(node.op, Distance)}
        distance = np.array([[self.distance()]], np.float32) if far else scores
        return tuple(distance if value in far else scores for value in self._asked.outputs)

    def close(self) -> None:
        """Its line stays open."""
