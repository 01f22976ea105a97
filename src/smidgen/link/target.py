"""A board at the end of a line as a target: programs are compiled as for another, and run on what is there already."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from smidgen.codegen import Sources
from smidgen.ir import Array, Graph
from smidgen.link.device import LinkedDevice
from smidgen.memory import Plan
from smidgen.ops.one_pass import Distance
from smidgen.targets.device import Device, Target


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


class LentDevice(Device):
    """A device that somebody else closes."""

    def __init__(self, device: LinkedDevice, asked: Graph) -> None:
        self._device, self._asked = device, asked
        self.graph, self.learns = device.graph, device.learns

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        """Return the outputs of a program that infers; of one that learns its scores, in place of what is asked for."""
        if not self.learns:
            return self._device.run(*arrays)
        self._device.predict(*arrays)
        scores = self._device.output(self.graph.outputs.index(self.graph.scores))
        far = {node.out for node in self._asked.nodes if isinstance(node.op, Distance)}
        distance = np.array([[self._device.distance()]], np.float32) if far else scores
        return tuple(distance if value in far else scores for value in self._asked.outputs)

    def predict(self, *arrays: Array) -> int:
        return self._device.predict(*arrays)

    def train(self, image: Array, label: int | Array | None, learning_rate: float) -> float:
        return self._device.train(image, label, learning_rate)

    def count(self, image: Array, label: int, sign: int) -> None:
        self._device.count(image, label, sign)

    def solve(self) -> None:
        self._device.solve()

    def audio_features(self, samples: Array) -> Array:
        return self._device.audio_features(samples)

    def outputs(self) -> tuple[Array, ...]:
        return self._device.outputs()

    def state(self) -> dict[str, Array]:
        return self._device.state()

    def restore(self, state: Mapping[str, Array]) -> None:
        self._device.restore(state)

    def close(self) -> None:
        """Its line stays open."""
