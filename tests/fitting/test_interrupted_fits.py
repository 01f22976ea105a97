"""Two fits never share a folder, and one that was killed leaves nothing that stops or spoils the next."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from smidgen.fitting import FitError, fit
from smidgen.fitting.lock import LOCK, Holder, locked
from tests.support.fit_folder import OUTPUT, finish, start_fit, write_photographs
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network
from tests.support.tiers import examples

KILLS = examples(50, quick=3)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a fit, by its path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@dataclass(frozen=True)
class Undisturbed:
    """What a fit leaves that nothing disturbs, and how long it takes; what it is made from."""

    folder: Path
    files: dict[str, bytes]
    seconds: float


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("fits")
    write_photographs(folder)
    began = time.monotonic()
    code, complained = finish(start_fit(folder))
    assert code == 0, complained
    found = Undisturbed(folder, contents(folder / OUTPUT), time.monotonic() - began)
    shutil.rmtree(folder / OUTPUT)
    return found


def dead_process() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen((sys.executable, "-c", "")) as process:
        process.wait()
    return process.pid


def leave_lock(folder: Path, holder: Holder) -> None:
    folder.mkdir()
    (folder / LOCK).write_text(json.dumps({"process": holder.process, "host": holder.host}))


def test_a_fit_killed_at_any_instant_is_taken_up_by_the_next_and_ends_as_if_undisturbed(
    undisturbed: Undisturbed,
) -> None:
    folder, draw = undisturbed.folder, random.Random(0)
    for _ in range(KILLS):
        process = start_fit(folder)
        time.sleep(draw.uniform(0, undisturbed.seconds))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        code, complained = finish(start_fit(folder))
        assert code == 0, complained
        assert contents(folder / OUTPUT) == undisturbed.files
        shutil.rmtree(folder / OUTPUT)


def test_a_second_fit_in_a_folder_is_refused_and_the_first_ends_undisturbed(
    undisturbed: Undisturbed,
) -> None:
    folder = undisturbed.folder
    first = start_fit(folder)
    while not (folder / OUTPUT / "fit.json").exists():
        assert first.poll() is None
        time.sleep(0.01)
    code, complained = finish(start_fit(folder, "--seed", "1"))
    assert code == 2
    assert f"{OUTPUT} is being fitted by process {first.pid} on {socket.gethostname()}; wait for it, or" in complained
    assert finish(first)[0] == 0
    assert contents(folder / OUTPUT) == undisturbed.files
    shutil.rmtree(folder / OUTPUT)


def test_the_lock_of_a_dead_process_is_taken_over_with_what_it_left(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    leave_lock(folder, Holder(dead_process(), socket.gethostname()))
    (folder / ".smidgen-0123").write_bytes(b"half a file")
    (folder / ".project-0123").mkdir()
    with locked(folder):
        assert [path.name for path in folder.iterdir()] == [LOCK]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("text", ["", '{"process": 1'])
def test_a_lock_that_was_cut_short_is_taken_over(tmp_path: Path, text: str) -> None:
    (tmp_path / LOCK).write_text(text)
    with locked(tmp_path):
        assert json.loads((tmp_path / LOCK).read_text())["process"] == os.getpid()


def test_the_lock_of_another_host_is_refused_with_the_way_out(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    leave_lock(folder, Holder(17, "elsewhere"))
    with pytest.raises(FitError, match=r"process 17 on elsewhere, which cannot be seen .* remove .*fit\.lock$"):
        fit(small_network(), draw_shapes(12, 6), folder, budget="48KB", epochs=1)
    assert [path.name for path in folder.iterdir()] == [LOCK]


@pytest.mark.parametrize("alive", [True, False])
def test_without_locks_in_the_file_system_the_process_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alive: bool
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    folder = tmp_path / "out"
    leave_lock(folder, Holder(os.getppid() if alive else dead_process(), socket.gethostname()))
    if alive:
        with pytest.raises(FitError, match="is being fitted by process"), locked(folder):
            pass
    else:
        with locked(folder):
            pass


def test_a_fit_ends_where_another_wrote_into_its_folder(tmp_path: Path) -> None:
    """A lock can be removed by hand while its fit still runs."""
    data, folder = draw_shapes(12, 6), tmp_path / "out"

    def interfere(stage: str) -> None:
        if stage == "choice" and (folder / LOCK).exists():
            (folder / LOCK).unlink()
            fit(small_network(), data, folder, budget="48KB", epochs=1)

    with pytest.raises(FitError, match="another fit wrote into"):
        fit(small_network(), data, folder, budget="48KB", epochs=3, on_progress=lambda at: interfere(at.stage))
    again = fit(small_network(), data, folder, budget="48KB", epochs=1)
    assert all(one.reused for one in again.stages)


def test_every_stage_names_the_fit_that_ran_it(tmp_path: Path) -> None:
    data = draw_shapes(12, 6)
    runs = []
    for epochs in (1, 2):
        fit(small_network(), data, tmp_path / "out", budget="48KB", epochs=epochs)
        stages = json.loads((tmp_path / "out" / "fit.json").read_text())["stages"]
        runs.append({name: entry["run"] for name, entry in stages.items()})
    assert len(set(runs[0].values())) == 1
    assert [name for name in runs[1] if runs[1][name] != runs[0][name]] == [
        "choice",
        "board",
        "learned",
        "project",
        "report",
    ]


def test_a_file_that_changes_while_a_fit_runs_is_not_taken_for_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "out"

    def change(stage: str) -> None:
        if stage == "board":
            (folder / "choice.json").write_bytes((folder / "choice.json").read_bytes() + b" ")

    with pytest.raises(FitError, match=r"choice\.json was not written by this fit, or was changed since"):
        fit(
            small_network(), draw_shapes(12, 6), folder, budget="48KB", epochs=1,
            on_progress=lambda at: change(at.stage),
        )  # fmt: skip
