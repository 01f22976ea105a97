"""WebAssembly as a target: a program as one module without imports, run here by wasmtime."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from smidgen.codegen import PORTABLE, Sources, render, wasm_exports
from smidgen.compiler import Cache, Compiler, cache_folder, cross
from smidgen.errors import TargetError
from smidgen.ir import Graph
from smidgen.memory import Plan
from smidgen.targets import device
from smidgen.targets.wasm_device import WasmDevice

if TYPE_CHECKING:
    import wasmtime

STACK = 1 << 18  # bytes, at the module's first addresses: one that overflows traps
# Contraction would change bytes. What a browser has had since 2021 is taken for granted; SIMD is asked for.
FLAGS = (
    "-target", "wasm32-freestanding", "-std=c99", "-O3", "-g0", "-ffp-contract=off", "-fno-math-errno",
    "-ffreestanding", "-ffunction-sections", "-fdata-sections", "-fno-sanitize=undefined", "-fvisibility=hidden",
    "-Wall", "-Wextra", "-Werror",
)  # fmt: skip
LINK = ("-nostdlib", "-Wl,--no-entry", "-Wl,--gc-sections", "-Wl,--strip-all", f"-Wl,-z,stack-size={STACK}")
SIMD = "-msimd128"
WANTED = ("memory", "about", "init", "input", "output", "run", "predict", "scores")  # exports of every program
PROJECT = ("Makefile", "README.md")
MAGIC = b"\0asm"


@dataclass(frozen=True)
class Wasm(device.Target):
    """Builds a module with the ziglang wheel and keeps what it built; `simd` lets its kernels use vectors."""

    simd: bool = True
    cache: Path = field(default_factory=cache_folder)
    frugal: bool = False
    overhead: int = STACK
    name: str = "wasm"
    folders: tuple[str, ...] = PORTABLE

    def build(self, graph: Graph, sources: Sources) -> Path:
        """Build the module of a program. Kernels are built once for all programs."""
        kept = Cache(self.cache, find_compiler(self.simd))
        files = {**sources.interface_headers, **sources.files, **wasm_exports(graph, sources)}
        own = [name for name in files if name.endswith(".c")]
        return kept.build(".wasm", files, "-I.", *LINK, *own, *sources.objects(kept))

    def project(self, graph: Graph, sources: Sources, fields: Mapping[str, object]) -> dict[str, str]:
        """Return the exports, how to build them, and how to use them."""
        optional = " ".join(flag for flag in FLAGS if flag != "-Werror")
        every = {**fields, "flags": optional, "link": " ".join(LINK), "simd": SIMD}
        own = {f"board/{name}": text for name, text in wasm_exports(graph, sources).items()}
        return own | {name: render(f"wasm/{name}", **every) for name in PROJECT}

    def built(self, graph: Graph, sources: Sources) -> dict[str, bytes]:
        """Return both modules of a program, by name."""
        names = {False: f"{sources.prefix}.wasm", True: f"{sources.prefix}.simd.wasm"}
        return {name: replace(self, simd=simd).build(graph, sources).read_bytes() for simd, name in names.items()}

    def check(self, graph: Graph, layout: Plan, sources: Sources) -> None:
        """A module has room for any program that this machine can plan."""

    def start(self, graph: Graph, sources: Sources) -> WasmDevice:
        engine = start_engine()
        return WasmDevice(graph, sources, engine, load_module(engine, self.build(graph, sources)))


@cache
def find_compiler(simd: bool) -> Compiler:
    """Return the compiler for modules with vectors or without; TargetError names the package where it is missing."""
    if importlib.util.find_spec("ziglang") is None:
        raise TargetError("no compiler for WebAssembly was found; run: pip install ziglang")
    return cross((sys.executable, "-m", "ziglang", "cc"), (*FLAGS, *((SIMD,) if simd else ())))


def start_engine() -> wasmtime.Engine:
    """Return an engine that runs modules; TargetError names the extra that brings wasmtime."""
    if importlib.util.find_spec("wasmtime") is None:
        raise TargetError("nothing here runs WebAssembly; run: pip install 'smidgen[wasm]'")
    import wasmtime

    return wasmtime.Engine()


def load_module(engine: wasmtime.Engine, file: Path) -> wasmtime.Module:
    """Read and compile a module; TargetError unless it is one that Smidgen built."""
    import wasmtime

    try:
        octets = file.read_bytes()
    except OSError as error:
        raise TargetError(f"{file} cannot be read: {error.strerror}") from None
    if octets[: len(MAGIC)] != MAGIC:
        raise TargetError(f"{file} is no WebAssembly module; give the .wasm that `smidgen compile --target wasm` wrote")
    try:
        module = wasmtime.Module(engine, octets)
    except wasmtime.WasmtimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise TargetError(f"{file} is damaged ({reason}); compile it again") from None
    exported = {one.name for one in module.exports}
    if missing := [name for name in WANTED if name not in exported]:
        raise TargetError(f"{file} exports no {missing[0]!r}: it is no module of Smidgen's; compile it again")
    if foreign := [one.name for one in module.imports]:
        raise TargetError(f"{file} imports {foreign[0]!r}, and Smidgen's modules import nothing; compile it again")
    return module
