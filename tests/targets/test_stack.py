"""The stack of firmware: its bound, read from machine code, holds in every run and does not grow with the layers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smidgen.codegen import RUNTIME
from smidgen.errors import TargetError
from smidgen.ir import Graph
from smidgen.pipeline import Program, compile
from smidgen.targets.boards import BOARDS, M0PLUS, M7, RV32IMC, Core, resize
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.image import bound_stack
from smidgen.targets.toolchain import TOOLCHAINS, Toolchain, find, link_flags, start_files
from smidgen.training import Options
from smidgen.zoo import load
from tests.support.networks import CLASSES, branches, inverted_residual
from tests.support.tiers import first
from tests.support.tools import need_compiler

FRAME = re.compile(r":(\w+)\t(\d+)\t(static|dynamic,bounded)")


@pytest.fixture(params=first(*TOOLCHAINS))
def compiler(request: pytest.FixtureRequest) -> Toolchain:
    kind: Toolchain = request.param
    need_compiler(kind, "thumb")
    return kind


def learner(graph: Graph, target: BoardTarget, streamed: bool = False) -> Program:
    return compile(graph, "full", target, options=Options(CLASSES), streamed_input=streamed)


@pytest.mark.parametrize("board", first("cortex-m7", "riscv32", "cortex-m3", "cortex-m0plus", quick=2))
@pytest.mark.parametrize("network", first(inverted_residual, branches))
def test_no_run_uses_more_stack_than_the_bound(
    network: Callable[[int], Graph], board: str, compiler: Toolchain, cache: Path
) -> None:
    target = BoardTarget(BOARDS[board], compiler, cache)
    need_compiler(compiler, target.board.core.isa)
    program = learner(network(3), target)
    image = np.zeros(program.graph.image.type.shape, np.int8)
    with target.start(program.graph, program.sources) as device:
        for step in range(2):
            device.train(image + np.int8(step), step, 0.02)
        memory = device.memory()
    assert 0.7 * memory.stack_bound < memory.stack <= memory.stack_bound <= target.board.stack


def test_the_stack_does_not_grow_with_the_layers(compiler: Toolchain, cache: Path) -> None:
    target = BoardTarget(BOARDS["mps2-an500"], compiler, cache)
    programs = [
        compile(load("proxyless-w0.3"), scheme, target, options=Options(10, weight_bits=8), streamed_input=True)
        for scheme in ("49kb", "148kb")
    ]
    small, large = (dict(bound_stack(target.build(p.graph, p.sources)).path)["model_train"] for p in programs)
    assert len(programs[1].graph.nodes) > 1.4 * len(programs[0].graph.nodes)
    assert large <= small + 32


def built(text: str, core: Core, compiler: Toolchain, folder: Path, *more: str) -> Path:
    """A program of one file, linked; `reset` is where it begins."""
    need_compiler(compiler, core.isa)
    script = start_files(replace(BOARDS["cortex-m7"], core=core))["board.ld"]
    (folder / "board.ld").write_text(script)
    (folder / "program.c").write_text(f"void reset(void);\n{text}")
    words = (*more, "-T", "board.ld", *link_flags(compiler, core), "-o", "program.elf", "program.c")
    find(compiler, core)(*words, folder=folder)
    return folder / "program.elf"


LARGE = """
__attribute__((noinline)) static int inner(int n) { volatile char a[%d]; for (int i = 0; i < %d; i++) a[i] = (char)n;
    return a[n]; }
