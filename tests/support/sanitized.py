"""Kernels under AddressSanitizer and UndefinedBehaviorSanitizer, called node by node: every tensor, table and working
memory is a separate allocation of exactly the graph's size.

The process that loads them must have the sanitizer's runtime preloaded: see `environment`.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

import numpy as np

from smidgen.compiler import find_compiler
from smidgen.ir import Array, Graph, Node, Params, Value, evaluate_all
from smidgen.runtime import struct
from tests.support.native import SANITIZE, Kernels, Map, Weights, portable

PAINT = 0xA5  # of memory before anything is written there


def environment() -> dict[str, str]:
    """The environment in which a process can load sanitized kernels."""
    compiler = find_compiler()
    runtime = subprocess.run(
        [*compiler.command, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return {**os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1"}


class Disagreement(Exception):
    """C computed other bytes than numpy, or changed what it may only read."""


class Memory:
    """Allocations of the C library, each with its own red zones; all given back at the end."""

    def __init__(self) -> None:
        self.allocator = ctypes.CDLL(None)
        self.allocator.malloc.restype = ctypes.c_void_p
        self.allocator.malloc.argtypes = [ctypes.c_size_t]
        self.allocator.free.argtypes = [ctypes.c_void_p]
        self.held: list[int] = []

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for address in self.held:
            self.allocator.free(address)

    def take(self, size: int) -> int:
        address = int(self.allocator.malloc(size))
        ctypes.memset(address, PAINT, size)
        self.held.append(address)
        return address

    def copy(self, array: Array) -> int:
        whole = np.ascontiguousarray(array)
        address = self.take(whole.nbytes)
        ctypes.memmove(address, whole.ctypes.data, whole.nbytes)
        return address


class Run:
    """One run of a graph in C, compared with numpy's values node by node."""

    def __init__(self, kernels: Kernels, memory: Memory, graph: Graph, arrays: tuple[Array, ...]) -> None:
        self.kernels, self.memory, self.graph = kernels, memory, graph
        self.expected: Mapping[Value, Array] = evaluate_all(graph, graph.state, *arrays)
        given = {**dict(zip(graph.inputs, arrays, strict=True)), **graph.constants, **graph.state}
        self.places = {value: memory.copy(array) for value, array in given.items()}
        self.virtual: dict[Value, Node] = {}

    def all(self) -> None:
        replaced = {new: old for old, new in self.graph.updates.items()}
        for node in self.graph.nodes:
            if node.op.virtual:
                self.virtual[node.out] = node
                continue
            if node.op.view:
                self.places[node.out] = self.places[node.ins[0]]
                continue
            for value in node.outs:
                old = replaced.get(value)
                self.places[value] = self.places[old] if old else self.memory.take(value.type.bytes)
            self.call(node)
            for value in node.outs:
                self.compare(value, node)
        for value in self.graph.constants:
            self.compare(value, self.graph.nodes[-1])

    def call(self, node: Node) -> None:
        params = self.placed(node.op.params(node))
        self.kernels.loaded[node.op.symbol(node)](ctypes.byref(struct(params)), *self.arguments(node))

    def placed(self, params: Params) -> Params:
        """Parameters whose tables lie in allocations of their own."""
        held = {}
        for name, item in params.items():
            if isinstance(item, np.ndarray):
                address = self.memory.copy(item)
                item = np.ctypeslib.as_array((ctypes.c_uint8 * item.nbytes).from_address(address))
            held[name] = item
        return held

    def arguments(self, node: Node) -> Iterator[object]:
        """Return the parameters that codegen writes, for ctypes."""
        op, shape = node.op, node.outs[0].type.shape
        if op.variadic:
            yield (ctypes.c_void_p * len(node.ins))(*(self.places[v] for v in node.ins))
        for value in op.arguments(node):
            if value is None:
                yield None
            elif op.overlay_input is not None and value is node.ins[op.overlay_input]:
                yield ctypes.pointer(self.weights(value))
            elif op.spatial and value in (node.ins[0], node.outs[0]):
                yield ctypes.pointer(Map(self.places[value], value.type.shape[1]))
            elif not (op.variadic and value in node.ins):
                yield ctypes.c_void_p(self.places[value])
        if op.spatial:
            yield from (ctypes.c_int32(0), ctypes.c_int32(shape[1]))
        if op.elementwise:
            yield ctypes.c_int32(node.outs[0].type.size)
        if op.working_memory:
            size = portable(node, False)
            yield ctypes.c_void_p(self.memory.take(size)) if size else None

    def weights(self, value: Value) -> Weights:
        if value not in self.virtual:
            return Weights(self.places[value])
        node = self.virtual[value]
        frozen, trained = (self.places[v] for v in node.ins)
        (channels,) = node.op.params(node).values()
        assert isinstance(channels, np.ndarray)
        return Weights(frozen, trained, self.memory.copy(channels), channels.size)

    def compare(self, value: Value, node: Node) -> None:
        want = np.ascontiguousarray(self.expected[value])
        octets = ctypes.string_at(self.places[value], want.nbytes)
        if octets == want.tobytes():
            return
        got = np.frombuffer(octets, want.dtype).reshape(want.shape)
        if want.dtype != np.float32 or not np.array_equal(want, got, equal_nan=True):
            found = f"{got.ravel()[:8]}, not {want.ravel()[:8]}"
            raise Disagreement(f"%{value.name} of {type(node.op).__name__} is {found}")


def sanitized_kernels(cache: Path) -> Kernels:
    return Kernels(cache, *SANITIZE, "-O0")  # quicker to build
