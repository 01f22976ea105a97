"""Generated programs that learn, under the sanitizers of address and undefined behaviour: every rule, both heads."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from smidgen.codegen import RUNTIME
from smidgen.compiler import find_compiler
from smidgen.ir import Graph, evaluate_step
from smidgen.memory import state_offsets
from smidgen.ops.rules import Momentum, Sgd, UpdateRule
from smidgen.pipeline import compile
from smidgen.targets.host import Host
from smidgen.training import Options
from smidgen.training.options import HeadDtype
from tests.support.native import SANITIZE, sanitized_kernels
from tests.support.networks import CLASSES, branches, inverted_residual
from tests.support.tiers import first

MAIN = Path(__file__).parents[1] / "support" / "sanitized_train_main.c"
STEPS, RATE = 3, 0.02


@dataclass(frozen=True)
class Learner:
    """A way to learn."""

    rule: UpdateRule
    head: HeadDtype
    bits: int
    scheme: str = "full"
    streamed: bool = False


LEARNERS = {
    "sgd": Learner(Sgd(), "float32", 12),
    "sgd-int8-head": Learner(Sgd(), "int8", 8),
    "accumulated": Learner(Sgd(accumulate=2), "float32", 10),
    "momentum": Learner(Momentum(0.9), "int8", 12),
    "momentum-accumulated": Learner(Momentum(0.6, accumulate=2), "float32", 8),
    "streamed": Learner(Momentum(0.9), "float32", 12, "last:4", streamed=True),
}


@pytest.fixture(scope="module")
def kernels() -> list[Path]:
    return sanitized_kernels()


@pytest.mark.parametrize("network", [inverted_residual, branches], ids=lambda f: str(f.__name__))
@pytest.mark.parametrize("name", first("streamed", *(name for name in LEARNERS if name != "streamed")))
def test_a_program_that_learns_is_clean_and_exact(
    name: str, network: Callable[[int], Graph], kernels: list[Path], host: Host, tmp_path: Path
) -> None:
    how = LEARNERS[name]
    options = Options(CLASSES, weight_bits=how.bits, rule=how.rule, head_dtype=how.head)
    program = compile(network(3), how.scheme, host, options=options, streamed_input=how.streamed)
    for file, text in program.sources.files.items():
        (tmp_path / file).write_text(text)
    shape = program.graph.image.type.shape
    defines = (f"-DSTREAMED={int(how.streamed)}", f"-DROW_BYTES={int(np.prod(shape)) // shape[1]}")
    words = (*SANITIZE, *defines, "-I.", f"-I{RUNTIME}", "-o", "learner", MAIN, "model.c", "model_weights.c")
    find_compiler()(*words, *kernels, folder=tmp_path)
    images = np.random.default_rng(5).integers(-128, 128, (STEPS, *shape)).astype(np.int8)
    (tmp_path / "images").write_bytes(images.tobytes())
    result = subprocess.run([tmp_path / "learner", "images"], cwd=tmp_path, capture_output=True, check=False)
    assert result.returncode == 0, result.stderr.decode()[:4000]
    assert program.training is not None
    reference = program.training.step
    state = reference.state
    for step, image in enumerate(images):
        label, rate = np.array([step % 2], np.int32), np.array([RATE], np.float32)
        _, state = evaluate_step(reference, state, image, label, rate)
    for value, at in state_offsets(program.graph).items():
        expected = {v.name: array for v, array in state.items()}[value.name]
        assert result.stdout[at : at + value.type.bytes] == expected.tobytes(), f"%{value.name} differs"
