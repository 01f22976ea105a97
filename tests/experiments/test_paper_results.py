"""Results of the paper's tables on disk: what was finished is never lost, and what is not a result is told."""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.paper.fleets import work_off
from experiments.paper.runs import Build, Footprint, Outcome, Run
from experiments.paper.store import HEADER, ResultsError, Store
from experiments.paper.tables import Settings, tables
from tests.support.fake_fleets import RUN, Pretended, outcome
from tests.support.tiers import examples

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
@settings(max_examples=examples(50))
def test_results_survive_the_file(found: dict[Run, Outcome], built: dict[Build, Footprint]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "deep" / "r.jsonl"
        Store(path).add(found)
        Store(path).add(builds=built)
        again = Store(path)
    assert (again.runs, again.builds) == (found, built)


def test_a_file_that_cannot_be_written_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    engine = Pretended()
    with pytest.raises(ResultsError, match="cannot be written"):
        work_off(tables(("head",), Settings()), Store(tmp_path / "file" / "r.jsonl"), engine, size=64)
    assert engine.made == []


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


def test_a_line_from_before_a_field_came_has_its_default(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    Store(path).add({RUN: outcome()})
    header, line = path.read_text().splitlines()
    plain = json.loads(line)
    del plain["run"]["channels"]
    path.write_text(f"{header}\n{json.dumps(plain)}\n")
    assert Store(path).runs == {RUN: outcome()}


@pytest.mark.parametrize(
    "line",
    [
        "", "{", "[]", "3", "[" * 100_000, '{"run": 1}', '{"run": {}, "outcome": {}}',
        json.dumps({"run": {**RUN.__dict__, "epochs": "many"}, "outcome": outcome().__dict__}),
        json.dumps({"run": {**RUN.__dict__, "engine": "steam"}, "outcome": outcome().__dict__}),
        json.dumps({"run": {**RUN.__dict__, "qas": 1}, "outcome": outcome().__dict__}),
        json.dumps({"run": RUN.__dict__, "outcome": {**outcome().__dict__, "losses": 3}}),
        json.dumps({"run": {**RUN.__dict__, "colour": "blue"}, "outcome": outcome().__dict__}),
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
