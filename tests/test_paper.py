"""The paper's tables: runs are planned, kept and resumed as promised, and the page shows what was measured alone."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import smidgen as sm
from experiments.paper.cells import Cell, by_kind, figure, table
from experiments.paper.channels import depth, named
from experiments.paper.fleets import Fleet, fleets, wanted, work_off
from experiments.paper.page import page, show, text
from experiments.paper.runs import Build, Footprint, Outcome, Run
from experiments.paper.store import HEADER, ResultsError, Store
from experiments.paper.tables import NAMES, Settings, tables

RUN = Run("mcunet-5fps", "flowers102", "99kb", "device", 0.4, 12)


def outcome(accuracy: float = 0.5, losses: tuple[float, ...] = (2.0, 1.0), digest: str = "abc") -> Outcome:
    return Outcome(accuracy, losses, None, 2040, 6149, 102, digest, 1.5, 4, "cpu")


@dataclass
class Pretended:
    """An engine that learns nothing: a run's accuracy is its rate and a little of its seed."""

    digests: str = "abc"
    breaks_at: int | None = None  # the fleet, from 0, at which the power fails
    made: list[Fleet] = field(default_factory=list)
    prepared: list[Fleet] = field(default_factory=list)

    def prepare(self, fleet: Fleet) -> None:
        self.prepared.append(fleet)

    def run(self, fleet: Fleet) -> Mapping[Run, Outcome]:
        if len(self.made) == self.breaks_at:
            raise KeyboardInterrupt
        self.made.append(fleet)
        return {run: outcome(accuracy(run), digest=self.digests) for run in fleet.runs}

    def digest(self, run: Run) -> str:
        return self.digests

    def images(self, run: Run) -> int:
        return 2040

    def build(self, build: Build) -> Footprint:
        return Footprint(1000, 2000, True)


def accuracy(run: Run) -> float:
    """Best at a rate of 0.4."""
    return 0.8 - abs(math.log10(run.rate / 0.4)) / 10 + run.seed / 1000


def runs_of(engine: Pretended) -> list[Run]:
    return [run for fleet in engine.made for run in fleet.runs]


SPARSE = Settings(sets=("flowers102",))


def test_the_best_rate_is_found_with_one_seed_and_the_others_follow_there(tmp_path: Path) -> None:
    store, engine = Store(tmp_path / "r.jsonl"), Pretended()
    work_off(tables(("head",), SPARSE), store, engine, size=64)
    by_seed = [(run.seed, run.rate) for run in runs_of(engine) if run.head == "float32"]
    assert by_seed == [(0, 0.1), (0, 0.4), (0, 1.0), (1, 0.4), (2, 0.4)]


def test_together_every_seed_runs_at_every_rate_in_one_go(tmp_path: Path) -> None:
    store, engine = Store(tmp_path / "r.jsonl"), Pretended()
    work_off(tables(("head",), SPARSE), store, engine, size=64, together=True)
    assert len(engine.made) == 1
    assert len({(run.seed, run.rate) for run in runs_of(engine) if run.head == "float32"}) == 9


@pytest.mark.parametrize("together", [False, True])
def test_tables_share_runs_and_none_is_made_twice(tmp_path: Path, together: bool) -> None:
    store, engine = Store(tmp_path / "r.jsonl"), Pretended()
    chosen = tables(NAMES, SPARSE)
    done = work_off(chosen, store, engine, size=16, together=together)
    made = runs_of(engine)
    assert len(made) == len(set(made)) == done.runs
    alone = sum(len(set(wanted([one], Store(tmp_path / "none"), True))) for one in chosen)
    assert len(set(wanted(chosen, Store(tmp_path / "none"), True))) < alone
    again = Pretended()
    assert work_off(chosen, Store(store.path), again, size=16, together=together).runs == 0
    assert again.made == []


