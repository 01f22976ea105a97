"""Kernels of cores with packed arithmetic learn the bytes of the portable ones and of numpy, on the emulated board."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import smidgen as sm
from smidgen.ir import Array, Graph, evaluate_step
from smidgen.ops.conv import ConvGradWeight, DepthwiseGradWeight
from smidgen.pipeline import Program, compile
from smidgen.targets.boards import BOARDS, M0PLUS, M3
from smidgen.targets.firmware import BoardTarget
from smidgen.targets.host import Host
from smidgen.training import Options
from smidgen.zoo import build_zoo
from tests.support.cases import together
from tests.support.guarded_boards import PortableBoard, watched
from tests.support.qemu import run_firmware
from tests.support.release_files import SHARED
from tests.support.tiers import examples, first, some
from tests.support.tools import needs
from tests.support.training_cases import (
    HOWS,
    TRAINING_CASES,
    TRAINING_GRAPHS,
    How,
    conv_grad,
    depthwise_grad,
    fused,
    masked_overlay,
)
from tests.support.training_inputs import RUNS, Shape, TrainingCase, every_way, mixed

ROOMY = BOARDS["mps2-an500"]  # all cases at once need more memory than boards that are sold have
CLASSES, STEPS, RATE = 10, 20, 0.01
Graphs = Mapping[str, Graph]
Runs = list[tuple[Array, ...]]


@pytest.fixture(scope="session")
def packed(cache: Path) -> BoardTarget:
    return BoardTarget(ROOMY, cache=cache)


@pytest.fixture(scope="session")
def portable(cache: Path) -> BoardTarget:
    """The same board with the portable kernels."""
    return PortableBoard(ROOMY, cache=cache)


@pytest.fixture(scope="session")
def scalar(cache: Path) -> BoardTarget:
    """The same board with a core without packed arithmetic."""
    return BoardTarget(replace(ROOMY, core=M0PLUS), cache=cache)


def inputs(cases: Sequence[TrainingCase], run: int) -> tuple[Array, ...]:
    return tuple(array for case in cases for array in case.inputs(run))


def reference(case: TrainingCase, graph: Graph) -> Iterator[tuple[Array, ...]]:
    """The outputs of a case's runs in numpy, each going on from the state the last one left."""
    state = dict(graph.state)
    for run in range(RUNS):
        outs, state = evaluate_step(graph, state, *case.inputs(run))
        yield outs


def differing(target: BoardTarget, cases: Sequence[TrainingCase], graphs: Graphs) -> list[str]:
    """The runs of cases on a board, many to a program, that do not give numpy's bytes."""
    some = ((batch, {case.name: graphs[case.name] for case in batch}) for batch in mixed(cases))
    return [each for batch, own in some for each in _differing(target, batch, own)]


def _differing(target: BoardTarget, cases: Sequence[TrainingCase], graphs: Graphs) -> list[str]:
    with watched(compile(together(graphs), target=target)).start() as device:
        runs = [list(device.run(*inputs(cases, run))) for run in range(RUNS)]
    found = []
    for case in cases:
        for run, wanted in enumerate(reference(case, graphs[case.name])):
            got = [runs[run].pop(0) for _ in wanted]
            if any(a.tobytes() != b.tobytes() for a, b in zip(wanted, got, strict=True)):
                found.append(f"{case.name}, run {run}")
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("kind", first("packed", "scalar", "portable"))
def test_every_case_trains_on_the_board_as_numpy_does(kind: str, request: pytest.FixtureRequest) -> None:
    assert differing(request.getfixturevalue(kind), some(TRAINING_CASES, 6), TRAINING_GRAPHS) == []


@st.composite
def layers(draw: st.DrawFn) -> Iterator[TrainingCase]:
    """Every kernel of one layer: a convolution or a depthwise one, of any size, mostly one the fast kernels are for."""
    size, k = st.integers(1, 11), st.sampled_from([1, 2, 3, 4, 5, 7, 9])
    channels = st.one_of(st.sampled_from([8, 16, 24, 48, 56]), st.integers(1, 40))
    high, wide, c, stride = draw(size), draw(size), draw(channels), draw(st.sampled_from([1, 1, 2, 3]))
    how = draw(st.sampled_from(list(HOWS.values())))
    if draw(st.booleans()):
        window = (draw(k), draw(k))
        return _cases(Shape((high, wide, c), c, window, (stride, stride), draw(st.booleans()) or max(window) > 1), how)
    point = draw(st.sampled_from([1, 1, 1, 3]))
    return _cases(Shape((high, wide, c), draw(channels), (point, point), (stride, stride)), how)


