"""A ring of examples in flash, beside a store: the power may fail at any moment; each example is whole or absent."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from experiments.flash import PARTS, FlashPart, room_for_examples
from smidgen.codegen import RUNTIME, kept_examples, ring_header, store_files
from smidgen.compiler import find_compiler
from smidgen.ops.rules import Momentum
from smidgen.pipeline import compile
from smidgen.targets.host import Host
from smidgen.training import Options
from tests.support.board_checks import HERE, STORE, board_answers
from tests.support.native import SANITIZE, sanitized_kernels
from tests.support.networks import CLASSES, inverted_residual
from tests.support.tiers import first


def test_power_that_fails_while_examples_are_replayed_leaves_old_or_new_state_and_whole_examples(
    tmp_path: Path,
) -> None:
    folders = (f"-I{STORE}", f"-I{HERE}")
    find_compiler()(
        *SANITIZE, *folders, "-o", "checks", *sorted(STORE.glob("*.c")), HERE / "replay_main.c", folder=tmp_path
    )
    done = subprocess.run([tmp_path / "checks"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    cuts = [int(found) for found in re.findall(r"part \d: (\d+) cuts", done.stdout)]
    assert len(cuts) == 8
    assert sum(cuts) > 1000


def test_a_program_that_replays_and_saves_outlives_1000_power_cuts(tmp_path: Path, host: Host) -> None:
    options = Options(CLASSES, weight_bits=12, rule=Momentum(0.9))
    program = compile(inverted_residual(6), "last:2", host, options=options, replay="64KB")
    store = {Path(name).name: text for name, text in store_files().items() if name.startswith("smidgen/")}
    header = ring_header(program.graph, program.sources.latent, "model")
    files = {**store, **program.sources.files, **header, "main.c": (HERE / "replay_model_main.c").read_text()}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    own = [name for name in files if name.endswith(".c")]
    folders = ("-I.", f"-I{HERE}", f"-I{RUNTIME}")
    find_compiler()(*SANITIZE, *folders, "-o", "checks", *own, *sanitized_kernels(), folder=tmp_path)
    done = subprocess.run([tmp_path / "checks"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    cuts, replayed = (int(found) for found in re.findall(r"\d+", done.stdout))
    assert cuts >= 1000
    assert replayed > 1000


@pytest.mark.parametrize(("name", "rounds"), first(("cortex-m7", 1000), ("cortex-m0plus", 20), quick=0))
def test_the_same_holds_on_an_emulated_board(name: str, rounds: int, cache: Path) -> None:
    failed, cuts, refused = board_answers("replay", name, f"ROUNDS={rounds}", cache)
    assert (failed, refused) == (0, 0), f"line {failed or refused} of replay_checks.h"
    assert cuts > rounds // 2


@pytest.mark.parametrize("part", PARTS.values(), ids=lambda part: part.name)
@pytest.mark.parametrize("size", [160, 2560, 49152])
def test_compile_and_the_ring_agree_on_how_many_examples_fit(part: FlashPart, size: int, cache: Path) -> None:
    for sectors in (1, 2, 3, 16, 64, 100):
        wanted = room_for_examples(part, sectors, size, cache)
        assert kept_examples(sectors * part.sector_bytes, size, part.sector_bytes, part.unit_bytes) == wanted
