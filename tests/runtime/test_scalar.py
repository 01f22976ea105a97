"""Cores without packed arithmetic: kernels of one product at a time give numpy's bytes on the board."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from smidgen.codegen import RUNTIME, is_source
from smidgen.ir import Graph
from smidgen.pipeline import compile
from smidgen.targets.boards import BOARDS, M0PLUS, M3, RV32IMC, Core, resize
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.toolchain import TOOLCHAINS, Toolchain, find
from tests.runtime.test_packed import WARNINGS, agrees, layers, short_windows
from tests.support.cases import inputs, together
from tests.support.tools import need_compiler

CORES = pytest.mark.parametrize("core", [M0PLUS, M3, RV32IMC], ids=["m0plus", "m3", "riscv"])


def target(core: Core, cache: Path) -> BoardTarget:
    """A board with room for all cases at once."""
    board = BOARDS["riscv32" if core.isa == "riscv" else "mps2-an500"]
    return BoardTarget(replace(resize(board, "4MB", "4MB", "64KB"), core=core), cache=cache)


@pytest.mark.slow
@CORES
@settings(max_examples=2, phases=[Phase.generate])  # a program takes seconds to build: none to shrink
@given(
    graphs=st.lists(st.one_of(layers(), short_windows()), min_size=30, max_size=30),
    frugal=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_layers_of_any_geometry_agree_with_numpy(
    core: Core, graphs: list[Graph], frugal: bool, seed: int, cache: Path
) -> None:
    named = {f"{i} {graph.nodes[-1]}": graph for i, graph in enumerate(graphs)}
    runs = [{name: inputs(graph, run) for name, graph in named.items()} for run in (2, 3 + seed)]
    agrees(named, runs, compile(together(named), target=replace(target(core, cache), frugal=frugal)))


@pytest.mark.slow
@CORES
@pytest.mark.parametrize("kind", TOOLCHAINS)
def test_every_kernel_compiles_without_a_warning(kind: Toolchain, core: Core, tmp_path: Path) -> None:
    need_compiler(kind, core.isa)
    includes = (f"-I{RUNTIME / folder}" for folder in ("", "kernels"))
    files = sorted(filter(is_source, (RUNTIME / "scalar").iterdir()))
    find(kind, core)(*WARNINGS, *includes, "-c", *files, folder=tmp_path)
