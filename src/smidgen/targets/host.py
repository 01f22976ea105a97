"""This machine as a target: the C built into a shared library and loaded, where asked with a clock around kernels."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from smidgen.codegen import PORTABLE, Sources, render, serves
from smidgen.compiler import Cache, Compiler, cache_folder, find_compiler
from smidgen.errors import TargetError
from smidgen.ir import Array, Graph, Value, check_inputs
from smidgen.memory import Plan, state_bytes
from smidgen.numerics.one_pass import Sums
from smidgen.targets import device

PROJECT = ("Makefile", "CMakeLists.txt", "README.md")
INSIDE = ("-fvisibility=hidden",)  # kernels are called within the library only, and so directly


@dataclass(frozen=True)
class Host(device.Target):
    """Builds with the machine's compiler, or the one given, and keeps what it built in `cache`.

    A `frugal` host lays programs out as a board does.
    """

    compiler: Compiler | None = None
    cache: Path = field(default_factory=cache_folder)
    frugal: bool = False
    overhead: int = 0  # its stack and its own data are this machine's
    name: str = "host"
    folders: tuple[str, ...] = PORTABLE

    def found_compiler(self) -> Compiler:
        """Return the compiler given, or the machine's."""
        return self.compiler or find_compiler()

    def build(self, sources: Sources) -> Path:
        """Build the shared library of a program. Kernels are built once for all programs."""
        cache = Cache(self.cache, self.found_compiler())
        own = [name for name in sources.files if name.endswith(".c")]
        files = {**sources.interface_headers, **sources.files}
        return cache.build(".so", files, "-I.", "-shared", *own, *sources.objects(cache, *INSIDE))

    def project(self, graph: Graph, sources: Sources, fields: Mapping[str, object]) -> dict[str, str]:
        """Return an example, two ways to build it, and how to use it."""
        example = render("train_main.c" if sources.learns else "main.c", **fields, served=serves(graph))
        return {"board/main.c": example, **{name: render(name, **fields) for name in PROJECT}}

    def check(self, graph: Graph, layout: Plan, sources: Sources) -> None:
        """This machine has room for any program."""

    def start(self, graph: Graph, sources: Sources) -> HostDevice:
        return HostDevice(graph, sources, self.build(sources))


