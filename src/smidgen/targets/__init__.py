"""What a compiled graph runs on: a target builds the C and starts a device that runs it."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from smidgen.codegen import Sources
from smidgen.errors import TargetError
from smidgen.ir import Array, Graph
from smidgen.targets.host import Host


class Device(Protocol):
    """A program running somewhere, with memory of its own."""

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        """One run of the graph: inputs in, outputs out."""

    def predict(self, *arrays: Array) -> int:
        """The index of the largest element of output 0."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Target(Protocol):
    """Where programs run."""

    @property
    def name(self) -> str: ...

    def start(self, graph: Graph, sources: Sources) -> Device:
        """Build the program and start it."""


def find(name: str) -> Target:
    """The target of that name."""
    targets: tuple[Target, ...] = (Host(),)
    for target in targets:
        if target.name == name:
            return target
    raise TargetError(f"there is no target {name!r}; known are {', '.join(t.name for t in targets)}")
