"""From a port's name to a device: a serial port, a program on this machine, or an emulated board."""

from __future__ import annotations

from smidgen.errors import InputError
from smidgen.link.device import LinkedDevice
from smidgen.link.line import Line, Timing
from smidgen.link.streams import BAUD, ProcessStream, SerialStream, Stream
from smidgen.pipeline import Program

EMULATED, PROCESS = "emulated:", "exec:"


def connect(
    port: str, program: Program, *, baud: int = BAUD, timing: Timing | None = None, save_every: int = 0
) -> LinkedDevice:
    """The board at a port, which runs this program, as a device that learns and predicts.

    A port is a serial one (/dev/ttyACM0, COM3), "exec:COMMAND" for a program that serves on stdin and stdout, or
    "emulated:cortex-m7" for a board that is emulated here. LinkError where nothing answers, or another program does.
    The board is asked to save every `save_every` steps, where that is not 0.
    """
    stream = _emulated(port, program) if port.startswith(EMULATED) else open_port(port, baud)
    try:
        return LinkedDevice(program.graph, Line(stream, timing), save_every)
    except BaseException:
        stream.close()
        raise


def open_port(port: str, baud: int = BAUD) -> Stream:
    """The stream to a board that is there already."""
    if port.startswith(PROCESS):
        return ProcessStream(port.removeprefix(PROCESS))
    if port.startswith(EMULATED):
        raise InputError(f"{port} begins anew each time: there is nothing on it yet; train, test or predict with it")
    return SerialStream(port, baud)


def _emulated(port: str, program: Program) -> Stream:
    """A board of that name with the program's own firmware, from reset on."""
    from smidgen.targets.cortex_m import CortexM  # here, because an emulator takes a while to import
    from smidgen.targets.finding import find_board
    from smidgen.targets.linked_board import line_to

    name, target = port.removeprefix(EMULATED), program.target
    if not isinstance(target, CortexM) or target.board.name != name:
        raise InputError(f"{port} runs programs for {name}, this one is for {program.target.name}; compile it for it")
    if find_board(name).board.core.helium:
        raise InputError(f"{port} is emulated by QEMU, which has no line to it here; take emulated:cortex-m7")
    firmware = target.linked(program.graph, program.sources)
    return line_to(port, target.board, firmware, target.cache, target.limit)


def fitting_target(port: str) -> str:
    """The target to compile a program for that is to be reached at a port."""
    return port.removeprefix(EMULATED) if port.startswith(EMULATED) else "host"
