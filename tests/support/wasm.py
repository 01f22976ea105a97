"""WebAssembly in tests: the target that they share, and whether what runs modules is installed."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from smidgen.targets.wasm import Wasm

NODE = "node"


def wasm_target(cache: Path, simd: bool, frugal: bool = True) -> Wasm:
    """Return the target, or skip the test where wasmtime is missing; frugal, so that tests run rows, too."""
    if importlib.util.find_spec("wasmtime") is None:
        pytest.skip("wasmtime is not installed: pip install 'smidgen[wasm]'")
    return Wasm(simd=simd, cache=cache, frugal=frugal)


def need_node() -> None:
    """Skip the test where there is no Node."""
    if shutil.which(NODE) is None:
        pytest.skip("node is not installed: apt install nodejs")
