"""This machine's clock around every kernel of a program: how long each call took."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np

from smidgen.codegen import Sources
from smidgen.errors import TargetError
from smidgen.ir import Array, Graph
from smidgen.targets.host import Host, HostDevice

CLOCK = Path(__file__).with_name("clock.c")


def start_timed(host: Host, graph: Graph, sources: Sources) -> TimedDevice:
    """Build a program that notes the time around its kernels, and start it."""
    timed = with_clock(sources, {node.op.symbol(node) for node in graph.nodes} - {""})
    return TimedDevice(graph, timed, host.build(timed))


def with_clock(sources: Sources, symbols: set[str]) -> Sources:
    """The same program, in which every call of these kernels is a macro that notes the time before and after it."""
    declared = [f'#include "{name}"' for name in sorted(sources.interface_headers)]
    macros = [f"#define {name}(...) (smg_mark(), {name}(__VA_ARGS__), smg_mark())" for name in sorted(symbols)]
    header = (
        "/* The clock, and kernels that are called with it. */", "#ifndef SMIDGEN_CLOCK_H", "#define SMIDGEN_CLOCK_H",
        *declared, f"enum {{ SMG_MARKS = {2 * len(sources.calls)} }};", "void smg_mark(void);",
        "const double *smg_take_marks(int *taken);", *macros, "#endif", "",
    )  # fmt: skip
    program = f"{sources.prefix}.c"
    files = {
        **sources.files, "clock.h": "\n".join(header), "clock.c": CLOCK.read_text(),
        program: f'#include "clock.h"\n{sources.files[program]}',
    }  # fmt: skip
    return replace(sources, files=files)


class TimedDevice(HostDevice):
    """A program on this machine that knows how long its kernels took."""

    def __init__(self, graph: Graph, sources: Sources, library: Path) -> None:
        super().__init__(graph, sources, library)
        self._calls = np.array(sources.calls, np.int64)

    def times(self) -> Array:
        """Nanoseconds in each node's kernel since the last call, and, at the end, of the code between kernels."""
        if self._library is None:
            raise TargetError(f"the device running {self.graph.name} is closed; start another")
        take, taken = self._library.smg_take_marks, ctypes.c_int()
        take.restype = ctypes.POINTER(ctypes.c_double)
        marks = np.ctypeslib.as_array(take(ctypes.byref(taken)), (2 * self._calls.size,))[: taken.value]
        nodes: Array = np.zeros(len(self.graph.nodes) + 1)
        if marks.size:
            inside = marks[1::2] - marks[::2]
            np.add.at(nodes, self._calls[: inside.size], inside)
            nodes[-1] = marks[-1] - marks[0] - inside.sum()
        return nodes
