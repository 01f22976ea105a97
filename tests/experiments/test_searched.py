"""Searched schemes beside published ones: what is measured, what the page tells of it, and the command."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import smidgen as sm
from experiments.paper.channels import depth, named, spelled
from experiments.paper.engines import footprint
from experiments.paper.fleets import fleets, wanted, work_off
from experiments.paper.runs import Build, Outcome, Run
from experiments.paper.store import Store
from experiments.paper.tables import SETS, Settings
from experiments.predictions import best_pairs
from experiments.searched import (
    PAIRED,
    Searched,
    estimates_table,
    needed,
    predictions,
    predictions_table,
    published_row,
    read_searched,
    schemes_table,
)
from experiments.searched_page import page, read_measured, tables
from experiments.searching import budget_bytes, budgets, search_for
from experiments.searching import write_scheme as kept
from smidgen.errors import InputError
from smidgen.selection.contributions import write_contributions
from smidgen.selection.estimates import estimate
from smidgen.training.head import layers
from smidgen.training.scheme import Scheme, SchemeError
from tests.support.contributions import measured
from tests.support.fake_fleets import RUN, Pretended, outcome
from tests.support.house import TOP
from tests.support.small_network import small_network
from tests.support.tiers import examples

NETWORK = "mcunet-5fps"
ESTIMATED = Searched(NETWORK, "49kb-12bit", "rule", "22 21:1", 12)
FOUND = Searched(NETWORK, "49kb-12bit", None, "20 27:1 30:1/4", 10)
shares = st.fractions(Fraction(1, 16), 1, max_denominator=16)


@given(st.data())
def test_a_scheme_survives_being_spelled(data: st.DataObject) -> None:
    graph = small_network()
    count = len(layers(graph))
    weights = data.draw(st.dictionaries(st.integers(0, count - 1), shares))
    biases = data.draw(st.integers(count - min(weights, default=count), count))
    text = spelled(Scheme("any", biases, tuple(sorted(weights.items()))))
    again = named(text, graph)
    assert (again.biases, dict(again.weights)) == (biases, weights)
    assert depth(replace(RUN, scheme=text)) == biases


def test_a_spelled_scheme_that_does_not_fit_is_refused() -> None:
    with pytest.raises(SchemeError, match="needs biases"):
        named("1 0:1", small_network())


def test_a_run_of_a_searched_scheme_joins_the_fleet_of_published_ones() -> None:
    one = schemes_table(Settings(), NETWORK, [FOUND])
    made = fleets([replace(cell.run, rate=0.4) for cell in one.cells], 64)
    assert [len({run.scheme for run in fleet.runs}) for fleet in made] == [4] * len(SETS)


def test_a_searched_scheme_stands_below_the_published_one_whose_sram_it_has() -> None:
    others = [Searched(NETWORK, "128KB", None, "5 39:1", 8), Searched("mbv2-w0.35", "49kb-12bit", None, "16 36:1", 12)]
    rows = schemes_table(Settings(), NETWORK, [*others, FOUND, ESTIMATED]).rows
    assert rows[:3] == ("49kb, 12 bits", "searched for 49kb-12bit", "49kb, 8 bits")
    assert rows[-1] == "searched for 128KB"
    assert len(rows) == 8
    cells = schemes_table(Settings(), NETWORK, [FOUND]).cells
    assert {(c.run.scheme, c.run.bits) for c in cells if c.row == FOUND.row} == {("20 27:1 30:1/4", 10)}


def test_what_estimates_pick_stands_beside_what_measurements_pick() -> None:
    one = estimates_table(Settings(), NETWORK, [FOUND, ESTIMATED])
    assert one.rows == ("49kb, 12 bits", "searched for 49kb-12bit", "searched by rule for 49kb-12bit")
    assert set(needed([one])) - set(needed([schemes_table(Settings(), NETWORK, [FOUND])])) == {
        run for run in needed([one]) if run.scheme == ESTIMATED.scheme
    }


def write_scheme(path: Path, bits: int | None = None) -> None:
    plain = json.loads(Scheme("found", 20, ((27, Fraction(1)), (30, Fraction(1, 4)))).to_json())
    path.write_text(json.dumps(plain | ({} if bits is None else {"weight_bits": bits})))


def test_files_say_by_their_names_what_they_are_of(tmp_path: Path) -> None:
    write_scheme(tmp_path / f"{NETWORK}-49kb-12bit.json", 10)
    write_scheme(tmp_path / f"{NETWORK}-128KB-by-rule.json")
    write_scheme(tmp_path / f"{NETWORK}-49kb-12bit-by-rule.json")
    estimated, found, other = read_searched(tmp_path)
    assert (other.budget, other.how) == ("49kb-12bit", "rule")
    assert found == FOUND
    assert estimated == Searched(NETWORK, "128KB", "rule", "20 27:1 30:1/4", 12)


@pytest.mark.parametrize("name", ["mine-128KB.json", f"{NETWORK}.json", f"{NETWORK}-49kb.json"])
def test_a_file_of_another_name_is_told(name: str, tmp_path: Path) -> None:
    write_scheme(tmp_path / name)
    with pytest.raises(InputError, match=re.escape(f"{name} does not say which network and budget")):
        read_searched(tmp_path)


def test_the_page_shows_what_was_measured_and_how_far_apart_it_lies(tmp_path: Path) -> None:
    store, engine = Store(tmp_path / "r.jsonl"), Lifted()
    chosen = tables(("schemes",), Settings(), [FOUND], {})
    work_off(chosen, store, engine, size=64, together=True)
    written = page(store.runs, store.builds, [FOUND], {})
    assert "Searched less published, points on average: 49kb-12bit +2.00 (4 data sets)." in written
    (line,) = (line for line in written.splitlines() if line.startswith(f"| {FOUND.row} |"))
    assert line.startswith("| searched for 49kb-12bit | 20 27:1 30:1/4 | 10 | 2,000 | 52.1 ± 0.1 |")
    assert line.endswith("| 52.1 |")
    assert "Rates tried, of a batch of 256: 0.4, 1." in written
    assert page(Store(tmp_path / "r.jsonl").runs, store.builds, [FOUND], {}) == written


class Lifted(Pretended):
    """What was searched learns two points more."""

    def run(self, fleet: object) -> dict[Run, Outcome]:
        runs: tuple[Run, ...] = fleet.runs  # type: ignore[attr-defined]
        return {
            run: outcome(0.5 + 0.02 * (run.scheme == FOUND.scheme) + 0.001 * run.seed - 0.01 * (run.rate > 0.4))
            for run in runs
        }


def test_without_results_the_page_has_no_tables() -> None:
    assert "##" not in page({}, {}, [FOUND], {})


@given(st.integers(0, 20))
@settings(max_examples=examples(5))
def test_where_gains_do_add_up_predictions_are_right_and_pairs_miss_nothing(seed: int) -> None:
    graph = small_network()
    found = measured(graph, seed)
    runs = {}
    for run in needed([predictions_table(Settings(), found)]):
        gain = found.predict_gain(named(run.scheme, graph))
        runs[run] = outcome(0.3 + gain / 10 + (0.01 if run.seed else -0.01))
    told = predictions(found, runs)
    assert told is not None
    assert told.correlation == pytest.approx(1)
    assert told.interaction_error == pytest.approx(0, abs=1e-9)
    assert len(told.interactions) == 15
    for one in told.schemes:
        assert one.real == pytest.approx(one.predicted / 10)


def test_predictions_wait_for_what_is_missing() -> None:
    found = measured(small_network(), 0)
    runs = dict.fromkeys(needed([predictions_table(Settings(), found)]), outcome())
    assert predictions(found, {run: o for run, o in runs.items() if run.scheme != str(found.base)}) is None
    alone = spelled(best_pairs(found, PAIRED)[0].alone[0])  # one layer, which is in five pairs of fifteen
    told = predictions(found, {run: o for run, o in runs.items() if run.scheme != alone})
    assert told is not None
    assert len(told.interactions) == 10


def test_all_runs_of_a_table_are_those_that_are_wanted_together(tmp_path: Path) -> None:
    chosen = tables(
        ("schemes", "full", "predictions", "estimates"),
        Settings(),
        [FOUND, ESTIMATED],
        {NETWORK: measured(sm.load(NETWORK), 0)},
    )
    assert set(needed(chosen)) == set(wanted(chosen, Store(tmp_path / "r"), True))


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command with nothing beside the checkout but a scheme and contributions."""
    folder = tmp_path_factory.mktemp("alone") / "clone"
    for part in ("benchmarks", "experiments", "docs"):
        shutil.copytree(TOP / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "schemes"))
    (folder / "schemes").mkdir()
    (folder / "measured").mkdir()
    write_scheme(folder / "schemes" / f"{NETWORK}-49kb-12bit.json", 10)
    write_scheme(folder / "schemes" / f"{NETWORK}-49kb-12bit-by-rule.json", 12)
    write_contributions(measured(sm.load(NETWORK), 0), folder / "measured" / f"{NETWORK}.json")
    return folder


