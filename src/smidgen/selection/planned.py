"""The planned SRAM of schemes: that of the compiled program, everything counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from smidgen.codegen.entries import audio_bytes
from smidgen.ir import Graph
from smidgen.memory import state_bytes
from smidgen.pipeline import plan
from smidgen.targets.device import Target
from smidgen.training import Options
from smidgen.training.scheme import Scheme

PlanCallback = Callable[[int], None]  # gets how many schemes were planned so far


@dataclass(frozen=True)
class PlannedBytes:
    """SRAM of a compiled program, in bytes."""

    arena: int
    state: int
    besides: int  # other static data, the front end for sound among it, and the stack, at most
    least_arena: int  # the most alive at one node: no placing of the same buffers takes less

    @property
    def total(self) -> int:
        return self.arena + self.state + self.besides


@dataclass
class Planner:
    """Plans schemes of one network for one target, each once."""

    graph: Graph
    target: Target
    options: Options
    streamed_input: bool
    on_plan: PlanCallback = lambda _: None
    _known: dict[tuple[object, ...], PlannedBytes] = field(default_factory=dict)

    @property
    def planned(self) -> int:
        """How many schemes were planned."""
        return len(self._known)

    def __call__(self, scheme: Scheme) -> PlannedBytes:
        with_bits = scheme.weights or self.options.head_of(self.graph).dtype == "int8"
        key = (scheme.biases, scheme.weights, scheme.channels, self.options.bits(scheme) if with_bits else None)
        if key not in self._known:
            self._known[key] = self._plan(scheme)
            self.on_plan(self.planned)
        return self._known[key]

    def biases(self, count: int, bits: int) -> PlannedBytes:
        """What so many biases take without any weights, those of an int8 head with so many bits."""
        return self(Scheme(f"bias:{count}", count, weight_bits=bits))

    def _plan(self, scheme: Scheme) -> PlannedBytes:
        layout = plan(self.graph, scheme, self.target, options=self.options, streamed_input=self.streamed_input)
        besides, least = self.target.besides + audio_bytes(layout.graph), layout.plan.lower_bound
        return PlannedBytes(layout.peak, state_bytes(layout.graph), besides, least)
