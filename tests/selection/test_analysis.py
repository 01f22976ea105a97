"""An analysis gives the same file whoever runs it, whatever dies on the way, and wherever it was interrupted."""

from __future__ import annotations

import json
import operator
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import smidgen as sm
from smidgen.errors import InputError, TargetError
from smidgen.learning import Course
from smidgen.selection import AnalysisProgress, ContributionsError, analysis, launchers
from smidgen.selection.analysis import journal_path
from smidgen.selection.contributions import read_contributions
from smidgen.selection.launchers import OnDevice, OnHost, OnRay
from smidgen.selection.trials import DIVERGED, Setup, Trial, agenda
from smidgen.selection.workers import share_out
from tests.support.analyses import (
    RUNS,
    Interrupted,
    PretendedLauncher,
    data,
    kill_one,
    model,
    pretended,
    small_analysis,
    stop_after,
    working_for,
)
from tests.support.networks import branches
from tests.support.once import Once
from tests.support.shapes import draw_shapes

WORKER = b"smidgen.selection.workers"


@pytest.fixture(scope="session")
def alone(once: Once) -> bytes:
    """The file of the small analysis, all runs in one process, one after another."""

    def analyse(folder: Path) -> bytes:
        small_analysis(folder / "contributions.json", workers=1)
        return (folder / "contributions.json").read_bytes()

    return once("analysis", analyse)


def test_two_processes_write_what_one_writes_and_a_killed_one_loses_nothing(alone: bytes, tmp_path: Path) -> None:
    file, killed = tmp_path / "two.json", list[int]()

    def on_progress(progress: AnalysisProgress) -> None:
        if progress.done == 3:
            killed.append(kill_one(WORKER, signal.SIGKILL))

    found = small_analysis(file, workers=2, on_progress=on_progress)
    assert len(killed) == 1
    assert file.read_bytes() == alone
    assert read_contributions(file) == found
    assert not journal_path(file).exists()
    assert list(working_for(os.getpid(), WORKER)) == []


