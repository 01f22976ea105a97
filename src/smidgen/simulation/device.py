"""One simulated device as a target: `--target cuda` learns on the GPU the bytes that the host learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from smidgen.codegen import Sources
from smidgen.errors import TargetError
from smidgen.ir import Array, Graph, check_inputs, roles_of
from smidgen.memory import Plan
from smidgen.numerics import one_pass
from smidgen.ops.losses import check_softmax
from smidgen.simulation.courses import check_device
from smidgen.simulation.one_pass import solved
from smidgen.simulation.running import Simulation
from smidgen.targets.device import Device, check_code, check_step, one_pass_of, with_sums
from smidgen.targets.host import Host


@dataclass(frozen=True)
class Simulator(Host):
    """Programs are compiled as for the host, whose C is what a written project holds, and run in PyTorch."""

    name: str = "cuda"

    def check(self, graph: Graph, layout: Plan, sources: Sources) -> None:
        check_device(self.name)
        if not sources.learns:
            raise TargetError(f"{graph.name} does not learn, and {self.name} runs programs that do; give it a scheme")
        check_softmax(graph, self.name)

    def start(self, graph: Graph, sources: Sources) -> SimulatedDevice:  # type: ignore[override]
        return SimulatedDevice(graph, self.name)


class SimulatedDevice(Device):
    """A fleet of one."""

    def __init__(self, graph: Graph, device: str) -> None:
        self.graph, self.learns = graph, True
        self._fleet: Simulation | None = Simulation([graph], device)
        self._loss = np.zeros(1, np.float32)
        self._image: Array | None = None  # of the last run or prediction

    @property
    def _running(self) -> Simulation:
        if self._fleet is None:
            raise TargetError(f"the device running {self.graph.name} is closed; start another")
        return self._fleet

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        check_inputs(self.graph, arrays)
        roles, given = roles_of(self.graph), dict(zip(self.graph.inputs, arrays, strict=True))
        assert roles.label is not None  # a fleet was made of it
        self.train(given[roles.image], int(given[roles.label][0]), float(given[roles.rate][0]))
        return self.outputs()

    def predict(self, *arrays: Array) -> int:
        fleet, self._image = self._running, arrays[0]
        return int(fleet.predict(fleet.front(torch.from_numpy(arrays[0])))[0, 0])

    def train(self, image: Array, label: int | Array | None, learning_rate: float) -> float:
        checked, fleet = check_step(self, label, learning_rate), self._running
        labels = torch.tensor(checked, dtype=torch.int64, device=fleet.place)
        rates = torch.tensor([[learning_rate]], dtype=torch.float32, device=fleet.place)
        self._loss = fleet.train(fleet.front(torch.from_numpy(image)), labels, rates)[0].cpu().numpy()
        return float(self._loss[0])

    def count(self, image: Array, label: int, sign: int) -> None:
        check_inputs(self.graph, (image,), self.graph.prediction_inputs)
        sums, self._image = self.sums(), image
        (x,) = self._running.features(torch.from_numpy(image), 0)
        code, after = one_pass.observe(sums, x, label, sign)
        check_code(self.graph, code)
        self.restore(with_sums(self.graph, self.state(), after))

    def solve(self) -> None:
        self.sums()
        self.restore(solved(self.graph, self.state()))

    def distance(self) -> float:
        state, parts = self.state(), one_pass_of(self.graph)
        if self._image is None or parts.sums[0].name not in state:
            return 0.0
        (x,), sums = self._running.features(torch.from_numpy(self._image), 0), self.sums()
        return float(one_pass.distance(sums.n, sums.m, x, state["limit"][0]))

    def audio_features(self, samples: Array) -> Array:
        raise TargetError(f"{self.graph.name} is simulated from its input on; start it on host to run its front end")

    def outputs(self) -> tuple[Array, ...]:
        roles = roles_of(self.graph)
        found = {roles.loss: self._loss, roles.logits: self._running.logits.cpu().numpy()}
        return tuple(found[v].reshape(v.type.shape) for v in self.graph.outputs)

    def state(self) -> dict[str, Array]:
        return self._running.state(0)

    def restore(self, state: Mapping[str, Array]) -> None:
        self._running.restore(0, state)

    def close(self) -> None:
        self._fleet = None