def test_a_stopped_command_loses_one_fleet_at_most_and_goes_on(tmp_path: Path) -> None:
    chosen, path = tables(("sparse",), SPARSE), tmp_path / "r.jsonl"
    engine = Pretended(breaks_at=2)
    with pytest.raises(KeyboardInterrupt):
        work_off(chosen, Store(path), engine, size=4)
    assert set(Store(path).runs) == set(runs_of(engine))
    rest = Pretended()
    work_off(chosen, Store(path), rest, size=4)
    assert not set(runs_of(rest)) & set(runs_of(engine))
    whole = Store(tmp_path / "whole.jsonl")
    work_off(chosen, whole, Pretended(), size=4)
    assert Store(path).runs == whole.runs


def test_no_fleet_begins_once_the_time_is_up(tmp_path: Path) -> None:
    engine = Pretended()
    done = work_off(tables(("head",), SPARSE), Store(tmp_path / "r.jsonl"), engine, size=2, seconds=0)
    assert (done.runs, engine.made) == (0, [])
    assert done.left == 6


def test_no_fleet_begins_that_would_not_be_done_in_time(tmp_path: Path) -> None:
    store, engine = Store(tmp_path / "r.jsonl"), Pretended()
    slow = replace(RUN, network="mcunet-5fps", scheme="last:6", epochs=12, data="else")
    store.add({slow: replace(outcome(), seconds=1000.0)})
    chosen = tables(("head", "channels"), SPARSE)
    assert work_off(chosen, store, engine, size=64, seconds=900).runs == 0
    assert work_off(chosen, store, engine, size=64, seconds=1100).runs > 0


def test_data_that_no_table_knows_are_learned_by_all(tmp_path: Path) -> None:
    chosen = tables(NAMES, Settings(sets=("vww", "mine")))
    for one in chosen:
        assert "mine" in one.columns or not one.cells
    assert {cell.column for one in chosen for cell in one.cells} == {"vww", "mine"}
    store = Store(tmp_path / "r.jsonl")
    work_off(chosen, store, Pretended(), size=64)
    assert "| mine |" in page(store.runs, store.builds)


def test_the_next_fleet_is_prepared_before_this_one_runs(tmp_path: Path) -> None:
    engine = Pretended(breaks_at=0)
    with pytest.raises(KeyboardInterrupt):
        work_off(tables(("head",), SPARSE), Store(tmp_path / "r.jsonl"), engine, size=2)
    assert len(set(engine.prepared)) == 2


