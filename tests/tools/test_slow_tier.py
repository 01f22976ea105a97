"""The slow tier runs what fits into its time, says what it left out, and fails where a test did."""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.house import TOP

TESTS = TOP / "tests"
TOOL = runpy.run_path(str(TOP / "tools" / "slow_tier.py"))
GROUPS, run, report = TOOL["GROUPS"], TOOL["run"], TOOL["report"]


def python(name: str, code: str, minutes: float = 0.0) -> Any:
    return TOOL["Group"](name, minutes, (sys.executable, "-c", code))


def test_groups_run_in_order_and_the_report_names_what_failed() -> None:
    results = run(
        (python("good", ""), python("bad", "raise SystemExit(1)"), python("empty", "raise SystemExit(5)")), 60
    )
    assert [(r.group.name, r.state) for r in results] == [("good", "passed"), ("bad", "failed"), ("empty", "passed")]
    assert "slow tier, failed: bad (" in report(results)
    assert "left out" not in report(results)


def test_a_group_that_does_not_fit_is_left_out_and_a_smaller_one_behind_it_is_run() -> None:
    results = run((python("long", "", minutes=9), python("short", "")), 60)
    assert [r.state for r in results] == ["left out", "passed"]
    assert "slow tier, left out: long (about 9)" in report(results)


def test_a_group_is_stopped_at_the_deadline_with_all_it_started(tmp_path: Path) -> None:
    child = f"import time; time.sleep(3); open({str(tmp_path / 'alive')!r}, 'w')"
    parent = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)"
    results = run((python("endless", parent),), 1)
    assert [r.state for r in results] == ["stopped"]
    time.sleep(4)
    assert not (tmp_path / "alive").exists()


def test_every_folder_of_tests_is_in_one_group_of_slow_tests() -> None:
    listed = [word.removeprefix("tests/") for group in GROUPS for word in group.command if word.startswith("tests/")]
    there = {path.parent.name for path in TESTS.glob("*/test_*.py")} | {path.name for path in TESTS.glob("test_*.py")}
    assert sorted(listed) == sorted(there)


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_a_group_says_how_long_it_takes(group: Any) -> None:
    assert 0 < group.minutes < 20
