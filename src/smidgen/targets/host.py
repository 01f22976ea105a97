"""This machine as a target: the C built into a shared library and loaded."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from smidgen.codegen import Sources
from smidgen.errors import TargetError
from smidgen.ir import Array, Graph, check_inputs
from smidgen.targets.compiler import Cache, Compiler, cache_folder, find_compiler

INSIDE = ("-fvisibility=hidden",)  # kernels are called within the library only, and so directly


@dataclass(frozen=True)
class Host:
    """Builds with the machine's compiler, or the one given, and keeps what it built in `cache`."""

    compiler: Compiler | None = None
    cache: Path = field(default_factory=cache_folder)
    name: str = "host"

    def build(self, sources: Sources) -> Path:
        """The shared library of a program. Kernels are built once for all programs."""
        cache = Cache(self.cache, self.compiler or find_compiler())
        headers = {path.name: path.read_text() for path in sources.runtime if path.suffix == ".h"}
        objects = [
            cache.build(".o", {**headers, path.name: path.read_text()}, *INSIDE, "-I.", "-c", path.name)
            for path in sources.runtime
            if path.suffix == ".c"
        ]
        own = [name for name in sources.files if name.endswith(".c")]
        return cache.build(
            ".so", {"smidgen.h": headers["smidgen.h"], **sources.files}, "-I.", "-shared", *own, *objects
        )

    def start(self, graph: Graph, sources: Sources) -> HostDevice:
        return HostDevice(graph, sources.prefix, self.build(sources))


class HostDevice:
    """A library loaded from a copy of its own, so that no two devices share an arena."""

    def __init__(self, graph: Graph, prefix: str, library: Path) -> None:
        self.graph = graph
        self._prefix = prefix
        self._library: ctypes.CDLL | None = _load_copy(library)
        self._inputs = tuple(self._tensor("input", i, v.type.bytes) for i, v in enumerate(graph.inputs))
        self._outputs = tuple(self._tensor("output", i, v.type.bytes) for i, v in enumerate(graph.outputs))
        self._function("init")()

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        """One run of the graph: inputs in, outputs out."""
        run = self._function("run")
        self._feed(arrays)
        run()
        return tuple(
            memory.view(v.type.dtype).reshape(v.type.shape).copy()
            for v, memory in zip(self.graph.outputs, self._outputs, strict=True)
        )

    def predict(self, *arrays: Array) -> int:
        """The index of the largest element of output 0."""
        predict = self._function("predict")
        self._feed(arrays)
        return int(predict())

    def close(self) -> None:
        """Unload the library; its memory is gone with it."""
        if self._library is not None:
            self._inputs = self._outputs = ()
            handle, self._library = self._library._handle, None
            _ctypes.dlclose(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _feed(self, arrays: tuple[Array, ...]) -> None:
        check_inputs(self.graph, arrays)
        for array, memory in zip(arrays, self._inputs, strict=True):
            memory[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def _function(self, name: str) -> ctypes._NamedFuncPointer:
        if self._library is None:
            raise TargetError(f"the device running {self.graph.name} is closed; start another")
        return self._library[f"{self._prefix}_{name}"]

    def _tensor(self, role: str, index: int, size: int) -> Array:
        """The library's own memory of an input or output, as bytes."""
        function = self._function(role)
        function.restype = ctypes.c_void_p
        memory: Array = np.ctypeslib.as_array(ctypes.cast(function(index), ctypes.POINTER(ctypes.c_uint8)), (size,))
        return memory


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
