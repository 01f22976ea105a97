"""The runtime called from Python kernel by kernel, and programs built under sanitizers."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

from smidgen.codegen import PORTABLE, RUNTIME
from smidgen.compiler import Cache, cache_folder, find_compiler
from smidgen.ir import Array, Graph, Node, Value
from smidgen.pipeline import compile
from smidgen.runtime import struct, working_memory

GUARD = 64  # bytes after working memory that must stay as they are
SANITIZE = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


def portable(node: Node, by_row: bool) -> int:
    """Bytes of working memory that a node's portable kernel needs."""
    return working_memory(node, by_row, PORTABLE)


def declarations() -> str:
    """The text of the headers that declare every kernel."""
    return "".join(path.read_text() for path in sorted(RUNTIME.glob("*.h")))


def sanitized_kernels() -> list[Path]:
    """Objects of all portable kernels under sanitizers, each built once for all tests."""
    cache, folders = Cache(cache_folder(), find_compiler()), (RUNTIME, *(RUNTIME / name for name in PORTABLE))
    headers = {path.name: path.read_text() for folder in folders for path in sorted(folder.glob("*.h"))}
    sources = sorted(path for name in PORTABLE for path in (RUNTIME / name).glob("*.c"))
    return [
        cache.build(".o", {**headers, path.name: path.read_text()}, *SANITIZE, "-I.", "-c", path.name)
        for path in sources
    ]


def build_sanitized(graph: Graph, runs: int) -> Path:
    """Return an executable that runs the graph on recorded vectors and compares."""
    files = dict(compile(graph).sources.files)
    tensors = {"input": [v.type.bytes for v in graph.inputs], "output": [v.type.bytes for v in graph.outputs]}
    sizes = [f"static const size_t {n}_bytes[] = {{{', '.join(map(str, b))}}};" for n, b in tensors.items()]
    files["sizes.h"] = "\n".join([f"enum {{ RUNS = {runs}, LARGEST = {max(tensors['output'])} }};", *sizes, ""])
    files["main.c"] = (Path(__file__).parent / "sanitized_main.c").read_text()
    own = [name for name in files if name.endswith(".c")]
    headers = {path.name: path.read_text() for path in sorted(RUNTIME.glob("*.h"))}
    cache = Cache(cache_folder(), find_compiler())
    return cache.build("", {**headers, **files}, *SANITIZE, "-I.", *own, *sanitized_kernels())


class Kernels:
    """The runtime alone, called kernel by kernel."""

    def __init__(self, cache: Path, *flags: str) -> None:
        folders = (RUNTIME, *(RUNTIME / folder for folder in PORTABLE))
        files = {path.name: path.read_text() for folder in folders for path in sorted(folder.glob("*.[ch]"))}
        sources = [name for name in files if name.endswith(".c")]
        self.loaded = ctypes.CDLL(
            str(Cache(cache, find_compiler()).build(".so", files, *flags, "-I.", "-shared", *sources))
        )

    def call(self, node: Node, *arguments: object) -> None:
        params = node.op.params(node)  # kept until the call is over: the struct only points to its arrays
        self.loaded[node.op.symbol(node)](ctypes.byref(struct(params)), *arguments)


class Map(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("rows", ctypes.c_int32))


class Weights(ctypes.Structure):
    """Weights as a whole: no channels are laid over them."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("trained", ctypes.c_void_p), ("channel", ctypes.c_void_p),
        ("count", ctypes.c_int32),
    )  # fmt: skip


def pointer(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def argument(node: Node, value: Value, array: Array) -> object:
    """An input as its kernel takes it."""
    overlay_input = node.op.overlay_input is not None and value is node.ins[node.op.overlay_input]
    return ctypes.pointer(Weights(array.ctypes.data)) if overlay_input else pointer(array)


def compute(kernels: Kernels, graph: Graph, x: Array, y: Array, y0: int, y1: int) -> None:
    """Output rows [y0, y1) of a graph of one spatial op; x and y hold as many rows of their maps as they have."""
    (node,) = graph.nodes
    size = working_memory(node, y1 - y0 < node.out.type.shape[1], PORTABLE)
    scratch = np.full(size + GUARD, 0x5A, np.uint8)
    constants = [argument(node, v, graph.constants[v]) for v in node.ins[1:]]
    working = [pointer(scratch)] if node.op.working_memory else []
    maps = Map(x.ctypes.data, len(x)), Map(y.ctypes.data, len(y))
    kernels.call(node, ctypes.byref(maps[0]), *constants, ctypes.byref(maps[1]), y0, y1, *working)
    assert (scratch[size:] == 0x5A).all(), "the kernel wrote past its working memory"


def whole(kernels: Kernels, graph: Graph, x: Array) -> Array:
    y = np.zeros(graph.outputs[0].type.shape, np.int8)
    compute(kernels, graph, x[0], y[0], 0, y.shape[1])
    return y
