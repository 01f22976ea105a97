"""WebAssembly in tests: the target that they share."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from smidgen.targets.wasm import Wasm


def wasm_target(cache: Path, simd: bool, frugal: bool = True) -> Wasm:
    """Return the target, or skip the test where wasmtime is missing; frugal, so that tests run rows, too."""
    if importlib.util.find_spec("wasmtime") is None:
        pytest.skip("wasmtime is not installed: pip install 'smidgen[wasm]'")
    return Wasm(simd=simd, cache=cache, frugal=frugal)