def run(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    own = ("--schemes", "schemes", "--contributions", "measured", "--results", "r.jsonl", "--data", "mine=cifar10")
    command = [sys.executable, "benchmarks/selection.py", *own, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(TOP / "src")}
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=clone, env=environment)


@pytest.mark.slow
def test_the_table_is_measured_once_and_then_shown(clone: Path) -> None:
    tiny = ("--sets", "mine", "--device", "cpu", "--limit", "2", "--epochs", "1", "--rates", "1", "--seeds", "1")
    first = run(clone, "estimates", *tiny, "--workers", "1", "--only", "runs", "--json")
    assert first.returncode == 0, first.stderr[-400:]
    (found,) = json.loads(first.stdout)
    assert [cell["row"] for cell in found["cells"]] == [published_row("49kb", 12), FOUND.row, ESTIMATED.row]
    assert all(0 <= cell["top1"] <= 100 for cell in found["cells"])
    kept = (clone / "r.jsonl").read_bytes()
    again = run(clone, "estimates", *tiny, "--only", "runs", "--page")
    assert again.returncode == 0, again.stderr[-400:]
    assert (clone / "r.jsonl").read_bytes() == kept
    assert "| searched for 49kb-12bit | 20 27:1 30:1/4 | 10 |" in again.stdout
    assert "# Searched schemes, measured" in (clone / "docs" / "results" / "schemes.md").read_text()