@pytest.mark.slow
def test_a_ray_cluster_of_this_machine_writes_the_same_though_a_worker_is_killed(alone: bytes, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: install smidgen[ray] to test the cluster")
    file, killed = tmp_path / "ray.json", list[int]()

    def on_progress(progress: AnalysisProgress) -> None:
        if progress.done == 2:
            killed.append(kill_one(b"ray::run_task", signal.SIGKILL))

    small_analysis(file, ray="local", workers=2, on_progress=on_progress)
    assert len(killed) == 1
    assert file.read_bytes() == alone


@pytest.mark.parametrize(
    "torn", [b"", b'{"scheme": {"name": "bias:1", "bi', b"\xff\x00"], ids=["whole", "torn", "junk"]
)
def test_an_interrupted_analysis_goes_on_and_ends_as_if_it_had_not_been(
    alone: bytes, tmp_path: Path, torn: bytes
) -> None:
    file, heard = tmp_path / "contributions.json", list[AnalysisProgress]()
    with pytest.raises(Interrupted):
        small_analysis(file, workers=1, on_progress=stop_after(RUNS - 3))
    assert not file.exists()
    with journal_path(file).open("ab") as journal:
        journal.write(torn)  # what a power failure leaves of a line
    small_analysis(file, workers=1, on_progress=heard.append)
    assert (heard[0].done, heard[0].found, heard[-1].done) == (RUNS - 3, RUNS - 3, RUNS)
    assert len(heard) == 4  # at the start and after three runs
    assert file.read_bytes() == alone
    assert not journal_path(file).exists()


@pytest.mark.slow
def test_where_ray_offers_a_gpu_fleets_run_on_it_unless_the_host_is_asked_for() -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed: install smidgen[ray] to test the cluster")
    trials = some_trials()[:2]
    in_c = dict(OnHost(1).launch(setup(), trials))
    ray.init("local", num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        assert dict(OnRay("auto", 1, device="cpu").launch(setup(), trials)) == in_c
        assert dict(OnRay("auto", 1, "host", device="nowhere").launch(setup(), trials)) == in_c
        with pytest.raises(sm.SchemeError, match="trains 99 biases"):  # found on the cluster, told here
            list(OnRay("auto", 1, "host").launch(setup(), [Trial(sm.Scheme("deep", 99), 12, 0)]))
        assert ray.is_initialized()  # a connection that was there stays
    finally:
        ray.shutdown()


def test_workers_end_with_an_analysis_that_is_interrupted(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        small_analysis(tmp_path / "contributions.json", workers=2, on_progress=stop_after(1))
    assert list(working_for(os.getpid(), WORKER)) == []


def begin(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave a journal of two outcomes, which were never trained for."""
    monkeypatch.setattr(analysis, "find_launcher", lambda *_: PretendedLauncher())
    with pytest.raises(Interrupted):
        small_analysis(file, on_progress=stop_after(2))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda file: sm.analyze(branches(1), data(), output=file, quick=True, reach=2, epochs=2), "of another model"),
        (lambda file: sm.analyze(model(), draw_shapes(9, 4), output=file, quick=True, reach=2), "on other images"),
        (lambda file: small_analysis(file, limit=8), "on other images, or on more or fewer"),
        (lambda file: small_analysis(file, epochs=3), "runs with epochs 2, these have 3"),
        (lambda file: small_analysis(file, learning_rate=0.5), "runs with learning_rate 0.01, these have 0.5"),
    ],
)
def test_the_journal_of_another_analysis_is_refused_with_what_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object], said: str
) -> None:
    file = tmp_path / "contributions.json"
    begin(file, monkeypatch)
    before = journal_path(file).read_bytes()
    with pytest.raises(ContributionsError, match=said) as raised:
        change(file)
    assert f"remove {journal_path(file)} to start over" in str(raised.value)
    assert journal_path(file).read_bytes() == before
    assert not file.exists()


def test_a_journal_may_hold_more_than_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, heard = tmp_path / "contributions.json", list[AnalysisProgress]()
    begin(file, monkeypatch)
    small_analysis(file, reach=1, on_progress=heard.append)  # other trials, of which the head alone is known
    assert 1 <= heard[0].found < heard[0].total


@pytest.mark.parametrize("line", ["[]", "{}", '{"scheme": 3}', "null", "[" * 10_000, "nonsense"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_journal_that_was_changed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, number: int
) -> None:
    file = tmp_path / "contributions.json"
    begin(file, monkeypatch)
    lines = journal_path(file).read_text().splitlines()
    lines[number - 1] = line
    journal_path(file).write_text("\n".join([*lines, ""]))
    with pytest.raises(ContributionsError, match=rf"line {number} of .* remove the file to start over"):
        small_analysis(file)


@pytest.mark.parametrize(
    "text", ["somebody's notes", "somebody's notes\n", '{"format": 2}\n', '{"format": 1, "mine": 3']
)
def test_a_file_that_is_no_journal_stays_as_it_is(tmp_path: Path, text: str) -> None:
    file = tmp_path / "contributions.json"
    journal_path(file).write_text(text)
    with pytest.raises(ContributionsError, match="to start over"):
        small_analysis(file)
    assert journal_path(file).read_text() == text


def test_a_journal_whose_first_line_was_cut_off_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, heard = tmp_path / "contributions.json", list[AnalysisProgress]()
    begin(file, monkeypatch)
    journal_path(file).write_bytes(journal_path(file).read_bytes()[:50])
    small_analysis(file, on_progress=heard.append)
    assert (heard[0].found, heard[-1].done) == (0, RUNS)


@pytest.mark.parametrize("accuracy", ["1.5", "-1", "NaN"])
def test_an_outcome_that_cannot_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accuracy: str) -> None:
    file = tmp_path / "contributions.json"
    begin(file, monkeypatch)
    head, first, *rest = journal_path(file).read_text().splitlines()
    was = json.loads(first)["accuracy"]
    journal_path(file).write_text("\n".join([head, first.replace(f"{was!r}", accuracy), *rest, ""]))
    with pytest.raises(ContributionsError, match="line 2"):
        small_analysis(file)


def test_two_analyses_do_not_write_one_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "find_launcher", lambda *_: PretendedLauncher())
    file = tmp_path / "contributions.json"

    def again(progress: AnalysisProgress) -> None:
        with pytest.raises(InputError, match="is being written by another analysis"):
            small_analysis(file)
        raise Interrupted

    with pytest.raises(Interrupted):
        small_analysis(file, on_progress=again)


def test_every_figure_is_the_mean_of_its_own_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = PretendedLauncher()
    monkeypatch.setattr(analysis, "find_launcher", lambda *_: launcher)
    found = small_analysis(seeds=3)
    todo = agenda(model(), 1 << 18, 2, quick=True)

    def mean(scheme: sm.Scheme, bits: int = 12) -> float:
        return sum(pretended(Trial(scheme, bits, seed)).accuracy for seed in range(3)) / 3

    assert [one.accuracy for one in found.depths] == pytest.approx([mean(todo.depth(d)) for d in todo.depths])
    assert [one.accuracy for one in found.shares] == pytest.approx([mean(todo.share(*one)) for one in todo.shares])
    assert [one.accuracy for one in found.bits] == pytest.approx([mean(todo.reference, bits) for bits in (8, 10, 12)])
    assert len(launcher.asked) == len(set(launcher.asked)) == 3 * RUNS
    assert found.conditions.seeds == (0, 1, 2)


def setup(rate: float = 0.01) -> Setup:
    return Setup(model(), draw_shapes(4, 3), Course(2, rate, test_every=2))


def some_trials() -> list[Trial]:
    todo = agenda(model(), 1 << 18, 3)
    return [*todo.trials(1)[::4], Trial(todo.reference, 8, 7)]


@pytest.mark.parametrize("rate", [0.01, 2.0**30], ids=["learns", "the largest"])
def test_a_fleet_gives_the_outcomes_of_the_hosts_c_to_the_last_bit(rate: float) -> None:
    pytest.importorskip("torch")
    trials = some_trials()
    in_c = dict(OnHost(1).launch(setup(rate), trials))
    parts: list[float] = []
    assert dict(OnDevice(1, "cpu").launch(setup(rate), trials, parts.append)) == in_c
    assert (parts == sorted(parts), parts[-1]) == (True, len(trials))  # they are few enough to be one fleet
    assert set(in_c) == set(trials)
    assert DIVERGED not in in_c.values()
    assert all(one.loss is not None and (one.loss > 1e6) == (rate > 1) for one in in_c.values())


def test_work_is_shared_out_with_all_its_arrays() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 100, size).astype(kind) for size in (0, 3, 70) for kind in ("u1", "i2", "f8")]
    found = dict(share_out(operator.getitem, arrays, range(len(arrays)), 2))
    assert sorted(found) == list(range(len(arrays)))
    assert all(np.array_equal(found[i], array) and found[i].dtype == array.dtype for i, array in enumerate(arrays))


def test_work_that_kills_whoever_takes_it_is_given_up_in_one_sentence() -> None:
    with pytest.raises(TargetError, match="3 worker processes ended at the same run, the last with code 3"):
        list(share_out(operator.call, os._exit, [3, 3], 2))


def test_an_error_in_another_process_is_raised_in_this_one() -> None:
    with pytest.raises(ZeroDivisionError):
        list(share_out(operator.floordiv, 1, [0, 0], 2))


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """The address of a server that is not Ray: it answers this, or keeps silent."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            try:
                taken, _ = server.accept()
            except OSError:
                return
            with taken:
                if answer is None:
                    time.sleep(6)
                else:
                    taken.recv(10_000)
                    taken.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("answer", [None, b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_an_address_where_no_ray_answers_is_given_up_in_time(
    answer: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: install smidgen[ray] to test the cluster")
    monkeypatch.setattr(launchers, "CONNECT_SECONDS", 3.0)
    with listening(answer) as address:
        begun = time.monotonic()
        with pytest.raises(TargetError, match=f"no Ray cluster answers at {address}"):
            list(OnRay(address, 1).launch(setup(), some_trials()))
        assert time.monotonic() - begun < 60  # on a busy machine


@pytest.mark.parametrize(
    ("address", "seconds", "reason"),
    [("127.0.0.1:1", 3.0, "no connection within 3 seconds"), ("nonsense", 90.0, "Invalid address"),
     ("[::1", 90.0, "Invalid address"), ("ray://127.0.0.1:1", 3.0, "no Ray cluster answers at ray://127.0.0.1:1")],
)  # fmt: skip
def test_an_address_without_a_cluster_is_an_error_with_rays_reason(
    address: str, seconds: float, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: install smidgen[ray] to test the cluster")
    monkeypatch.setattr(launchers, "CONNECT_SECONDS", seconds)
    with pytest.raises(TargetError, match=reason):
        list(OnRay(address, 1).launch(setup(), some_trials()))


def test_a_machine_without_ray_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match="install 'smidgen\\[ray\\]'"):
        list(OnRay("auto", 1).launch(setup(), some_trials()))


@pytest.mark.parametrize(
    ("change", "said"),
    [({"target": "tpu"}, "tpu cannot run trials"), ({"workers": 0}, "0 workers"), ({"seeds": 0}, "0 seeds"),
     ({"epochs": 0}, "0 epochs"), ({"reach": 99}, "has 8; give 1 to 8"), ({"limit": 3}, "cannot show 4 classes"),
     ({"learning_rate": -1.0}, "rate of -1"), ({"most": "soon"}, "soon"),
     ({"most": 20}, "nothing to try within 20 bytes")],
)  # fmt: skip
def test_settings_that_cannot_be_are_told(tmp_path: Path, change: dict[str, object], said: str) -> None:
    file = tmp_path / "contributions.json"
    with pytest.raises(sm.SmidgenError, match=said):
        small_analysis(file, **change)
    assert list(tmp_path.iterdir()) == []
