"""Every kernel that trains against the numpy reference, byte for byte: on the host, under sanitizers, and guarded."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from smidgen.codegen import PORTABLE, RUNTIME
from smidgen.ir import OPS, Array, Op, evaluate_all, evaluate_step
from smidgen.numerics import float32
from smidgen.ops import losses
from smidgen.ops.gradient import ParameterGrad
from smidgen.ops.update import FusedStep
from smidgen.pipeline import compile
from smidgen.runtime import working_memory
from smidgen.targets.host import Host
from tests.support.cases import CASES, GRAPHS, together
from tests.support.native import Kernels, argument, build_sanitized, declarations, pointer
from tests.support.once import Once
from tests.support.training_cases import TRAINING_CASES, TRAINING_GRAPHS
from tests.support.training_inputs import RUNS, TrainingCase, mixed

LITERAL = re.compile(r"-?\b\d+(?:\.\d+)?(?:e[+-]?\d+)?f\b")
DECLARED = re.compile(r"^void (smg_\w+)\(const \1_params", re.MULTILINE)  # what begins state takes no parameters
GUARD = 64  # bytes around what a kernel writes that must stay as they are
Runs = list[tuple[Array, ...]]


def expected(case: TrainingCase) -> Runs:
    """The outputs of a case's runs, each going on from the state the last one left."""
    graph = TRAINING_GRAPHS[case.name]
    state, runs = dict(graph.state), []
    for run in range(RUNS):
        outs, state = evaluate_step(graph, state, *case.inputs(run))
        runs.append(outs)
    return runs


def inputs(cases: Sequence[TrainingCase], run: int) -> tuple[Array, ...]:
    return tuple(array for case in cases for array in case.inputs(run))


@pytest.fixture(scope="session")
def recorded(host: Host, once: Once) -> dict[str, Runs]:
    """The host's outputs of every case, run after run."""
    return once("training kernels", lambda _: record(host))


def record(host: Host) -> dict[str, Runs]:
    recorded: dict[str, Runs] = {case.name: [] for case in TRAINING_CASES}
    for batch in mixed(TRAINING_CASES):
        graphs = {case.name: TRAINING_GRAPHS[case.name] for case in batch}
        with compile(together(graphs), target=host).start() as device:
            for run in range(RUNS):
                outs = list(device.run(*inputs(batch, run)))
                for name, graph in graphs.items():
                    recorded[name].append(tuple(outs.pop(0) for _ in graph.outputs))
    return recorded