__attribute__((noinline)) static int outer(int n) { volatile char a[100]; a[n] = 1; return inner(n) + a[n]; }
void reset(void) { volatile int n = 3; n = outer(n); for (;;) { } }
"""


@pytest.mark.parametrize("core", [M7, M0PLUS, RV32IMC], ids=lambda core: core.name)
@pytest.mark.parametrize("size", first(400, 70_000, 40, 1500, 5000, quick=2))
def test_frames_of_any_size_are_read_from_the_code(size: int, core: Core, compiler: Toolchain, tmp_path: Path) -> None:
    bound = bound_stack(built(LARGE % (size, size), core, compiler, tmp_path))
    assert size + 100 <= bound.bytes <= size + 100 + 120
    assert [name for name, _ in bound.path][:3] == ["reset", "outer", "inner"]


@pytest.mark.parametrize("core", [M7, RV32IMC], ids=lambda core: core.name)
def test_a_recursion_has_no_bound_and_is_named(core: Core, compiler: Toolchain, tmp_path: Path) -> None:
    text = """
    int even(int n); int odd(int n);
    __attribute__((noinline)) int even(int n) { volatile int m = n; return m ? odd(m - 1) + m : 1; }
    __attribute__((noinline)) int odd(int n) { volatile int m = n; return m ? even(m - 1) + m : 0; }
    void reset(void) { volatile int n = 3; n = even(n); for (;;) { } }
    """
    with pytest.raises(TargetError, match=r"no bound: (even → odd → even|odd → even → odd) is a recursion"):
        bound_stack(built(text, core, compiler, tmp_path))


@pytest.mark.parametrize("core", [M7, RV32IMC], ids=lambda core: core.name)
def test_a_frame_that_is_decided_as_it_runs_has_no_bound(core: Core, compiler: Toolchain, tmp_path: Path) -> None:
    text = """
    __attribute__((noinline)) static int any(int n) { volatile char a[n]; a[n - 1] = 1; return a[0]; }
    void reset(void) { volatile int n = 3; n = any(n); for (;;) { } }
    """
    with pytest.raises(TargetError, match="any decides its frame as it runs"):
        bound_stack(built(text, core, compiler, tmp_path))


@pytest.mark.parametrize("core", [M7, RV32IMC], ids=lambda core: core.name)
def test_what_is_called_through_a_pointer_counts(core: Core, compiler: Toolchain, tmp_path: Path) -> None:
    text = """
    static int deep(int n) { volatile char a[600]; a[n] = 1; return a[0]; }
    int (*volatile called)(int) = deep;
    void reset(void) { volatile int n = 3; n = called(n); for (;;) { } }
    """
    assert bound_stack(built(text, core, compiler, tmp_path)).bytes > 600


@pytest.mark.slow
@pytest.mark.parametrize("board", ["cortex-m7", "riscv32"])
def test_gcc_itself_names_no_larger_frame(board: str, tmp_path: Path, cache: Path) -> None:
    need_compiler("gcc", BOARDS[board].core.isa)
    target = BoardTarget(BOARDS[board], "gcc", cache)
    program = learner(inverted_residual(3), target)
    path = bound_stack(target.build(program.graph, program.sources)).path
    includes = (f"-I{RUNTIME / name}" for name in ("", *target.folders))
    sources = [p for p in program.sources.kernels if p.suffix == ".c"]
    find("gcc", target.board.core)(*includes, "-fstack-usage", "-c", *sources, folder=tmp_path)
    reports = (file.read_text() for file in tmp_path.glob("*.su"))
    named = {name: int(size) for text in reports for name, size, _ in FRAME.findall(text)}
    compared = {name: (frame, named[name]) for name, frame in path if name in named}
    assert len(compared) >= 2
    assert all(ours >= theirs for ours, theirs in compared.values()), compared


def test_a_stack_that_is_too_small_is_refused_before_anything_runs(compiler: Toolchain, cache: Path) -> None:
    target = BoardTarget(resize(BOARDS["cortex-m7"], stack="1KB"), compiler, cache)
    figures = r"net3 can grow to [12],\d{3} bytes, cortex-m7 reserves 1,024: .*model_train \d+"
    wanted = rf"{figures}.* Reserve more with .* --stack 2KB"
    with pytest.raises(TargetError, match=wanted):
        learner(inverted_residual(3), target).start()
