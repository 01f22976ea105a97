"""A board at the end of a line as a target: stages that start a device are lent this one, and its line stays open."""

from __future__ import annotations

from collections.abc import Mapping

from smidgen.codegen import Sources
from smidgen.ir import Array, Graph, Node
from smidgen.link.device import LinkedDevice
from smidgen.memory import Plan
from smidgen.targets.device import Device, Target


class LinkTarget(Target):
    """Where a device runs already; programs are compiled for it as for the target given."""

    def __init__(self, device: LinkedDevice, like: Target) -> None:
        self.device, self._like = device, like

    @property
    def name(self) -> str:
        return self.device.line.stream.name

    @property
    def frugal(self) -> bool:
        return self._like.frugal

    @property
    def besides(self) -> int:
        return self._like.besides

    @property
    def folders(self) -> tuple[str, ...]:
        return self._like.folders

    def working(self, node: Node, by_row: bool) -> int:
        return self._like.working(node, by_row)

    def project(self, graph: Graph, sources: Sources, fields: Mapping[str, object]) -> dict[str, str]:
        return self._like.project(graph, sources, fields)

    def check(self, graph: Graph, layout: Plan, sources: Sources) -> None:
        """It is there already."""

    def start(self, graph: Graph, sources: Sources) -> LentDevice:
        """The device as it is; a graph that only infers is asked of what it has learned."""
        return LentDevice(self.device, graph)


class LentDevice(Device):
    """A device that somebody else closes."""

    def __init__(self, device: LinkedDevice, asked: Graph) -> None:
        self._device, self._asked = device, asked
        self.graph, self.learns = device.graph, device.learns

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        """The outputs of a program that infers; of one that learns its scores, in their place in what is asked for."""
        if not self.learns:
            return self._device.run(*arrays)
        self._device.predict(*arrays)
        scores = self._device.output(self.graph.outputs.index(self.graph.scores))
        return (scores,) * len(self._asked.outputs)

    def predict(self, *arrays: Array) -> int:
        return self._device.predict(*arrays)

    def train(self, image: Array, label: int | Array | None, learning_rate: float) -> float:
        return self._device.train(image, label, learning_rate)

    def hear(self, samples: Array) -> Array:
        return self._device.hear(samples)

    def outputs(self) -> tuple[Array, ...]:
        return self._device.outputs()

    def state(self) -> dict[str, Array]:
        return self._device.state()

    def restore(self, state: Mapping[str, Array]) -> None:
        self._device.restore(state)

    def close(self) -> None:
        """Its line stays open."""