def same_bytes(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def test_every_op_that_trains_has_a_case() -> None:
    compiled = {name for name, op in OPS.items() if op.kernel or op.symbol is not Op.symbol or op.view or op.virtual}
    assert {case.op.__name__ for case in (*CASES, *TRAINING_CASES)} == compiled


def test_every_gradient_that_a_step_computes_itself_has_a_case() -> None:
    steps = [node.op for graph in TRAINING_GRAPHS.values() for node in graph.nodes if isinstance(node.op, FusedStep)]
    assert {type(op.gradient).__name__ for op in steps} == {n for n, op in OPS.items() if issubclass(op, ParameterGrad)}


def test_every_kernel_has_a_case() -> None:
    graphs = (*GRAPHS.values(), *TRAINING_GRAPHS.values())
    called = {node.op.symbol(node) for graph in graphs for node in graph.nodes} - {""}
    assert set(DECLARED.findall(declarations())) == called | {"smg_log_mel_s8"}  # which test_audio.py calls


def test_training_case_names_are_unique() -> None:
    assert len(TRAINING_GRAPHS) == len(TRAINING_CASES)


@pytest.mark.parametrize("case", TRAINING_CASES, ids=lambda case: case.name)
def test_the_host_trains_as_numpy_does(case: TrainingCase, recorded: dict[str, Runs]) -> None:
    for run, (wanted, got) in enumerate(zip(expected(case), recorded[case.name], strict=True)):
        for index, (a, b) in enumerate(zip(wanted, got, strict=True)):
            assert same_bytes(a, b), f"run {run}, output {index}: {a.ravel()[:20]} wanted, {b.ravel()[:20]} got"


def test_no_kernel_that_trains_trips_a_sanitizer(tmp_path: Path) -> None:
    for number, batch in enumerate(mixed(TRAINING_CASES)):
        folder = tmp_path / str(number)
        folder.mkdir()
        outs = {case.name: expected(case) for case in batch}
        with (folder / "vectors").open("wb") as vectors:
            for run in range(RUNS):
                vectors.writelines(array.tobytes() for array in inputs(batch, run))
                vectors.writelines(array.tobytes() for runs in outs.values() for array in runs[run])
        executable = build_sanitized(together({name: TRAINING_GRAPHS[name] for name in outs}), RUNS)
        result = subprocess.run([executable, "vectors"], cwd=folder, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{result.stdout}\n{result.stderr[:4000]}"


class Guarded:
    """An array between bytes that must not change."""

    def __init__(self, data: Array) -> None:
        self.bytes = np.full(data.nbytes + 2 * GUARD, 0x5A, np.uint8)
        self.data = self.bytes[GUARD : GUARD + data.nbytes]
        self.data[:] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)

    def intact(self) -> bool:
        return bool((self.bytes[:GUARD] == 0x5A).all() and (self.bytes[GUARD + self.data.size :] == 0x5A).all())


@pytest.mark.parametrize(
    "case", [c for c in TRAINING_CASES if not (c.op.variadic or c.op.virtual)], ids=lambda case: case.name
)
def test_a_kernel_that_trains_writes_its_outputs_and_nothing_else(case: TrainingCase, kernels: Kernels) -> None:
    graph = TRAINING_GRAPHS[case.name]
    (node,) = (node for node in graph.nodes if isinstance(node.op, case.op))
    values = evaluate_all(graph, graph.state, *case.inputs(RUNS - 1))
    replaced = {new: old for old, new in graph.updates.items()}
    held = {v: Guarded(values[v]) for v in node.ins}
    held |= {v: held[replaced[v]] if v in replaced else Guarded(np.zeros_like(values[v])) for v in node.outs}
    scratch = Guarded(np.zeros(working_memory(node, False, PORTABLE), np.uint8))
    arguments = [None if v is None else argument(node, v, held[v].data) for v in node.op.arguments(node)]
    kernels.call(node, *arguments, pointer(scratch.data))
    for value, memory in held.items():
        assert memory.intact(), f"the kernel wrote beside %{value.name}"
        final = graph.updates.get(value, value)
        assert memory.data.tobytes() == values[final].tobytes(), f"%{value.name} is not as it should be"
    assert scratch.intact(), "the kernel wrote past its working memory"


@pytest.mark.parametrize("spread", [0.01, 1.0, 30.0])
def test_the_loss_is_the_same_number_for_many_logits(spread: float, kernels: Kernels) -> None:
    (node,) = TRAINING_GRAPHS["cross-entropy-10"].nodes
    rng, total, probabilities = np.random.default_rng(1), np.zeros(1, np.float32), np.zeros((1, 10), np.float32)
    for index in range(2000):
        logits, label = rng.normal(0, spread, (1, 10)).astype(np.float32), np.array([index % 10], np.int32)
        kernels.call(node, *(pointer(array) for array in (logits, label, total, probabilities)))
        wanted = node.op.ref(node, logits, label)
        assert same_bytes(wanted[0], total), f"{logits} has loss {wanted[0]}, got {total}"
        assert same_bytes(wanted[1], probabilities), f"{logits} has probabilities {wanted[1]}, got {probabilities}"


def test_the_loss_has_the_same_constants_in_c() -> None:
    text = "".join((RUNTIME / "kernels" / name).read_text() for name in ("exp_log.h", "losses.c"))
    ours = {np.float32(found[:-1]) for found in LITERAL.findall(text)}
    named = {float32.LOG2_E, float32.LN2_HIGH, float32.LN2_LOW, *float32.EXP_TERMS, *float32.LOG_TERMS}
    named |= {losses.LOGIT_LIMIT, losses.ERROR_LIMIT}
    assert named <= ours
