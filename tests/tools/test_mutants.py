"""Named mutants, wrong programs that once passed every test, can still be made: `tools/mutants.py` runs them first."""

from __future__ import annotations

import tomllib

import pytest

from tests.support.house import TOP

NAMED = tomllib.loads((TOP / "tools" / "named_mutants.toml").read_text())["mutant"]


@pytest.mark.parametrize("mutant", NAMED, ids=[mutant["name"] for mutant in NAMED])
def test_a_named_mutant_still_applies_to_the_code(mutant: dict[str, list[dict[str, str]]]) -> None:
    for change in mutant["changes"]:
        assert (TOP / change["file"]).read_text().count(change["old"]) == 1, f"write it anew for {change['file']}"
        assert change["old"] != change["new"]