@pytest.mark.slow
def test_the_plan_knows_what_the_papers_tables_have_measured(clone: Path) -> None:
    every = set(needed(tables(("schemes",), Settings(), read_searched(clone / "schemes"), {})))
    known = Store(TOP / "benchmarks" / "results" / "paper.jsonl").runs.keys() & every
    due = run(clone, "schemes", "--plan", "--results", "none.jsonl", *(f"--data={d}=cifar10" for d in SETS), "--json")
    assert due.returncode == 0, due.stderr[-400:]
    assert sum(fleet["runs"] for fleet in json.loads(due.stdout)) == len(every - known) < len(every)
    assert not (clone / "none.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("schemes", "--device", "cuda:99"), "PyTorch cannot compute on cuda:99 here"),
        (("schemes", "--seeds", "0"), "--seeds is 0; give 1 or more"),
        (("schemes", "--sets", "else", "--device", "cpu"), "the data set else is not beside the checkout"),
        (("--page", "--results", "docs/fleet.md"), "does not hold results"),
        (("schemes", "--schemes", "measured"), "does not say which network and budget"),
    ],
)
def test_what_cannot_be_done_ends_in_one_sentence(clone: Path, arguments: tuple[str, ...], message: str) -> None:
    told = run(clone, *arguments)
    assert told.returncode == 2
    assert message in told.stderr
    assert told.stderr.startswith("selection.py: ")
    assert len(told.stderr.strip().splitlines()) == 1


def test_a_footprint_is_planned_of_a_spelled_scheme() -> None:
    graph = sm.load(NETWORK)
    found = footprint(graph, Build(NETWORK, "20 24:1/4 27:1/2 30:1/2", 12))
    assert found == footprint(graph, Build(NETWORK, "49kb", 12))


@pytest.mark.slow
def test_a_scheme_searched_for_published_sram_takes_no_more_and_is_kept_under_its_name(tmp_path: Path) -> None:
    graph = sm.load(NETWORK)
    published = sm.compile(graph, "49kb", "cortex-m7", options=sm.Options(10, weight_bits=8), streamed_input=True)
    most = budget_bytes(graph, "49kb-8bit")
    assert 0 < most - (published.memory.peak + published.memory.state) < 4096  # the stack and other data
    found = search_for(graph, estimate(graph), "49kb-8bit")
    assert found.cost <= most == found.budget
    kept(tmp_path / "new", NETWORK, "49kb-8bit", found, "rule")
    (read,) = read_searched(tmp_path / "new")
    assert read == Searched(NETWORK, "49kb-8bit", "rule", spelled(found.scheme), found.weight_bits)
    assert budget_bytes(graph, "128KB") == 131072
    assert {one.budget for one in (read,)} < set(budgets(NETWORK))


def test_the_page_is_that_of_the_results_that_are_kept() -> None:
    kept_results = TOP / "benchmarks" / "results"
    store, searched = Store(kept_results / "selection.jsonl"), read_searched(kept_results / "schemes")
    found = read_measured(TOP / "src" / "smidgen" / "zoo" / "contributions")
    written = page(store.runs, store.builds, searched, found)
    assert (TOP / "docs" / "results" / "schemes.md").read_text() == written, "run python benchmarks/selection.py --page"