def _cases(shape: Shape, how: How) -> Iterator[TrainingCase]:
    depthwise = shape.out == shape.size[2] and max(shape.k) > 1
    gradient, step = (depthwise_grad, DepthwiseGradWeight) if depthwise else (conv_grad, ConvGradWeight)
    yield from every_way("grad", *gradient(shape))
    trained = tuple(range(shape.size[2] % 3, shape.size[2], 1 + shape.size[2] % 4))
    if trained:
        yield masked_overlay("overlay", *gradient(shape), trained)
    yield fused("step", step, shape, how)


@settings(
    max_examples=examples(5, quick=1), phases=[Phase.generate]
)  # a program takes seconds to build: none to shrink
@given(drawn=st.lists(layers(), min_size=6, max_size=6))
def test_layers_of_any_shape_train_as_numpy_does(packed: BoardTarget, drawn: list[Iterator[TrainingCase]]) -> None:
    cases = [replace(case, name=f"{case.name}-{i}") for i, layer in enumerate(drawn) for case in layer]
    graphs = {case.name: case.build(np.random.default_rng(index)) for index, case in enumerate(cases)}
    assert differing(packed, cases, graphs) == []


@pytest.mark.slow
@settings(max_examples=2, phases=[Phase.generate])
@given(drawn=st.lists(layers(), min_size=6, max_size=6))
def test_they_do_on_a_core_without_packed_arithmetic(scalar: BoardTarget, drawn: list[Iterator[TrainingCase]]) -> None:
    cases = [replace(case, name=f"{case.name}-{i}") for i, layer in enumerate(drawn) for case in layer]
    graphs = {case.name: case.build(np.random.default_rng(index)) for index, case in enumerate(cases)}
    assert differing(replace(scalar, board=replace(scalar.board, core=M3)), cases, graphs) == []


@pytest.mark.slow
@needs("qemu-system-arm")
def test_qemu_finds_nothing_unaligned_and_the_same_bytes(packed: BoardTarget, tmp_path: Path) -> None:
    for batch in mixed(TRAINING_CASES):
        program = compile(together({case.name: TRAINING_GRAPHS[case.name] for case in batch}), target=packed)
        (tmp_path / "requests").write_bytes(b"r" + b"".join(array.tobytes() for array in inputs(batch, 0)))
        run_firmware(packed.build(program.graph, program.sources), tmp_path)
        wanted = [out for case in batch for out in next(reference(case, TRAINING_GRAPHS[case.name]))]
        assert (tmp_path / "answers").read_bytes() == b"".join(array.tobytes() for array in wanted)


BACKBONES = (  # network, scheme, bits of a weight, board
    ("mbv2-w0.35", "99kb", 8, "cortex-m7"),
    ("proxyless-w0.3", "98kb", 8, "cortex-m7"),
    ("mcunet-5fps", "49kb", 12, "cortex-m7"),
    ("mcunet-5fps", "49kb", 8, "cortex-m0plus"),
    ("mcunet-5fps", "49kb", 8, "esp32-c3"),
)


def learner(graph: Graph, scheme: str, target: BoardTarget | Host, bits: int) -> Program:
    return compile(graph, scheme, target, options=Options(CLASSES, weight_bits=bits), streamed_input=True)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scheme", "bits", "chip"), BACKBONES)
def test_a_released_backbone_learns_alike_on_board_and_host(
    cache: Path, host: Host, name: str, scheme: str, bits: int, chip: str
) -> None:
    path = SHARED / "models" / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"the released networks are not beside the checkout: no {path.name}")
    graph, rng = sm.import_model(path), np.random.default_rng(0)
    with (
        learner(graph, scheme, BoardTarget(BOARDS[chip], cache=cache), bits).start() as board,
        learner(graph, scheme, host, bits).start() as machine,
    ):
        for step in range(STEPS):
            image = rng.integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)
            losses = [device.train(image, step % CLASSES, RATE) for device in (board, machine)]
            assert losses[0] == losses[1], f"the losses of step {step} differ"
            for a, b in zip(board.outputs(), machine.outputs(), strict=True):
                assert a.tobytes() == b.tobytes(), f"the outputs of step {step} differ"
        kept, expected = board.state(), machine.state()
        assert [name for name in expected if kept[name].tobytes() != expected[name].tobytes()] == []


@pytest.mark.slow
def test_weights_of_12_bits_take_hardly_more_instructions_than_weights_of_8(cache: Path) -> None:
    graph, target, steps = build_zoo("mbv2-w0.35"), BoardTarget(cache=cache), []
    image = np.random.default_rng(0).integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)
    for bits in (8, 12):
        program = learner(graph, "99kb", target, bits)
        with target.start(program.graph, program.sources) as board:
            board.train(image, 1, RATE)
            board.train(image, 2, RATE)
            steps.append(board.counts().total)
    assert steps[0] < steps[1] < 1.06 * steps[0]
