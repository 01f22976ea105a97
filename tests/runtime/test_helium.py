"""Cores with Helium under QEMU: kernels in vectors give numpy's bytes, train as the host does, and are counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from smidgen import ops
from smidgen.codegen import RUNTIME, is_source
from smidgen.errors import TargetError
from smidgen.ir import Builder, Graph, QParams, Type, evaluate
from smidgen.pipeline import compile
from smidgen.targets.boards import BOARDS, M55, resize
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.host import Host
from smidgen.targets.qemu import find_qemu
from smidgen.targets.toolchain import TOOLCHAINS, Toolchain, find
from smidgen.training import Options
from smidgen.zoo import build_zoo
from tests.runtime.test_packed import WARNINGS, agrees, dense_layers, layers
from tests.support.cases import RUNS, inputs, together
from tests.support.tools import need_compiler, needs
from tests.support.training_inputs import TrainingCase
from tests.targets.test_board_training import differing
from tests.targets.test_board_training import layers as trained_layers

needs_qemu = needs("qemu-system-arm")


@pytest.fixture(scope="session")
def m55(cache: Path) -> BoardTarget:
    return BoardTarget(resize(BOARDS["mps3-an547"], stack="64KB"), cache=cache)  # with room for all cases at once


@pytest.mark.slow
@needs_qemu
@settings(max_examples=4, phases=[Phase.generate])  # a program takes seconds to build: none to shrink
@given(graphs=st.lists(st.one_of(layers(), dense_layers()), min_size=30, max_size=30), frugal=st.booleans())
def test_layers_of_any_shape_in_vectors_agree_with_numpy(m55: BoardTarget, graphs: list[Graph], frugal: bool) -> None:
    named = {f"layer{i}": graph for i, graph in enumerate(graphs)}
    runs = [{name: inputs(graph, run) for name, graph in named.items()} for run in range(RUNS)]
    agrees(named, runs, compile(together(named), target=replace(m55, frugal=frugal)))


@pytest.mark.slow
@needs_qemu
@pytest.mark.parametrize("k", [2, 3, 5])
def test_products_that_two_together_do_not_fit_16_bits_are_exact(m55: BoardTarget, k: int) -> None:
    g = Builder("least")
    x = g.input("x", Type((1, 8, 8, 24), "int8", QParams.per_tensor(0.05, 0)))
    w = g.constant("w", np.full((1, k, k, 24), -128, np.int8), QParams.per_channel(np.full(24, 0.01), 3))
    b = g.constant("b", np.zeros(24, np.int32))
    graph = g.graph(g.emit(ops.Depthwise(), x, w, b, q=QParams.per_tensor(10.0, 0)))
    least = np.full((1, 8, 8, 24), -128, np.int8)
    with compile(graph, target=m55).start() as board:
        np.testing.assert_array_equal(board.run(least)[0], evaluate(graph, least)[0])


@pytest.mark.slow
@needs_qemu
@settings(max_examples=3, phases=[Phase.generate])
@given(drawn=st.lists(trained_layers(), min_size=10, max_size=10))
def test_layers_of_any_shape_train_in_vectors_as_numpy_does(
    m55: BoardTarget, drawn: list[Iterator[TrainingCase]]
) -> None:
    cases = [replace(case, name=f"{case.name}-{i}") for i, layer in enumerate(drawn) for case in layer]
    graphs = {case.name: case.build(np.random.default_rng(index)) for index, case in enumerate(cases)}
    assert differing(m55, cases, graphs) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", TOOLCHAINS)
def test_every_kernel_in_vectors_compiles_without_a_warning(kind: Toolchain, tmp_path: Path) -> None:
    need_compiler(kind)
    includes = (f"-I{RUNTIME / folder}" for folder in ("", "kernels", "cortex_m"))
    files = sorted(filter(is_source, (RUNTIME / "helium").iterdir()))
    find(kind, M55)(*WARNINGS, *includes, "-c", *files, folder=tmp_path)


@pytest.mark.slow
@needs_qemu
@pytest.mark.parametrize("core", ["cortex-m55", "cortex-m85"])
def test_twenty_steps_on_a_core_with_helium_leave_the_hosts_bytes(core: str, cache: Path, host: Host) -> None:
    graph, targets = build_zoo("mbv2-w0.35"), (BoardTarget(BOARDS[core], cache=cache), host)
    options, rng = Options(10, weight_bits=8), np.random.default_rng(0)
    programs = [compile(graph, "99kb", target, options=options, streamed_input=True) for target in targets]
    assert {path.parent.name for path in programs[0].sources.runtime} >= {"helium", "cortex_m", "kernels"}
    with programs[0].start() as board, programs[1].start() as machine:
        for step in range(20):
            image = rng.integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)
            losses = [device.train(image, step % 10, 0.01) for device in (board, machine)]
            assert losses[0] == losses[1], f"the losses of step {step} differ"
        kept, expected = board.state(), machine.state()
        assert [name for name in expected if kept[name].tobytes() != expected[name].tobytes()] == []


def test_a_missing_qemu_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(TargetError, match=r"emulated by qemu-system-arm, which was not found; install it"):
        find_qemu(BOARDS["cortex-m55"])
