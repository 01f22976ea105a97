"""Sums and heads from 2 to 200 classes and of 8 to 512 features: numpy's bytes, by every instruction set and core."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smidgen.compiler import find_compiler
from smidgen.ir import evaluate, evaluate_step
from smidgen.pipeline import compile
from smidgen.targets.boards import BOARDS
from smidgen.targets.device import Target
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.host import Host
from tests.runtime.test_instruction_sets import SETS
from tests.support.cases import GRAPHS, inputs, together
from tests.support.one_pass_cases import one_pass_cases
from tests.support.tiers import first

SMALL = ((2, 8), (7, 24))
LARGE = ((2, 160), (200, 8), (33, 129), (200, 64))
LARGEST = ((10, 512), (200, 256))
CORES = ("cortex-m0plus", "cortex-m4", "cortex-m7", "cortex-m55", "riscv32")
RUNS = 3


def agrees(target: Target, sizes: tuple[tuple[int, int], ...], ops: tuple[str, ...]) -> set[int]:
    """Run the ops of one pass at these sizes beside numpy; the codes that came."""
    cases = [case for case in one_pass_cases(sizes) if case.op.__name__ in ops]
    graphs = {case.name: case.build(np.random.default_rng(i)) for i, case in enumerate(cases)}
    states, codes = {name: dict(graph.state) for name, graph in graphs.items()}, set[int]()
    with compile(together(graphs), target=target).start() as device:
        for run in range(RUNS):
            got = list(device.run(*(array for case in cases for array in case.inputs(run))))
            for case in cases:
                wanted, states[case.name] = evaluate_step(graphs[case.name], states[case.name], *case.inputs(run))
                for one in wanted:
                    assert got.pop(0).tobytes() == one.tobytes(), case.name
                codes |= {int(wanted[-1][0])} if case.op.__name__ != "Distance" else set()
    return codes


EVERY = ("Observe", "MergeSums", "ForgetClass", "Solve", "Distance")


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("sizes", [SMALL, pytest.param(LARGE, marks=pytest.mark.slow)], ids=["small", "large"])
def test_every_instruction_set_gives_the_bytes_of_numpy(
    kind: str, sizes: tuple[tuple[int, int], ...], cache: Path
) -> None:
    native = find_compiler()
    compiler = replace(native, flags=(*native.flags, *SETS[kind]), fingerprint=f"{native.fingerprint} {SETS[kind]}")
    assert 0 in agrees(Host(compiler, cache), sizes, EVERY)


@pytest.mark.slow
def test_the_largest_sums_give_the_bytes_of_numpy(host: Host) -> None:
    assert 0 in agrees(host, LARGEST, EVERY)


def roomy(board: str, cache: Path) -> BoardTarget:
    """A board of this core that has room for anything: what is asked is what it computes."""
    return BoardTarget(BOARDS[board].roomy(), cache=cache)


@pytest.mark.slow
@pytest.mark.parametrize("board", CORES)
def test_every_core_gives_the_bytes_of_numpy(board: str, cache: Path) -> None:
    assert 0 in agrees(roomy(board, cache), (*SMALL, (200, 8), (5, 64)), EVERY)


@pytest.mark.parametrize("board", first(*CORES))
def test_every_core_projects_from_1_to_1280_features_to_numpy_s_bytes(board: str, cache: Path) -> None:
    graphs = {name: graph for name, graph in GRAPHS.items() if name.startswith("project-")}
    assert max(graph.inputs[0].type.size for graph in graphs.values()) == 1280
    with compile(together(graphs), target=roomy(board, cache)).start() as device:
        for run in range(RUNS):
            given = [inputs(graph, run) for graph in graphs.values()]
            got = device.run(*(array for one in given for array in one))
            for graph, arrays, found in zip(graphs.values(), given, got, strict=True):
                assert found.tobytes() == evaluate(graph, *arrays)[0].tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("board", ["cortex-m4", "cortex-m7"])
def test_cores_that_compute_in_float_solve_for_many_features(board: str, cache: Path) -> None:
    assert 0 in agrees(roomy(board, cache), ((3, 256),), ("Solve",))