class HostDevice(device.Device):
    """A library loaded from a separate copy, so that no two devices share an arena."""

    def __init__(self, graph: Graph, sources: Sources, library: Path) -> None:
        self.graph, self.learns = graph, sources.learns
        self._prefix, self._sources, self._built = sources.prefix, sources, library
        self._library: ctypes.CDLL | None = _load_copy(library)
        rows = graph.image if sources.streamed_input else None
        self._inputs = {
            v: self._from_rows(v) if v == rows else self._memory("input", v.type.bytes, i)
            for i, v in enumerate(graph.inputs)
        }
        self._outputs = tuple(self._memory("output", v.type.bytes, i) for i, v in enumerate(graph.outputs))
        self._state = self._memory("state", state_bytes(graph)) if graph.state else np.empty(0, np.uint8)
        self._latent = tuple(self._memory("latent", size, i) for i, size in enumerate(sources.latent))
        self._function("init")()

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        run = self._function("run")
        self._feed(self.graph.inputs, arrays)
        run()
        return self.outputs()

    def predict(self, *arrays: Array) -> int:
        predict = self._function("predict")
        self._feed(self.graph.prediction_inputs, arrays)
        return int(predict())

    def train(self, image: Array, label: int | Array | None, learning_rate: float) -> float:
        given, train = device.check_step(self, label, learning_rate), self._function("train")
        self._feed(self.graph.prediction_inputs, (image,))
        return _step(train, given, learning_rate)

    def latent(self, image: Array) -> bytes:
        device.check_latent(self.graph, tuple(part.size for part in self._latent))
        self._feed(self.graph.prediction_inputs, (image,))
        self._function("front")()
        return b"".join(part.tobytes() for part in self._latent)

    def replay(self, latent: bytes, label: int | Array | None, learning_rate: float) -> float:
        device.check_latent(self.graph, tuple(part.size for part in self._latent), latent)
        given, replay = device.check_step(self, label, learning_rate), self._function("replay")
        rest = np.frombuffer(latent, np.uint8)
        for part in self._latent:
            part[:], rest = rest[: part.size], rest[part.size :]
        return _step(replay, given, learning_rate)

    def count(self, image: Array, label: int, sign: int) -> None:
        device.one_pass_of(self.graph)
        self.predict(image)
        device.check_code(self.graph, self._function("observe" if sign > 0 else "forget")(ctypes.c_int(label)))

    def solve(self) -> None:
        device.one_pass_of(self.graph)
        device.check_code(self.graph, self._function("solve")())

    def distance(self) -> float:
        device.one_pass_of(self.graph)
        distance = self._function("distance")
        distance.restype = ctypes.c_float
        return float(distance())

    def merge(self, sums: Sums, sign: int = 1) -> None:
        device.check_sums(self.graph, sums)
        other = np.concatenate([part.reshape(-1) for part in (sums.n, sums.m, sums.g)]).astype(np.int32)
        merge = self._function("merge" if sign > 0 else "forget_sums")
        device.check_code(self.graph, merge(ctypes.c_void_p(other.ctypes.data)))

    def forget_class(self, label: int) -> None:
        device.one_pass_of(self.graph)
        device.check_code(self.graph, self._function("forget_class")(ctypes.c_int(label)))

    def audio_features(self, samples: Array) -> Array:
        sent, type_ = np.ascontiguousarray(samples), self.graph.image.type
        rows, row = device.check_audio(self.graph, samples)
        self._function("audio_reset")()
        self._function("audio_push")(ctypes.c_void_p(sent.ctypes.data), sent.size)
        features: Array = np.zeros(type_.shape, np.int8)
        for i in range(rows):
            self._function("audio_row")(None, ctypes.c_void_p(features.ctypes.data + i * row), i)
        return features

    def outputs(self) -> tuple[Array, ...]:
        return tuple(
            device.tensor(v, memory.tobytes()) for v, memory in zip(self.graph.outputs, self._outputs, strict=True)
        )

    def state(self) -> dict[str, Array]:
        self._loaded()
        return device.read_state(self.graph, self._state.tobytes())

    def restore(self, state: Mapping[str, Array]) -> None:
        self._loaded()
        self._state[:] = np.frombuffer(device.state_block(self.graph, state), np.uint8)

    def twin(self) -> HostDevice:
        """Another device that runs the same program in the same state, at the same time."""
        other = HostDevice(self.graph, self._sources, self._built)
        other._state[:] = self._state
        return other

    def close(self) -> None:
        """Unload the library; its memory is gone with it."""
        if self._library is not None:
            self._inputs, self._outputs, self._latent = {}, (), ()
            self._state = np.empty(0, np.uint8)
            handle, self._library = self._library._handle, None
            _ctypes.dlclose(handle)

    def _feed(self, inputs: tuple[Value, ...], arrays: tuple[Array, ...]) -> None:
        check_inputs(self.graph, arrays, inputs)
        for value, array in zip(inputs, arrays, strict=True):
            self._inputs[value][:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def _loaded(self) -> ctypes.CDLL:
        if self._library is None:
            raise TargetError(f"the device running {self.graph.name} is closed; start another")
        return self._library

    def _function(self, name: str) -> ctypes._NamedFuncPointer:
        function: ctypes._NamedFuncPointer = getattr(self._loaded(), f"{self._prefix}_{name}")  # looked up once
        return function

    def _from_rows(self, value: Value) -> Array:
        """Return an image in our own memory, which the program reads row by row."""
        image: Array = np.zeros(value.type.bytes, np.uint8)
        size = image.size // value.type.shape[1]

        def read(_: object, row: int, index: int) -> None:
            ctypes.memmove(row, image.ctypes.data + index * size, size)

        self._read = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(read)
        self._function("source")(self._read, None)
        return image

    def _memory(self, role: str, size: int, *index: int) -> Array:
        """Return the library's own memory of an input, an output or the state, as bytes."""
        function = self._function(role)
        function.restype = ctypes.c_void_p
        memory: Array = np.ctypeslib.as_array(ctypes.cast(function(*index), ctypes.POINTER(ctypes.c_uint8)), (size,))
        return memory


def _step(step: ctypes._NamedFuncPointer, label: Array | None, learning_rate: float) -> float:
    """Take a step of the library, and return its loss."""
    step.restype, rate = ctypes.c_float, ctypes.c_float(learning_rate)
    if label is None:
        return float(step(rate))
    if label.dtype == np.int32:
        return float(step(ctypes.c_int(int(label[0])), rate))
    given = np.ascontiguousarray(label)
    return float(step(ctypes.c_void_p(given.ctypes.data), rate))


def _load_copy(library: Path) -> ctypes.CDLL:
    descriptor, name = tempfile.mkstemp(suffix=library.suffix, prefix="smidgen-")
    os.close(descriptor)
    try:
        shutil.copyfile(library, name)
        return ctypes.CDLL(name)
    except OSError as error:
        raise TargetError(f"the program built for this machine cannot be loaded: {error}") from None
    finally:
        os.unlink(name)


CLOCK = Path(__file__).with_name("clock.c")


def start_timed(host: Host, graph: Graph, sources: Sources) -> TimedDevice:
    """Build a program that notes the time around its kernels, and start it."""
    timed = with_clock(sources, {node.op.symbol(node) for node in graph.nodes} - {""})
    return TimedDevice(graph, timed, host.build(timed))


def with_clock(sources: Sources, symbols: set[str]) -> Sources:
    """Return the same program, in which each call of these kernels is a macro that notes the time around it."""
    headers, marks = sorted(sources.interface_headers), 2 * len(sources.calls)
    header = render("clock.h", headers=headers, marks=marks, symbols=sorted(symbols))
    program = f"{sources.prefix}.c"
    files = {
        **sources.files, "clock.h": header, "clock.c": CLOCK.read_text("utf-8"),
        program: f'#include "clock.h"\n{sources.files[program]}',
    }  # fmt: skip
    return replace(sources, files=files)


class TimedDevice(HostDevice):
    """A program on this machine that knows how long its kernels took."""

    def __init__(self, graph: Graph, sources: Sources, library: Path) -> None:
        super().__init__(graph, sources, library)
        self._calls = np.array(sources.calls, np.int64)

    def times(self) -> Array:
        """Return the nanoseconds in each node's kernel since the last call and, last, between kernels."""
        take, taken = self._loaded().smg_take_marks, ctypes.c_int()
        take.restype = ctypes.POINTER(ctypes.c_double)
        marks = np.ctypeslib.as_array(take(ctypes.byref(taken)), (2 * self._calls.size,))[: taken.value]
        nodes: Array = np.zeros(len(self.graph.nodes) + 1)
        if marks.size:
            inside = marks[1::2] - marks[::2]
            np.add.at(nodes, self._calls[: inside.size], inside)
            nodes[-1] = marks[-1] - marks[0] - inside.sum()
        return nodes
