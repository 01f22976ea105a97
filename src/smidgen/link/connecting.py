"""Devices at the end of a stream: a program found there, and a target that lends it to all stages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from smidgen.codegen import Sources
from smidgen.errors import InputError
from smidgen.ir import Array, Graph
from smidgen.link.device import LinkedDevice
from smidgen.link.frames import BAUD, ProcessStream, SerialStream, Stream
from smidgen.link.line import Line, Timing
from smidgen.memory import Plan
from smidgen.pipeline import Program
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


EMULATED, PROCESS = "emulated:", "exec:"


def connect(
    port: str,
    program: Program,
    *,
    baud: int = BAUD,
    timing: Timing | None = None,
    save_every: int = 0,
    project: str | Path | None = None,
    flash: str | Path | None = None,
) -> LinkedDevice:
    """The board at a port, which runs this program, as a device that learns and predicts.

    A port is a serial one (/dev/ttyACM0, COM3), "exec:COMMAND" for a program that serves on stdin and stdout, or
    "emulated:cortex-m7" for a board that is emulated here: with firmware made for it, or with that of the `project` in
    a folder; `flash` is a file for what it keeps. LinkError where nothing answers, or another program does. The board
    is asked to save every `save_every` steps, where that is not 0.
    """
    if port.startswith(EMULATED) and project is None:
        stream = _emulated(port, program, flash)
    else:
        stream = open_port(port, baud, project, flash)
    try:
        return LinkedDevice(program.graph, Line(stream, timing), save_every)
    except BaseException:
        stream.close()
        raise


def open_port(
    port: str, baud: int = BAUD, project: str | Path | None = None, flash: str | Path | None = None
) -> Stream:
    """The stream to a board that is there already, or to an emulated one that runs a project's firmware."""
    if port.startswith(EMULATED):
        if project is None:
            raise InputError(
                f"{port} starts over each time: there is nothing on it yet; train, test or predict with it, or give "
                "--project"
            )
        return _with_project(port, project, flash)
    if project is not None or flash is not None:
        raise InputError(f"--project and --flash are for emulated boards, {port} is none; leave them out")
    return ProcessStream(port.removeprefix(PROCESS)) if port.startswith(PROCESS) else SerialStream(port, baud)


def _emulated(port: str, program: Program, flash: str | Path | None) -> Stream:
    """A board of that name with the program's own firmware, from reset on."""
    from smidgen.targets.firmware import BoardTarget  # here, because an emulator takes a while to import
    from smidgen.targets.lines import line_to

    name, target = port.removeprefix(EMULATED), program.target
    if not isinstance(target, BoardTarget) or target.board.name != name:
        raise InputError(f"{port} runs programs for {name}, this one is for {program.target.name}; compile it for it")
    firmware = target.linked(program.graph, program.sources)
    return line_to(port, target, firmware, None if flash is None else Path(flash))


def _with_project(port: str, folder: str | Path, flash: str | Path | None) -> Stream:
    """A board of that name with the firmware of a project."""
    from smidgen.targets.lines import line_to, read_project

    project = read_project(Path(folder), port.removeprefix(EMULATED))
    return line_to(port, project.target, project.build(), None if flash is None else Path(flash))


def fitting_target(port: str, project: str | Path | None = None) -> str | Target:
    """The target to compile a program for that is to be reached at a port: of an emulated board, or this machine."""
    if not port.startswith(EMULATED):
        return "host"
    name = port.removeprefix(EMULATED)
    if project is None:
        return name
    from smidgen.targets.lines import read_project

    return read_project(Path(project), name).target
