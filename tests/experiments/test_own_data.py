"""Measured choices on other data: what the package holds as priors, and the page, are what the results say."""

from pathlib import Path

import pytest

from experiments.own_data_page import Cases, gains, outcomes, page, read
from smidgen.selection.priors import WITH_FIVE, WITH_TWENTY

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cases() -> Cases:
    return read(ROOT / "benchmarks" / "results" / "own_data")


def test_priors_are_the_mean_gains_that_were_measured(cases: Cases) -> None:
    for few, held in ((True, WITH_FIVE), (False, WITH_TWENTY)):
        measured = gains(cases, few)
        assert set(held) == set(measured)
        for kind, by_rate in measured.items():
            assert held[kind] == pytest.approx(by_rate, abs=0.051)


def test_the_page_is_made_from_the_results(cases: Cases) -> None:
    assert (ROOT / "docs" / "results" / "own-data.md").read_text() == page(cases)


def test_a_tolerance_keeps_what_is_cheaper(cases: Cases) -> None:
    exact, tolerant = (sum(one.sram_bytes for one in outcomes(cases, some)) for some in (0.0, 0.01))
    assert tolerant < 0.9 * exact
