"""A ladder chooses the same, byte for byte, whoever runs its trials, and goes on where it was interrupted."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from smidgen.data import Augment
from smidgen.errors import InputError
from smidgen.ir import Graph
from smidgen.learning import Course
from smidgen.records import to_plain
from smidgen.selection.folds import make_folds
from smidgen.selection.judging import Bench, Recipe, Run, Scores, make_bench
from smidgen.selection.ladder import climb
from smidgen.selection.launchers import Launcher, OnDevice, OnHost, OnRay, find_launcher
from smidgen.selection.runs import open_runs
from smidgen.training import HeadDtype, Options
from smidgen.training.scheme import load_scheme
from tests.support.analyses import Interrupted
from tests.support.networks import branches, inverted_residual
from tests.support.shapes import draw_shapes

DATA = draw_shapes(16, 2)
COURSE = Course(4, 0.0, augment=Augment((0.5, 1.0)), seed=3)
STEPS = 24


def recipes(graph: Graph, *names: str) -> tuple[Recipe, ...]:
    """Each scheme from a new head and behind one pass, and one pass alone."""
    schemes = [load_scheme(name, graph) for name in names]
    new = tuple(Recipe(scheme, "new head", 1000 * i) for i, scheme in enumerate(schemes))
    once = tuple(Recipe(scheme, "one pass", 1000 * i + 500) for i, scheme in enumerate(schemes))
    return (*new, *once, Recipe(schemes[0], "one pass", 500, steps=False))


def bench(graph: Graph, options: Options) -> Bench:
    """Of what learns, `full` reads the images themselves."""
    candidates, folds = recipes(graph, "head", "bias:2", "last:2", "full"), make_folds(DATA.train, 4, 1)
    return make_bench(graph, options, COURSE, candidates, DATA.train, folds, STEPS)


def runs(starts: int) -> list[Run]:
    found = [Run(i, rate, STEPS, fold) for i in range(starts) for rate, fold in ((0.02, 0), (0.3, 2))]
    return [*found, Run(2, 0.3, STEPS, 1, half=True), *([Run(8, 0.0, 0, 3)] if starts == 8 else [])]


@pytest.mark.parametrize(("network", "head"), [(inverted_residual, "float32"), (branches, "int8")])
def test_a_fleet_whose_devices_learn_apart_scores_as_c_does(network: Callable[[int], Graph], head: HeadDtype) -> None:
    pytest.importorskip("torch")
    with closing(bench(network(3), Options(4, head_dtype=head, seed=1))) as one:
        wanted = runs(8 if head == "float32" else 4)
        in_c, parts = dict(OnHost(2).launch(one, wanted)), list[float]()
        assert dict(OnDevice(1, "cpu").launch(one, wanted, parts.append)) == in_c
        assert max(map(len, one.fleets(wanted))) == len(wanted) - sum(
            run.candidate in (0, 3, 4, 7, 8) for run in wanted
        )
        assert max(parts) > 1
    assert len(set(in_c.values())) > 2  # they learned to differ


def test_runs_of_what_no_fleet_holds_are_run_in_c() -> None:
    pytest.importorskip("torch")
    graph = inverted_residual(3)
    with closing(bench(graph, Options(4, loss="sigmoid"))) as one:
        wanted = [Run(0, 0.02, STEPS, 0), Run(1, 0.02, STEPS, 1)]
        assert dict(OnDevice(1, "cpu").launch(one, wanted)) == dict(OnHost(1).launch(one, wanted))


def choice(launcher: Launcher, known: dict[Run, Scores] | None = None, most: int = 10_000) -> str:
    """The choice of a small ladder as JSON; it is interrupted after so many runs."""
    graph, done = inverted_residual(3), known if known is not None else {}

    def on_run(run: Run, scores: Scores) -> None:
        done[run] = scores
        if len(done) == most:
            raise Interrupted

    offered = recipes(graph, "head", "bias:2", "last:2")
    found = climb(
        graph, DATA, offered, Options(4), COURSE, beyond=recipes(graph, "full")[:1], effort="quick",
        launcher=launcher, known=dict(done), on_run=on_run,
    )  # fmt: skip
    return json.dumps(to_plain(found))


@pytest.fixture(scope="module")
def alone() -> str:
    return choice(OnHost(1))


def test_two_cores_and_a_fleet_choose_what_one_core_chooses(alone: str) -> None:
    assert choice(OnHost(2)) == alone
    pytest.importorskip("torch")
    assert choice(OnDevice(2, "cpu")) == alone


def test_an_interrupted_ladder_goes_on_anywhere_and_ends_as_if_it_had_not_been(alone: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "runs"
    for launcher, most in ((OnHost(1), 7), (OnDevice(1, "cpu"), 19)):
        with open_runs(path, "this one") as kept:
            known = dict(kept.known)
            with pytest.raises(Interrupted):
                choice(launcher, known, most)
            for run in known.keys() - kept.known.keys():
                kept.add(run, known[run])
    with open_runs(path, "this one") as kept:
        known = dict(kept.known)
        assert len(known) == 19
        assert choice(OnHost(1), known) == alone
        assert len(known) > 19


def test_a_pickled_bench_scores_the_same() -> None:
    with closing(bench(inverted_residual(3), Options(4))) as one:
        wanted = Run(6, 0.3, STEPS, 1)
        one.prepare([wanted], 1)
        with closing(pickle.loads(pickle.dumps(one))) as other:
            assert list(other.programs) == list(one.programs)
            assert other.run(wanted) == one.run(wanted)


@pytest.mark.slow
def test_a_ray_cluster_chooses_the_same_on_its_cores_and_on_its_gpus(alone: str) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed: install smidgen[ray] to test the cluster")
    assert choice(OnRay("local", 2)) == alone
    assert not ray.is_initialized()
    ray.init("local", num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        assert choice(OnRay("auto", 1, device="cpu")) == alone
    finally:
        ray.shutdown()


def test_where_no_fleet_can_run_it_is_said_before_anything_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="finds no CUDA device"), find_launcher("cuda", None, None).connected():
        raise AssertionError
