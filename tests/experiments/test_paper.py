"""The paper's tables: runs are planned, kept and resumed as promised, and the page shows what was measured alone."""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import smidgen as sm
from experiments.paper.cells import Cell, Figure, by_kind, courses, figure, table
from experiments.paper.channels import depth, named
from experiments.paper.fleets import fleets, wanted, work_off
from experiments.paper.page import page, show, text
from experiments.paper.runs import Outcome, Run
from experiments.paper.sources import DataSets, some_classes
from experiments.paper.store import ResultsError, Store
from experiments.paper.tables import NAMES, Settings, tables
from smidgen.data import DataError
from smidgen.errors import InputError, SmidgenError
from tests.support.fake_fleets import RUN, Pretended, accuracy, outcome
from tests.support.shapes import draw_shapes
from tests.support.tiers import examples


def runs_of(engine: Pretended) -> list[Run]:
    return [run for fleet in engine.made for run in fleet.runs]


TOP = Path(__file__).parents[2]
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


@given(st.integers(1, 40), st.permutations(range(30)), st.integers(0, 500))
@settings(max_examples=examples(30))
def test_fleets_hold_every_run_once_and_never_too_many(size: int, order: list[int], start: int) -> None:
    every = wanted(tables(NAMES, Settings(networks=("mcunet-5fps", "mbv2-w0.35"))), Store(Path("/nowhere")), True)
    runs = [every[(start + i) % len(every)] for i in order]
    made = fleets(runs, size)
    assert sorted(map(str, runs)) == sorted(str(run) for fleet in made for run in fleet.runs)
    assert max(len(fleet.runs) for fleet in made) <= size
    for fleet in made:
        shared = {(r.network, r.data, r.batch, r.course, r.engine == "device") for r in fleet.runs}
        assert len(shared) == 1
        if fleet.runs[0].engine != "device":
            assert len({r.scheme for r in fleet.runs}) == 1
    assert made[0].runs[0] == runs[0]


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (Pretended(digests="other"), "holds results of other images under the name flowers102; give the same"),
        (Pretended(network="other"), "holds results of other weights under the name mcunet-5fps; give the same"),
    ],
)
def test_other_images_or_weights_under_a_known_name_are_refused(
    engine: Pretended, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "r.jsonl"
    work_off(tables(("head",), SPARSE), Store(path), Pretended(), size=64)
    with pytest.raises(ResultsError, match=message):
        work_off(tables(("channels",), SPARSE), Store(path), engine, size=64)
    assert engine.made == []


def test_some_classes_of_a_set_are_a_set_of_their_own() -> None:
    data = draw_shapes(3, 2)
    two = some_classes(data, (3, 1))
    assert two.classes == ("square", "disc")
    assert set(two.train.labels) == {0, 1}
    assert len(two.train) == 6
    for image, label in zip(two.train.images, two.train.labels, strict=True):
        place = next(i for i, other in enumerate(data.train.images) if other is image)
        assert data.classes[data.train.labels[place]] == two.classes[label]
    with pytest.raises(DataError, match="has 4 classes, there is no class 9"):
        some_classes(data, (0, 9))


def test_data_that_are_not_there_are_named_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the data set pets is not beside the checkout; give --data pets=PATH"):
        DataSets().load("pets")
    with pytest.raises(InputError, match="'pets' does not say where a data set lies; give NAME=PATH"):
        DataSets(["pets"])
    with pytest.raises(SmidgenError, match="nowhere"):
        DataSets([f"pets={tmp_path / 'nowhere'}"]).load("pets")


def cell(*rates: float, seeds: tuple[int, ...] = (0, 1)) -> Cell:
    return Cell("row", RUN, rates or (0.1, 0.4), seeds)


def figured(found: Mapping[Run, Outcome]) -> Figure | None:
    """The figure of a table's only cell."""
    results = by_kind(found)
    return figure(cell(), results, courses([cell()], results).get((RUN.data, RUN.batch)))


def test_a_figure_is_the_mean_of_the_seeds_at_the_best_rate() -> None:
    found = {replace(RUN, rate=r, seed=s): outcome(a) for r, s, a in ((0.1, 0, 0.3), (0.4, 0, 0.5), (0.4, 1, 0.6))}
    made = figured(found)
    assert made is not None
    assert (made.rate, made.rates) == (0.4, (0.1, 0.4))
    assert made.accuracies == (50.0, 60.0)
    assert str(made) == f"55.0 ± {statistics.stdev((50, 60)):.1f}"


def test_the_best_rate_is_judged_on_seeds_that_all_rates_have() -> None:
    found = {replace(RUN, rate=r, seed=s): outcome(a) for r, s, a in ((0.1, 0, 0.5), (0.4, 0, 0.6), (0.4, 1, 0.1))}
    made = figured(found)
    assert made is not None
    assert made.rate == 0.4


def test_a_run_that_diverged_is_worst_and_shown_as_nothing_learned() -> None:
    found = {replace(RUN, rate=0.1): outcome(0.2), replace(RUN, rate=0.4): outcome(math.nan)}
    made = figured(found)
    assert made is not None
    assert made.rate == 0.1
    alone = figured({RUN: outcome(math.nan)})
    assert alone is not None
    assert alone.accuracies == (0.0,)


def test_a_figure_is_of_all_images_before_a_trial_and_of_the_longest_course() -> None:
    found = {
        replace(RUN, limit=64, epochs=99): outcome(0.9),
        replace(RUN, epochs=3): outcome(0.8),
        replace(RUN, epochs=50): outcome(0.7),
    }
    made = figured(found)
    assert made is not None
    assert made.accuracies == (70.0,)


def test_figures_of_a_table_are_of_one_course_even_where_single_runs_were_longer() -> None:
    cells = [Cell(scheme, replace(RUN, scheme=scheme), (0.4,), (0,)) for scheme in ("49kb", "99kb", "148kb")]
    found = {cell.run: outcome(0.5) for cell in cells} | {replace(RUN, epochs=50): outcome(0.9)}
    results = by_kind(found)
    course = courses(cells, results)[RUN.data, 1]
    assert [str(figure(cell, results, course)) for cell in cells] == ["50.0"] * 3


def test_every_number_of_accuracy_on_the_page_was_measured_or_is_the_papers(tmp_path: Path) -> None:
    store, chosen = Store(tmp_path / "r.jsonl"), tables(NAMES, Settings())
    work_off(chosen, store, Pretended(), size=64, together=True)
    measured: dict[tuple[Run, float, int], list[float]] = defaultdict(list)
    for run in store.runs:
        measured[run.kind, run.rate, run.epochs].append(100 * accuracy(run))
    written = page(store.runs, store.builds)
    for one in show(chosen, store.runs, store.builds):
        assert text(one) in written
        assert len(one.cells) == len(one.table.cells)
        for cell, shown in zip(one.table.cells, one.cells, strict=True):
            assert shown.rate is not None
            assert shown.epochs == cell.run.epochs
            made = measured[cell.run.kind, shown.rate, cell.run.epochs]
            assert shown.top1 == pytest.approx(statistics.fmean(made), abs=0.01)
            assert f"| {shown.top1:.1f}" in written
            assert shown.paper is None or f"({shown.paper:.1f})" in written
    assert "2,040 / 6,149" in written
    assert "`python benchmarks/paper.py optimizers`" in written


def test_the_page_is_what_the_results_give() -> None:
    store = Store(TOP / "benchmarks" / "results" / "paper.jsonl")
    assert store.builds
    assert (TOP / "docs" / "results" / "accuracy.md").read_text() == page(store.runs, store.builds), (
        "run python benchmarks/paper.py --page"
    )


def test_the_page_says_how_far_the_device_lies_from_fp32_seed_by_seed() -> None:
    exact = Run("mcunet-5fps", "flowers102", "99kb", "device", 0.4, 50)
    found = {}
    for seed, (ours, theirs) in enumerate(((0.77, 0.775), (0.76, 0.775))):
        found[replace(exact, seed=seed)] = outcome(ours)
        found[replace(exact, seed=seed, engine="int8")] = outcome(theirs)
    written = " ".join(page(found, {}).split())
    assert "Flowers-102, rate 0.4, 12-bit weights, int8 gradients -1.00 ± 0.50." in written


def test_a_pinned_cell_shows_its_own_epochs_alone() -> None:
    pinned = replace(cell(), pinned=True)
    results = by_kind({replace(RUN, epochs=50): outcome(0.9)})
    assert figure(pinned, results, courses([pinned], results).get((RUN.data, RUN.batch))) is None
    assert figure(cell(), results, courses([cell()], results).get((RUN.data, RUN.batch))) is not None


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
