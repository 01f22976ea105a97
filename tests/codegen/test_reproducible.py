"""The same model, scheme and target give the same firmware, whatever the machine is busy with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.firmware import PROJECTS

TOP = Path(__file__).parents[2]


def firmware(name: str, hash_seed: int) -> str:
    """The digests of a project's files, made in a process that hashes names by this seed."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.firmware", name],
        cwd=TOP,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@contextmanager
def busy() -> Iterator[None]:
    """Twice as many processes as there are cores, each of which takes all it gets."""
    spin = [sys.executable, "-c", "while True: pass"]
    spinning = [subprocess.Popen(spin) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("name", PROJECTS)
def test_a_busy_machine_and_another_order_of_names_give_the_same_firmware(name: str) -> None:
    idle = firmware(name, hash_seed=1)
    assert idle.count("\n") == len(set(idle.splitlines())) > 0
    with busy():
        assert firmware(name, hash_seed=2) == idle