@given(st.integers(1, 40), st.permutations(range(30)))
@settings(max_examples=30, deadline=None)
def test_fleets_hold_every_run_once_and_never_too_many(size: int, order: list[int]) -> None:
    every = wanted(tables(NAMES, Settings(networks=("mcunet-5fps", "mbv2-w0.35"))), Store(Path("/nowhere")), True)
    runs = [every[i * len(every) // 30] for i in order]
    made = fleets(runs, size)
    assert sorted(map(str, runs)) == sorted(str(run) for fleet in made for run in fleet.runs)
    assert max(len(fleet.runs) for fleet in made) <= size
    for fleet in made:
        shared = {(r.network, r.data, r.batch, r.course, r.engine == "device") for r in fleet.runs}
        assert len(shared) == 1
        if fleet.runs[0].engine != "device":
            assert len({r.scheme for r in fleet.runs}) == 1
    assert made[0].runs[0] == runs[0]


def test_other_images_under_a_known_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    work_off(tables(("head",), SPARSE), Store(path), Pretended(), size=64)
    with pytest.raises(ResultsError, match="holds results of other images under the name flowers102; give the same"):
        work_off(tables(("channels",), SPARSE), Store(path), Pretended(digests="other"), size=64)


numbers = st.floats(allow_nan=False, allow_infinity=False, width=32).map(float)
runs = st.builds(
    Run, st.text(), st.text(), st.text(), st.sampled_from(("device", "int8", "fp32")), numbers, st.integers(1, 99),
    optimizer=st.sampled_from(("sgd", "momentum", "adam", "lars")), qas=st.booleans(), seed=st.integers(0, 9),
    limit=st.none() | st.integers(1, 9),
)  # fmt: skip
outcomes = st.builds(outcome, numbers, st.lists(numbers).map(tuple))
builds = st.builds(Build, st.text(), st.text(), st.sampled_from((8, 12)), st.booleans())
footprints = st.builds(Footprint, st.integers(0), st.integers(0), st.booleans(), st.none() | st.integers(0))


@given(st.dictionaries(runs, outcomes, max_size=4), st.dictionaries(builds, footprints, max_size=3))
@settings(max_examples=50, deadline=None)
def test_results_survive_the_file(found: dict[Run, Outcome], built: dict[Build, Footprint]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "deep" / "r.jsonl"
        Store(path).add(found)
        Store(path).add(builds=built)
        again = Store(path)
    assert (again.runs, again.builds) == (found, built)


def test_losses_that_are_not_numbers_survive_the_file(tmp_path: Path) -> None:
    Store(tmp_path / "r").add({RUN: outcome(0.1, (1.0, math.inf, math.nan))})
    losses = Store(tmp_path / "r").runs[RUN].losses
    assert losses[0] == 1.0
    assert all(math.isnan(loss) for loss in losses[1:])


def test_a_line_cut_short_is_dropped_and_the_rest_stays(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    other = replace(RUN, seed=1)
    store = Store(path)
    store.add({RUN: outcome()})
    whole = path.read_bytes()
    store.add({other: outcome()})
    for cut in range(len(whole), len(path.read_bytes())):
        broken = tmp_path / f"cut{cut}"
        broken.write_bytes(path.read_bytes()[:cut])
        found = Store(broken)
        assert set(found.runs) == {RUN}
        if cut % 50 == 0:
            found.add({other: outcome()})
            assert broken.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "holds results of format 2, this is format 1; name another file"),
        ({"arithmetic": "0"}, "holds results of arithmetic 0, this is arithmetic"),
        ({"results": "else"}, "does not hold results of the paper's tables"),
    ],
)
def test_results_of_another_version_are_refused_in_one_sentence(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps({**HEADER, **change}) + "\n")
    before = path.read_bytes()
    with pytest.raises(ResultsError, match=message) as error:
        Store(path)
    assert "\n" not in str(error.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "line",
    [
        "", "{", "[]", "3", "[" * 100_000, '{"run": 1}', '{"run": {}, "outcome": {}}',
        json.dumps({"run": {**RUN.__dict__, "epochs": "many"}, "outcome": outcome().__dict__}),
        json.dumps({"run": {**RUN.__dict__, "engine": "steam"}, "outcome": outcome().__dict__}),
        json.dumps({"run": {**RUN.__dict__, "qas": 1}, "outcome": outcome().__dict__}),
        json.dumps({"run": RUN.__dict__, "outcome": {**outcome().__dict__, "losses": 3}}),
        json.dumps({"run": RUN.__dict__}),
    ],
)  # fmt: skip
def test_a_damaged_line_is_named_with_the_way_out(line: str, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    Store(path).add({RUN: outcome()})
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ResultsError, match=r"^line 3 of .*r.jsonl is not a result .*; remove that line") as error:
        Store(path)
    assert "\n" not in str(error.value)


def cell(*rates: float, seeds: tuple[int, ...] = (0, 1)) -> Cell:
    return Cell("row", RUN, rates or (0.1, 0.4), seeds)


def test_a_figure_is_the_mean_of_the_seeds_at_the_best_rate() -> None:
    found = {replace(RUN, rate=r, seed=s): outcome(a) for r, s, a in ((0.1, 0, 0.3), (0.4, 0, 0.5), (0.4, 1, 0.6))}
    made = figure(cell(), by_kind(found))
    assert made is not None
    assert (made.rate, made.rates) == (0.4, (0.1, 0.4))
    assert made.accuracies == (50.0, 60.0)
    assert str(made) == f"55.0 ± {statistics.stdev((50, 60)):.1f}"


def test_the_best_rate_is_judged_on_seeds_that_all_rates_have() -> None:
    found = {replace(RUN, rate=r, seed=s): outcome(a) for r, s, a in ((0.1, 0, 0.5), (0.4, 0, 0.6), (0.4, 1, 0.1))}
    made = figure(cell(), by_kind(found))
    assert made is not None
    assert made.rate == 0.4


def test_a_run_that_diverged_is_worst_and_shown_as_nothing_learned() -> None:
    found = {replace(RUN, rate=0.1): outcome(0.2), replace(RUN, rate=0.4): outcome(math.nan)}
    made = figure(cell(), by_kind(found))
    assert made is not None
    assert made.rate == 0.1
    alone = figure(cell(), by_kind({RUN: outcome(math.nan)}))
    assert alone is not None
    assert alone.accuracies == (0.0,)


def test_a_figure_is_of_all_images_before_a_trial_and_of_the_longest_course() -> None:
    found = {
        replace(RUN, limit=64, epochs=99): outcome(0.9),
        replace(RUN, epochs=3): outcome(0.8),
        replace(RUN, epochs=50): outcome(0.7),
    }
    made = figure(cell(), by_kind(found))
    assert made is not None
    assert made.accuracies == (70.0,)


def test_every_number_of_accuracy_on_the_page_was_measured_or_is_the_papers(tmp_path: Path) -> None:
    store, chosen = Store(tmp_path / "r.jsonl"), tables(NAMES, Settings())
    work_off(chosen, store, Pretended(), size=64, together=True)
    measured: dict[tuple[Run, float], list[float]] = defaultdict(list)
    for run in store.runs:
        measured[run.kind, run.rate].append(100 * accuracy(run))
    written = page(store.runs, store.builds)
    for one in show(chosen, store.runs, store.builds):
        assert text(one) in written
        assert len(one.cells) == len(one.table.cells)
        for cell, shown in zip(one.table.cells, one.cells, strict=True):
            assert shown.rate is not None
            assert shown.top1 == pytest.approx(statistics.fmean(measured[cell.run.kind, shown.rate]), abs=0.01)
            assert f"| {shown.top1:.1f}" in written
            assert shown.paper is None or f"({shown.paper:.1f})" in written
    assert "2,040 / 6,149" in written
    assert "`python benchmarks/paper.py optimizers`" in written


def test_a_page_without_results_claims_nothing() -> None:
    written = page({}, {})
    assert "Nothing has been measured yet." in written
    shown = [line for line in written.splitlines() if line.startswith("|")]
    own = [cell for line in shown if "KB" not in line for cell in line.split("|")[2:] if re.match(r" *[0-9]", cell)]
    assert own == []


def test_the_page_says_how_far_qas_lifts_int8() -> None:
    found = {}
    for row, top in (("fp32", 0.9), ("int8", 0.6), ("qas", 0.88)):
        engine = "fp32" if row == "fp32" else "int8"
        run = Run("mcunet-5fps", "vww", "last:6", engine, 0.1, 10, "momentum", 128, qas=row != "int8")  # type: ignore[arg-type]
        found[run] = outcome(top)
    assert "int8 SGD-M with QAS 88.0, which is +28.0 points from plain int8 SGD-M and -2.0 from fp32" in page(found, {})


def test_every_table_asks_for_runs_of_schemes_that_exist() -> None:
    for network in ("mcunet-5fps", "mbv2-w0.35", "proxyless-w0.3"):
        graph = sm.load(network)
        chosen = tables(NAMES, Settings(networks=(network,)))
        by_scheme = {run.scheme: run for run in wanted(chosen, Store(Path("/nowhere")), True)}
        assert len(by_scheme) >= 13
        for text_, run in by_scheme.items():
            assert depth(run) == (None if text_ == "full" else named(text_, graph).biases)
        assert {build.scheme for one in chosen for _, build in one.builds} <= set(by_scheme)


def test_rows_and_columns_are_those_of_the_cells() -> None:
    made = table("t", "n", "title", "", [cell(), Cell("other", replace(RUN, data="vww"), (0.1,), (0,))])
    assert (made.rows, made.columns) == (("row", "other"), ("flowers102", "vww"))
    assert made.at("row", "vww") is None
